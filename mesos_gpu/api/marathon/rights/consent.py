"""Rights to change the tree of apps, and the owners of the changed apps.

An app that is new, or that runs something else afterwards, belongs to the caller, and runs as the caller's Unix user;
an app that is only scaled or restarted keeps its owner. A right to change apps of others thus does not permit running
commands as them, nor reading the values of their environments.
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
    """Checks whether a caller may change the tree of apps, and sets owners and users."""

    def __init__(
        self,
        rights: Rights,
        permits: Permits,
        *,
        pooled: bool,
        splits: Sequence[TrafficSplit],
        tree: Tree,
    ) -> None:
        """Set whose rights are checked.

        Args:
            rights: Rights of the caller.
            permits: Permits of the operator.
            pooled: Whether each task that names no user gets a separate one on its host.
            splits: Services before the change.
            tree: Tree of queues.
        """
        self._tree, self._permits = tree, permits
        self._rights, self._sight, self._pooled, self._splits = rights, AppSight(rights), pooled, splits

    def given(
        self, seen: Group, wanted: Group, restarts: Collection[str] = (), kills: Collection[str] = ()
    ) -> Group:
        """Return the new tree, with an owner and a user for each app.

        Args:
            seen: The current tree.
            wanted: The requested tree.
            restarts: Ids of apps that are restarted although their definition stays.
            kills: Ids of apps some of whose instances are killed.

        Raises:
            Refusal: A right is missing for one of the changed apps.
            Refused: The roles do not allow something in an app.
        """
        old = {app.id: app for app in seen.all_apps()}
        new = {app.id for app in wanted.all_apps()}
        for id, app in old.items():
            if id not in new or id in restarts or id in kills:
                self._sight.require(APP_WRITE, app)
        self._require_groups(seen, wanted)
        details: list[Detail] = []
        new_tree = map_apps(wanted, lambda app: self._of(app, old.get(app.id), details))
        details += self._service_faults(old, new_tree)
        if details:
            raise Refused(
                403,
                f"the roles of {self._rights.caller.name} do not allow this",
                details=[{"path": detail.path, "errors": list(detail.errors)} for detail in details],
                remedy=self._rights.who_can_give(),
            )
        return new_tree

    def _service_faults(self, old: Mapping[str, App], made: Group) -> Iterator[Detail]:
        """Yield faults of labels and ports that would attract requests for services of others."""
        changed = [app for app in made.all_apps() if app is not old.get(app.id)]
        if self._rights.is_open or not changed:
            return
        others = Others(self._sight, old, self._splits)
        for app in changed:
            before = old.get(app.id)
            added = wanted_by(app) - (wanted_by(before) if before else frozenset())
            for claim in others.have(added, but=app.id):
                yield Detail(
                    f"{app.id}/labels",
                    (f"{claim} belongs to a service of another owner; choose another one",),
                )

    def _require_groups(self, seen: Group, wanted: Group) -> None:
        """Check changes of groups without apps, and of dependencies: both need the right for apps in the group."""
        before, after = _plain_groups(seen), _plain_groups(wanted)
        bare = _bare_groups(seen) - after.keys() | _bare_groups(wanted) - before.keys()
        for id in sorted(before.keys() | after.keys()):
            fields = (
                before.get(id, ()),
                after.get(id, ()),
            )  # groups without such fields come and go with their apps
            if (fields[0] != fields[1] or id in bare) and not self._sight.may_write_below(id):
                raise _group_refusal(self._rights, id)

    @property
    def _name(self) -> str:
        return self._rights.caller.name

    def _of(self, app: App, old: App | None, details: list[Detail]) -> App:
        """Return an app of the new tree with its owner."""
        if app is old:
            return app
        if old is not None:
            app = replace(app, owner=old.owner, env=_restored_env(app, old))
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
        """Return an app that runs something else from now on, with the caller as its owner."""
        mine = replace(app, owner=self._name)
        require(self._rights, APP_WRITE, subject_of(mine))
        if old is not None and old.owner != self._name:
            if not self._sight.may(APP_ENV, old) and _shares_values(app, old):
                why = f"its environment has values of {old.owner or 'another'}: set other values, or leave them out"
                details.append(Detail(f"{app.id}/env", (why,)))
            if app.user == old.user == unix_user_of(self._rights.document, old.owner):
                mine = replace(mine, user=None)
        return self._admitted(mine, details)

    def _admitted(self, app: App, details: list[Detail]) -> App:
        """Check an app against the caller's roles, adding faults to `details`; return it with its Unix user."""
        spec = job_of(app, gpu_options(app), version="")
        if isinstance(spec, str):
            details.append(Detail(app.id, (spec,)))
            return app
        details += self._queue_faults(app)
        faults = admission.problems(self._rights, spec, subject_of(app))
        if spec.user is None and not self._pooled:
            requested = spec
            spec, more = admission.with_own_user(self._rights, requested, subject_of(app))
            faults += [*more, *admission.of_own_user(self._permits, requested, spec)]
        for fault in faults:
            head, slash, rest = fault.path[1:].partition("/")
            details.append(
                Detail(f"{app.id}{_PATHS.get(f'/{head}', fault.path)}{slash}{rest}", (fault.reason,))
            )
        return replace(app, user=spec.user)

    def _queue_faults(self, app: App) -> Iterator[Detail]:
        """Yield a fault if the app names a queue in which the caller may not run jobs.

        The queue of the app's group needs no right.
        """
        named = gpu_options(app).queue
        if named in (DEFAULT_QUEUE, queue_of_app(self._tree, DEFAULT_QUEUE, app.id)):
            return
        job = Subject(self._name, named)
        if not self._rights.may(JOB_RUN, job):
            by_object = app.gpu is not None and app.gpu.queue == named
            place = "gpu/queue" if by_object else "labels/MESOS_GPU_QUEUE"
            yield Detail(f"{app.id}/{place}", (self._rights.missing(JOB_RUN, job),))


def _restored_env(app: App, old: App) -> Mapping[str, str | SecretRef]:
    """Return the environment; a value that was shown as hidden, and comes back so, stays unchanged."""
    return {
        name: old.env[name] if value == HIDDEN and name in old.env else value
        for name, value in app.env.items()
    }


def _shares_values(app: App, old: App) -> bool:
    """Return whether the environment of an app has values of its previous version."""
    return any(name in app.env and app.env[name] == value for name, value in old.env.items())


def _plain_groups(group: Group) -> dict[str, tuple[object, ...]]:
    """Return the fields of groups besides their apps, by id."""

    def walk(group: Group) -> Iterator[tuple[str, tuple[object, ...]]]:
        fields: tuple[object, ...] = group.dependencies, group.enforce_role
        yield group.id, (fields if any(fields) else ())
        for child in group.groups:
            yield from walk(child)

    return dict(walk(group))


def _bare_groups(group: Group) -> frozenset[str]:
    """Return the ids of empty groups: no app's rights apply to them."""
    if not group.apps and not group.groups:
        return frozenset({group.id})
    return frozenset(id for child in group.groups for id in _bare_groups(child))


def _group_refusal(rights: Rights, id: str) -> Refused:
    what = rights.missing(APP_WRITE, Subject(rights.caller.name, app=id))
    return Refused(403, what, remedy=rights.who_can_give())
