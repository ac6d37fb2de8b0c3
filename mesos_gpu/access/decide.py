"""Whether somebody may do something, what is missing if not, and who can give it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.access import rights as all_rights
from mesos_gpu.access.patterns import all_covered, any_fits, covers, fits
from mesos_gpu.access.rights import Right, Scope, parse
from mesos_gpu.access.roles import ADMIN, roles_of
from mesos_gpu.model.access.caller import Caller, Narrowing, Proof
from mesos_gpu.model.access.document import (
    ALL_APPS,
    EVERYTHING,
    AccessDocument,
    Binding,
    Limits,
    Role,
    Shared,
)
from mesos_gpu.model.jobs.fields import USER

_SHARED_BY: Final = {
    all_rights.JOB_SEE: Shared.JOBS,
    all_rights.JOB_READ: Shared.COMMANDS,
    all_rights.JOB_OUTPUT: Shared.OUTPUT,
}
#: An instance of an app is judged as a part of the app.
OF_INSTANCE: Final[Mapping[Right, Right]] = {
    all_rights.JOB_SEE: all_rights.APP_SEE,
    all_rights.JOB_READ: all_rights.APP_READ,
    all_rights.JOB_ENV: all_rights.APP_ENV,
    all_rights.JOB_OUTPUT: all_rights.APP_OUTPUT,
    all_rights.JOB_KILL: all_rights.APP_WRITE,
    all_rights.JOB_RESIZE: all_rights.APP_WRITE,
    all_rights.JOB_CHECKPOINT: all_rights.APP_WRITE,
    all_rights.JOB_EXEC: all_rights.APP_EXEC,
    all_rights.JOB_CONTROL: all_rights.APP_CONTROL,
}


@dataclass(frozen=True, slots=True)
class Subject:
    """What a right is asked for.

    Attributes:
        owner: The name whose it is; "": nobody's.
        queue: Of a job.
        app: The path of an app, or of the one whose instance a job is; "": of none.
        name: What else it is told by, as the path of a secret.
    """

    owner: str = ""
    queue: str = ""
    app: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """A right by one line of one role in one binding."""

    own: bool
    pattern: str  # "": anything
    queues: tuple[str, ...]
    apps: tuple[str, ...]

    def is_for(self, right: Right, subject: Subject | None, name: str) -> bool:
        """Whether it allows the right for a subject (None: for all of the cluster) to who has that name."""
        if right.scope is Scope.VIEW:
            return True
        if subject is None or right.scope is Scope.CLUSTER:
            return not self.own and not self.pattern and self._is_for_all
        if self.own and not (name and subject.owner == name):
            return False
        if right.scope is Scope.TOKEN:
            return self.own or self._is_for_all
        if self.pattern and not fits(self.pattern, _told(right, subject)):
            return False
        if right.scope is Scope.APP or subject.app:
            return any_fits(self.apps, subject.app)
        return any_fits(self.queues, subject.queue)

    def is_for_everything(self, right: Right) -> bool:
        """Whether it allows the right to whom it is granted, whatever that is asked for."""
        return right.scope is Scope.VIEW or (not self.own and not self.pattern and self._is_for_all)

    def is_wider(self, right: Right, other: "Grant") -> bool:
        """Whether it allows the right for all that another one does; where that is not certain, no."""
        if right.scope is Scope.VIEW:
            return True
        if right.scope is Scope.TOKEN:  # one's own ones are nobody's business, whatever the queue
            if not other.own and not other._is_for_all:
                return True  # that one gives nothing
            return (self.own and other.own) or (not self.own and self._is_for_all)
        if self.own and not other.own:
            return False
        anything = ALL_APPS if right.scope is Scope.APP else EVERYTHING
        if self.pattern and not covers(self.pattern, other.pattern or anything):
            return False
        return all_covered(self.queues, other.queues) and all_covered(self.apps, other.apps)

    @property
    def _is_for_all(self) -> bool:
        return EVERYTHING in self.queues and (ALL_APPS in self.apps or EVERYTHING in self.apps)


Grants = Mapping[Right, Sequence[Grant]]


class Rights:
    """What a caller may do by one version of the document."""

    def __init__(self, document: AccessDocument, caller: Caller) -> None:
        """Work it out once; asking is quick."""
        self.document, self.caller = document, caller
        self.is_open = caller.proof is Proof.OPEN  # nobody is asked who they are: everything is allowed
        self._bound = [] if self.is_open else list(_bound(document, caller))
        self._grants = grants_of(self._bound)
        self._narrowed = None if caller.narrowing is None else grants_by(caller.narrowing)
        #: What was judged so far, by right, whether it is one's own, queue and app; for who judges much of a kind.
        self.judged: dict[tuple[Right, bool, str, str | None], bool] = {}
        self._always = _always(self._grants)
        if self._narrowed is not None:
            self._always &= _always(self._narrowed)

    @property
    def roles(self) -> tuple[str, ...]:
        """Names of its roles, in the order of the bindings."""
        return tuple(dict.fromkeys(role.name for _, role in self._bound))

    def held(self) -> list[tuple[Right, Grant]]:
        """All rights in the order of the catalogue, with each way to have it once; where nobody is asked, all of them.

        What its proof is good for narrows them further.
        """
        grants = grants_of([(Binding(), ADMIN)]) if self.is_open else self._grants
        return [
            (right, grant)
            for right in all_rights.RIGHTS
            for grant in dict.fromkeys(grants.get(right, ()))
            if self._narrowed is None or self._narrowed.get(right)
        ]

    def may(self, right: Right, subject: Subject | None = None) -> bool:
        """Whether it is allowed for `subject`; None: for all of the cluster."""
        if self.is_open:
            return True
        right = _asked(right, subject)
        if right in self._always and (subject is None or subject.app[:1] in ("", "/")):
            return True
        name = self.caller.name
        given = _has(self._grants, right, subject, name) or self._is_shared(right, subject)
        return given and (self._narrowed is None or _has(self._narrowed, right, subject, name))

    def may_always(self, right: Right) -> bool:
        """Whether it is allowed for all jobs and apps that there are: none of them has to be asked about."""
        return self.is_open or {right, OF_INSTANCE.get(right, right)} <= self._always

    def may_some(self, right: Right) -> bool:
        """Whether there may be something that it is allowed for."""
        if self.is_open:
            return True
        if right in OF_INSTANCE and self.may_some(OF_INSTANCE[right]):
            return True
        given = bool(self._grants.get(right)) or (
            right in _SHARED_BY and bool(self._bound and self.document.shares)
        )
        return given and (self._narrowed is None or bool(self._narrowed.get(right)))

    def holds(self, grants: Grants) -> bool:
        """Whether the caller may do all of that himself; where that is not certain, no."""
        own = [self._grants] if self._narrowed is None else [self._grants, self._narrowed]
        return self.is_open or all(are_wider(each, grants) for each in own)

    def limits_over(self, right: Right, asked: Grant) -> Limits:
        """What a job or an app may ask for by the roles that give `right` for all that `asked` gives it for."""
        if self.is_open:
            return ADMIN.limits
        return widest(
            role.limits
            for binding, role in self._bound
            if any(mine.is_wider(right, asked) for mine in grants_of([(binding, role)]).get(right, ()))
        )

    def because(self, right: Right, subject: Subject | None = None) -> list[tuple[Binding, Role]]:
        """The bindings that give the right, each with its role; none: it is not given, or by what the queue shares."""
        asked = _asked(right, subject)
        return [
            (binding, role)
            for binding, role in self._bound
            if _has(grants_of([(binding, role)]), asked, subject, self.caller.name)
        ]

    def missing(self, right: Right, subject: Subject | None = None) -> str:
        """The right that is missing, in words."""
        right = _asked(right, subject)
        what = described(right, subject)
        if not self.caller.is_proved:
            return f"{what} needs a name, and none is proved"
        grants = self._grants, self._narrowed
        has, is_good_for = (each is None or _gives(each, right, subject, self.caller.name) for each in grants)
        if has and not is_good_for:
            return f"{self.caller.name} has the right {what}, but this {self.caller.proof.value} is not made for it"
        return f"{self.caller.name} lacks the right {what}"

    def who_can_give(self) -> str:
        """Who can bind a role that gives more; for a remedy."""
        if not self.caller.is_proved:
            return "log in (mesos-gpu login), or send a token"
        roles = roles_of(self.document)
        givers = [
            who
            for binding in self.document.bindings
            if _has(grants_of((binding, roles[role]) for role in binding.roles if role in roles),
                    all_rights.ACCESS_WRITE, None, "")
            for who in (*binding.names, *(f"the group {group}" for group in binding.groups))
        ]  # fmt: skip
        shown = " or ".join(dict.fromkeys(givers[:3])) if givers else "root on the scheduler's host"
        return f"ask {shown} to bind a role that gives it (mesos-gpu access apply)"

    def queues(self, right: Right) -> tuple[str, ...]:
        """Queues and patterns of them that a right for jobs is given in, to the caller's own."""
        return tuple(dict.fromkeys(queue for grant in self._grants.get(right, ()) for queue in grant.queues))

    def limits(self, right: Right, subject: Subject) -> Limits:
        """What a job or an app that is `subject` may ask for, by the roles that give `right` for it."""
        return (
            ADMIN.limits if self.is_open else widest(role.limits for _, role in self.because(right, subject))
        )

    def _is_shared(self, right: Right, subject: Subject | None) -> bool:
        """Whether the queue shows it to its members: those who may run jobs in it."""
        shown = _SHARED_BY.get(right)
        if shown is None or subject is None or not subject.queue or subject.app:
            return False
        if shown not in self.document.shares.get(subject.queue, ()):
            return False
        member = Subject(self.caller.name, subject.queue)
        return _has(self._grants, all_rights.JOB_RUN, member, self.caller.name)


