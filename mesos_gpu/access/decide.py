"""Decisions on rights: whether a caller may do something, which right is missing, and who can grant it."""

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
#: Rights for apps by which rights for jobs are decided, if the job is an instance of an app.
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
    """Object to which a right is applied.

    Attributes:
        owner: Name of its owner; "" without owner.
        queue: Queue of a job.
        app: Path of an app, or of the app whose instance a job is; "" for others.
        name: Other identification, such as the path of a secret.
    """

    owner: str = ""
    queue: str = ""
    app: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """A right by one line of one role in one binding, limited to own objects, patterns, queues or apps."""

    own: bool
    pattern: str  # "" for anything
    queues: tuple[str, ...]
    apps: tuple[str, ...]

    def is_for(self, right: Right, subject: Subject | None, name: str) -> bool:
        """Return whether it grants the right for a subject (None for the whole cluster) to a name."""
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
        """Return whether it grants the right for every subject."""
        return right.scope is Scope.VIEW or (not self.own and not self.pattern and self._is_for_all)

    def is_wider(self, right: Right, other: "Grant") -> bool:
        """Return whether it grants the right for everything that another grant does; False if that is uncertain."""
        if right.scope is Scope.VIEW:
            return True
        if right.scope is Scope.TOKEN:  # rights for own tokens do not depend on queues
            if not other.own and not other._is_for_all:
                return True  # the other one grants nothing
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
    """Rights of a caller by one version of the access document.

    Decisions are prepared at construction, so that each query is fast.
    """

    def __init__(self, document: AccessDocument, caller: Caller) -> None:
        self.document, self.caller = document, caller
        self.is_open = caller.proof is Proof.OPEN  # without authentication everything is allowed
        self._bound = [] if self.is_open else list(_bound(document, caller))
        self._grants = grants_of(self._bound)
        self._narrowed = None if caller.narrowing is None else grants_by(caller.narrowing)
        #: Cache for callers that decide on many subjects: by right, whether own, queue, and app.
        self.judged: dict[tuple[Right, bool, str, str | None], bool] = {}
        self._always = _always(self._grants)
        if self._narrowed is not None:
            self._always &= _always(self._narrowed)

    @property
    def roles(self) -> tuple[str, ...]:
        """Names of the caller's roles, in the order of the bindings."""
        return tuple(dict.fromkeys(role.name for _, role in self._bound))

    def held(self) -> list[tuple[Right, Grant]]:
        """Return all rights in the order of the catalogue, with each distinct grant; all rights without authentication.

        Rights that the caller's proof excludes are left out. Grants are not narrowed to the subjects that it allows.
        """
        grants = grants_of([(Binding(), ADMIN)]) if self.is_open else self._grants
        return [
            (right, grant)
            for right in all_rights.RIGHTS
            for grant in dict.fromkeys(grants.get(right, ()))
            if self._narrowed is None or self._narrowed.get(right)
        ]

    def may(self, right: Right, subject: Subject | None = None) -> bool:
        """Return whether the caller has a right for a subject; None for the whole cluster."""
        if self.is_open:
            return True
        right = _asked(right, subject)
        if right in self._always and (subject is None or subject.app[:1] in ("", "/")):
            return True
        name = self.caller.name
        given = _has(self._grants, right, subject, name) or self._is_shared(right, subject)
        return given and (self._narrowed is None or _has(self._narrowed, right, subject, name))

    def may_always(self, right: Right) -> bool:
        """Return whether the caller has a right for every job and app, so that none needs to be checked."""
        return self.is_open or {right, OF_INSTANCE.get(right, right)} <= self._always

    def may_some(self, right: Right) -> bool:
        """Return whether the caller may have a right for some subject."""
        if self.is_open:
            return True
        if right in OF_INSTANCE and self.may_some(OF_INSTANCE[right]):
            return True
        given = bool(self._grants.get(right)) or (
            right in _SHARED_BY and bool(self._bound and self.document.shares)
        )
        return given and (self._narrowed is None or bool(self._narrowed.get(right)))

    def holds(self, grants: Grants) -> bool:
        """Return whether the caller has all rights of some grants; False if that is uncertain."""
        own = [self._grants] if self._narrowed is None else [self._grants, self._narrowed]
        return self.is_open or all(are_wider(wide, grants) for wide in own)

    def limits_over(self, right: Right, asked: Grant) -> Limits:
        """Return the limits on jobs and apps by those roles that grant `right` for everything that `asked` covers."""
        if self.is_open:
            return ADMIN.limits
        return widest(
            role.limits
            for binding, role in self._bound
            if any(mine.is_wider(right, asked) for mine in grants_of([(binding, role)]).get(right, ()))
        )

    def because(self, right: Right, subject: Subject | None = None) -> list[tuple[Binding, Role]]:
        """Return the bindings that grant a right, each with its role; none if it is not granted, or only by sharing."""
        asked = _asked(right, subject)
        return [
            (binding, role)
            for binding, role in self._bound
            if _has(grants_of([(binding, role)]), asked, subject, self.caller.name)
        ]

    def missing(self, right: Right, subject: Subject | None = None) -> str:
        """Return a text that says which right is missing."""
        right = _asked(right, subject)
        what = described(right, subject)
        if not self.caller.is_proved:
            return f"{what} needs a proved name"
        grants = self._grants, self._narrowed
        has, is_good_for = (
            grant is None or _gives(grant, right, subject, self.caller.name) for grant in grants
        )
        if has and not is_good_for:
            return f"{self.caller.name} has the right {what}, but this {self.caller.proof.value} does not allow it"
        return f"{self.caller.name} lacks the right {what}"

    def who_can_give(self) -> str:
        """Return a text that says who can grant more rights, to be used as a remedy."""
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
        """Return queues and patterns of queues for which a right on jobs is granted, at least for own jobs."""
        return tuple(dict.fromkeys(queue for grant in self._grants.get(right, ()) for queue in grant.queues))

    def limits(self, right: Right, subject: Subject) -> Limits:
        """Return the limits on a job or app by the roles that grant `right` for it."""
        return (
            ADMIN.limits if self.is_open else widest(role.limits for _, role in self.because(right, subject))
        )

    def _is_shared(self, right: Right, subject: Subject | None) -> bool:
        """Return whether a queue shares the job with its members, who are the names that may run jobs in it."""
        shown = _SHARED_BY.get(right)
        if shown is None or subject is None or not subject.queue or subject.app:
            return False
        if shown not in self.document.shares.get(subject.queue, ()):
            return False
        member = Subject(self.caller.name, subject.queue)
        return _has(self._grants, all_rights.JOB_RUN, member, self.caller.name)


