"""Whether somebody may change the tree of apps as is asked, and whose the apps are afterwards.

An app that is new, or that runs something else afterwards, belongs to who asked for that, and runs as that name's Unix
user; whoever only scales or restarts it leaves it its owner. So a right to change apps of others is none to run
commands as them, nor to read the values of their environments.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mesos_gpu.access.decide import Rights, Subject, unix_user_of
from mesos_gpu.access.rights import APP_ENV, APP_WRITE, JOB_RUN
from mesos_gpu.api import admission
from mesos_gpu.api.http.rights import require
from mesos_gpu.api.marathon.errors import Refused
from mesos_gpu.api.marathon.tree import map_apps
from mesos_gpu.api.sight.apps import AppSight, subject_of
from mesos_gpu.api.sight.hosts import Others, wanted_by
from mesos_gpu.model.apps.app import App, Group, SecretRef, same_but_scale
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.model.jobs.job import DEFAULT_QUEUE
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.policy.admission.limits import queue_of_app
from mesos_gpu.policy.apps.workload import job_of
from mesos_gpu.policy.tenancy.tree import Tree
from mesos_gpu.wire.job_fields import HIDDEN
from mesos_gpu.wire.marathon.options import gpu_options
from mesos_gpu.wire.marathon.problems import Detail

_PATHS: Final = {
    "/user": "/user", "/image": "/container/docker/image", "/volumes": "/container/volumes",
    "/priority": "/gpu/priority", "/preemptible": "/gpu/preemptible", "/control_access": "/gpu/control_access",
    "/image_secret": "/container/docker/pullConfig",
}  # fmt: skip


class Consent:
    """What one caller may change."""

    def __init__(
        self,
        rights: Rights,
        permits: Permits,
        *,
        pooled: bool,
        splits: Sequence[TrafficSplit],
        tree: Tree,
    ) -> None:
        """Ask these rights.

        Args:
            rights: Of the caller.
            permits: Permits of the operator.
            pooled: Whether tasks that name no user get one each on their host.
            splits: All services.
            tree: Tree of queues.
        """
        self._tree, self._permits = tree, permits
        self._rights, self._sight, self._pooled, self._splits = rights, AppSight(rights), pooled, splits

    def given(
        self, seen: Group, wanted: Group, restarts: Collection[str] = (), kills: Collection[str] = ()
    ) -> Group:
        """The tree as it is to become, each app with its owner and its user.

        Args:
            seen: The tree as it is.
            wanted: As it is asked for.
            restarts: Ids of apps that start anew although their definition stays.
            kills: Ids of apps whose instances are chosen to go.

        Raises:
            Refusal: A right is missing for one of the apps that would change.
            Refused: The roles do not allow what an app asks for.
        """
        old = {app.id: app for app in seen.all_apps()}
        new = {app.id for app in wanted.all_apps()}
        for id, app in old.items():
            if id not in new or id in restarts or id in kills:
                self._sight.require(APP_WRITE, app)
        self._require_groups(seen, wanted)
        details: list[Detail] = []
        made = map_apps(wanted, lambda app: self._of(app, old.get(app.id), details))
        details += self._of_services(old, made)
        if details:
            raise Refused(
                403,
                f"the roles of {self._rights.caller.name} do not allow this",
                details=[{"path": each.path, "errors": list(each.errors)} for each in details],
                remedy=self._rights.who_can_give(),
            )
        return made

    def _of_services(self, old: Mapping[str, App], made: Group) -> Iterator[Detail]:
        """Labels and ports must not lead requests for others' services here."""
        changed = [app for app in made.all_apps() if app is not old.get(app.id)]
        if self._rights.is_open or not changed:
            return
        others = Others(self._sight, old, self._splits)
        for app in changed:
            before = old.get(app.id)
            asked = wanted_by(app) - (wanted_by(before) if before else frozenset())
            for word in others.have(asked, but=app.id):
                yield Detail(f"{app.id}/labels", (f"{word} is another's service; name another",))

    def _require_groups(self, seen: Group, wanted: Group) -> None:
        """A group without apps is changed by who may write apps in it; so are dependencies of groups."""
        before, after = _plain_groups(seen), _plain_groups(wanted)
        bare = _bare_groups(seen) - after.keys() | _bare_groups(wanted) - before.keys()
        for id in sorted(before.keys() | after.keys()):
            said = (
                before.get(id, ()),
                after.get(id, ()),
            )  # groups that say nothing come and go with their apps
            if (said[0] != said[1] or id in bare) and not self._sight.may_write_below(id):
                raise _of_group(self._rights, id)

    @property
    def _name(self) -> str:
        return self._rights.caller.name

    def _of(self, app: App, old: App | None, details: list[Detail]) -> App:
        """An app of the tree as it is to become."""
        if app is old:
            return app
        if old is not None:
            app = replace(app, owner=old.owner, env=_as_before(app, old))
            if app == old:
                return old
        if self._rights.is_open:
            return app
        if old is not None:
            self._sight.require(APP_WRITE, old)
            if same_but_scale(old, app):
                return app
        return self._changed(app, old, details)

    def _changed(self, app: App, old: App | None, details: list[Detail]) -> App:
        """An app that runs something else from now on."""
        mine = replace(app, owner=self._name)
        require(self._rights, APP_WRITE, subject_of(mine))
        if old is not None and old.owner != self._name:
            if not self._sight.may(APP_ENV, old) and _shares_values(app, old):
                why = f"its environment has values of {old.owner or 'another'}: give other values, or leave them out"
                details.append(Detail(f"{app.id}/env", (why,)))
            if app.user == old.user == unix_user_of(self._rights.document, old.owner):
                mine = replace(mine, user=None)
        return self._admitted(mine, details)

    def _admitted(self, app: App, details: list[Detail]) -> App:
        spec = job_of(app, gpu_options(app), version="")
        if isinstance(spec, str):
            details.append(Detail(app.id, (spec,)))
            return app
        details += self._of_queue(app)
        said = admission.problems(self._rights, spec, subject_of(app))
        if spec.user is None and not self._pooled:
            asked = spec
            spec, more = admission.with_own_user(self._rights, asked, subject_of(app))
            said += [*more, *admission.of_own_user(self._permits, asked, spec)]
        for each in said:
            head, slash, rest = each.path[1:].partition("/")
            details.append(
                Detail(f"{app.id}{_PATHS.get(f'/{head}', each.path)}{slash}{rest}", (each.reason,))
            )
        return replace(app, user=spec.user)

    def _of_queue(self, app: App) -> Iterator[Detail]:
        """An app may stand in a queue that it names only if who asks may run jobs there; that of its group is its
        own."""
        named = gpu_options(app).queue
        if named in (DEFAULT_QUEUE, queue_of_app(self._tree, DEFAULT_QUEUE, app.id)):
            return
        job = Subject(self._name, named)
        if not self._rights.may(JOB_RUN, job):
            by_object = app.gpu is not None and app.gpu.queue == named
            place = "gpu/queue" if by_object else "labels/MESOS_GPU_QUEUE"
            yield Detail(f"{app.id}/{place}", (self._rights.missing(JOB_RUN, job),))