def _told(right: Right, subject: Subject) -> str:
    """What a right's pattern is held against."""
    if right.scope is Scope.JOB:
        return subject.queue
    return subject.app if right.scope is Scope.APP else subject.name


def _asked(right: Right, subject: Subject | None) -> Right:
    return OF_INSTANCE.get(right, right) if subject is not None and subject.app else right


def _bound(document: AccessDocument, caller: Caller) -> Iterator[tuple[Binding, Role]]:
    """The roles of a caller, each with the binding that gives it."""
    if caller.local_admin:
        yield Binding(), ADMIN
    if not caller.is_proved:
        return
    roles = roles_of(document)
    for binding in document.bindings:
        named = caller.name in binding.names or EVERYTHING in binding.names
        if named or not caller.groups.isdisjoint(binding.groups):
            yield from ((binding, roles[name]) for name in binding.roles if name in roles)


def grants_of(bound: Iterable[tuple[Binding, Role]]) -> Grants:
    """What roles give in bindings, by right."""
    grants: dict[Right, list[Grant]] = defaultdict(list)
    for binding, role in bound:
        for text in role.rights:
            granted = parse(text)
            for right in granted.rights:
                grants[right].append(Grant(granted.own, granted.pattern, binding.queues, binding.apps))
    return grants


def grants_by(narrowing: Narrowing) -> Grants:
    """What a proof is good for, by right."""
    binding = Binding(queues=narrowing.queues, apps=narrowing.apps)
    return grants_of([(binding, Role("", narrowing.rights))])