def _told(right: Right, subject: Subject) -> str:
    """Return the text that the pattern of a right is matched with."""
    if right.scope is Scope.JOB:
        return subject.queue
    return subject.app if right.scope is Scope.APP else subject.name


def _asked(right: Right, subject: Subject | None) -> Right:
    return OF_INSTANCE.get(right, right) if subject is not None and subject.app else right


def _bound(document: AccessDocument, caller: Caller) -> Iterator[tuple[Binding, Role]]:
    """Yield the roles of a caller, each with its binding."""
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
    """Return the grants of roles in bindings, by right."""
    grants: dict[Right, list[Grant]] = defaultdict(list)
    for binding, role in bound:
        for text in role.rights:
            granted = parse(text)
            for right in granted.rights:
                grants[right].append(Grant(granted.own, granted.pattern, binding.queues, binding.apps))
    return grants


def grants_by(narrowing: Narrowing) -> Grants:
    """Return the grants to which a proof is restricted, by right."""
    binding = Binding(queues=narrowing.queues, apps=narrowing.apps)
    return grants_of([(binding, Role("", narrowing.rights))])


def are_wider(wide: Grants, narrow: Grants) -> bool:
    """Return whether grants include all that others grant; False if that is uncertain."""
    return all(
        any(mine.is_wider(right, grant) for mine in wide.get(right, ()))
        for right, asked in narrow.items()
        for grant in asked
    )


def _always(grants: Grants) -> frozenset[Right]:
    """Return the rights that are granted for everything."""
    return frozenset(
        right for right, granted in grants.items() if any(grant.is_for_everything(right) for grant in granted)
    )


def _has(grants: Grants, right: Right, subject: Subject | None, name: str) -> bool:
    for grant in grants.get(right, ()):  # noqa: SIM110 # a generator would take twice as long
        if grant.is_for(right, subject, name):
            return True
    return False


def _gives(grants: Grants, right: Right, subject: Subject | None, name: str) -> bool:
    """Return whether a right is granted for a subject; for None, whether it is granted for any subject."""
    if subject is None and right.scope not in (Scope.CLUSTER, Scope.VIEW):
        return bool(grants.get(right))
    return _has(grants, right, subject, name)


def described(right: Right, subject: Subject | None) -> str:
    """Return a right with its subject as text, such as `job:kill in queue research`."""
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
    """Return the widest value of each field; without limits, the strictest limits."""
    given = list(limits)
    if not given:
        return Limits(images=(), must_be_preemptible=True)
    return Limits(
        users=_all(limit.users for limit in given),
        images=_all(limit.images for limit in given),
        volumes=_all(limit.volumes for limit in given),
        highest_priority=max(limit.highest_priority for limit in given),
        must_be_preemptible=all(limit.must_be_preemptible for limit in given),
    )


def _all(patterns: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pattern for group in patterns for pattern in group))


def unix_user_of(document: AccessDocument, name: str) -> str | None:
    """Return the Unix user of a name; None without one. The result is never root."""
    user = document.unix_users.get(name, name)
    return user if USER.fullmatch(user) and user != "root" else None