def _as_before(app: App, old: App) -> Mapping[str, str | SecretRef]:
    """The environment; a value that was shown as hidden, and comes back so, stays what it is."""
    return {
        name: old.env[name] if value == HIDDEN and name in old.env else value
        for name, value in app.env.items()
    }


def _shares_values(app: App, old: App) -> bool:
    return any(name in app.env and app.env[name] == value for name, value in old.env.items())


def _plain_groups(group: Group) -> dict[str, tuple[object, ...]]:
    """What groups say beside their apps, by id."""

    def walk(group: Group) -> Iterator[tuple[str, tuple[object, ...]]]:
        said: tuple[object, ...] = group.dependencies, group.enforce_role
        yield group.id, (said if any(said) else ())
        for each in group.groups:
            yield from walk(each)

    return dict(walk(group))


def _bare_groups(group: Group) -> frozenset[str]:
    """Groups in which there is nothing: they stand for no app that one could have a right to."""
    if not group.apps and not group.groups:
        return frozenset({group.id})
    return frozenset(id for each in group.groups for id in _bare_groups(each))


def _of_group(rights: Rights, id: str) -> Refused:
    what = rights.missing(APP_WRITE, Subject(rights.caller.name, app=id))
    return Refused(403, what, remedy=rights.who_can_give())