def are_wider(wide: Grants, narrow: Grants) -> bool:
    """Whether the ones allow all that the others do; where that is not certain, no."""
    return all(
        any(mine.is_wider(right, grant) for mine in wide.get(right, ()))
        for right, asked in narrow.items()
        for grant in asked
    )


def _always(grants: Grants) -> frozenset[Right]:
    """The rights that are given for everything."""
    return frozenset(
        right for right, each in grants.items() if any(grant.is_for_everything(right) for grant in each)
    )


def _has(grants: Grants, right: Right, subject: Subject | None, name: str) -> bool:
    for grant in grants.get(right, ()):  # noqa: SIM110 # a generator would take twice as long
        if grant.is_for(right, subject, name):
            return True
    return False


def _gives(grants: Grants, right: Right, subject: Subject | None, name: str) -> bool:
    """Whether the right is given for a subject; None: for something, if it is a right that is for parts."""
    if subject is None and right.scope not in (Scope.CLUSTER, Scope.VIEW):
        return bool(grants.get(right))
    return _has(grants, right, subject, name)


def described(right: Right, subject: Subject | None) -> str:
    """A right and what it is for, as `job:kill in queue research`."""
    if subject is None or right.scope in (Scope.CLUSTER, Scope.VIEW):
        return right.name
    if right.scope is Scope.APP:
        return f"{right.name}:{subject.app}"
    if right.scope is Scope.NAME:
        where = (
            f"for {subject.app}"
            if subject.app
            else f"in queue {subject.queue}"
            if subject.queue
            else "everywhere"
        )
        return f"{right.name}:{subject.name} {where}"
    if right.scope is Scope.TOKEN:
        return f"{right.name} for {subject.owner}"
    return f"{right.name} in queue {subject.queue}"


def widest(limits: Iterable[Limits]) -> Limits:
    """The widest value of each field; of no limits, the limits that allow least."""
    given = list(limits)
    if not given:
        return Limits(images=(), must_be_preemptible=True)
    return Limits(
        users=_all(each.users for each in given),
        images=_all(each.images for each in given),
        volumes=_all(each.volumes for each in given),
        highest_priority=max(each.highest_priority for each in given),
        must_be_preemptible=all(each.must_be_preemptible for each in given),
    )


def _all(patterns: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pattern for each in patterns for pattern in each))


def unix_user_of(document: AccessDocument, name: str) -> str | None:
    """The Unix user that belongs to a name; None: none does. Never root."""
    user = document.unix_users.get(name, name)
    return user if USER.fullmatch(user) and user != "root" else None
