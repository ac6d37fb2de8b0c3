"""Functions for all routes below /v2: reading, changing apps, and answering changes."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.decide import Rights
from mesos_gpu.api.asking import apps_change
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import json_answer
from mesos_gpu.api.http.requests import in_turn, result_of
from mesos_gpu.api.http.rights import rights_of
from mesos_gpu.api.marathon import tree, views
from mesos_gpu.api.marathon.asked import embeds
from mesos_gpu.api.marathon.errors import Refused, all_refused, not_valid
from mesos_gpu.api.marathon.events import Events, client_of
from mesos_gpu.api.marathon.rights.consent import Consent
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.api.sight.apps import AppSight
from mesos_gpu.api.sight.queues import told_of
from mesos_gpu.engine.reading.apps import check_apps
from mesos_gpu.engine.reading.nodes import largest_for_shares, missing_models
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import MesosGpuError, NotAccepted, Unavailable
from mesos_gpu.model.apps.app import App, Group, same_but_scale
from mesos_gpu.model.apps.app_event import AppPosted, DeploymentMoved, Stage
from mesos_gpu.model.apps.catalog import Deployment
from mesos_gpu.model.apps.rollout import Plan, VersionInfo
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.policy.apps.rollout.plan import plan
from mesos_gpu.policy.apps.rollout.service_ports import service_ports_given
from mesos_gpu.policy.apps.workload import unsupported
from mesos_gpu.policy.tenancy.tree import Tree
from mesos_gpu.wire.image import problem
from mesos_gpu.wire.marathon.moments import stamp
from mesos_gpu.wire.marathon.options import asked_of, gpu_options
from mesos_gpu.wire.marathon.problems import Detail, Report
from mesos_gpu.wire.marathon.rules import Allowed, report_others
from mesos_gpu.wire.shares import OF_APPS, share_problems

T = TypeVar("T")
Json = list[dict[str, Any]]
DEPLOYMENT_ID: Final = "Marathon-Deployment-Id"
MAX_INSTANCES: Final = 20_000  # of all apps together
_ATTEMPTS: Final = 50  # an attempt fails only if another change came first
_NO_KILL: Final[Mapping[str, tuple[str, ...]]] = {}


class AppChanges:
    """Reads the state, and changes the tree of apps: checks rights, validates, repeats on races, begins deployments."""

    def __init__(self, scheduler: SchedulerApi, events: Events, settings: ApiSettings) -> None:
        self.scheduler, self.events, self._settings = scheduler, events, settings

    def allowed(self, root: Group) -> Allowed:
        """Return the limits on definitions while `root` is the tree of apps.

        Reading a definition with it may wait for the engine: do not do so on the event loop.
        """
        permits = self._settings.permits
        return Allowed(
            secrets=permits.secrets,
            default_network=next(iter(permits.host_networks), None),
            also=lambda app: self._obstacles(app, root),
        )

    async def read(self, fn: Callable[[View], T]) -> T:
        """Call `fn` with the state on the engine's thread, and return its result."""
        return await result_of(self.scheduler.read(fn))

    async def read_copy(self, fn: Callable[[View], T]) -> T:
        """Call `fn` with a copy of the state on another thread than the engine's, and return its result."""
        return await result_of(self.scheduler.read_copy(fn))

    def _consent(self, rights: Rights, splits: Sequence[TrafficSplit], queues: Tree) -> Consent:
        pooled = self._settings.has_user_pool
        return Consent(rights, self._settings.permits, pooled=pooled, splits=splits, tree=queues)

    async def change(
        self,
        request: Request,
        target: Callable[[Group], Group],
        *,
        force: bool,
        restarts: frozenset[str] = frozenset(),
        kill: Mapping[str, tuple[str, ...]] = _NO_KILL,
    ) -> Deployment:
        """Begin a deployment for the sender of a request; return one without steps if nothing changes.

        Args:
            target: Function that returns the new tree of apps for the current one; may be called several times.
            force: Whether deployments in progress are overridden.
            restarts: Apps whose instances are all replaced.
            kill: Instances by app that are killed.

        Raises:
            AppLocked: A deployment in progress changes one of the apps.
            BadConfiguration, Refused: The new tree is not valid.
            Refusal: The caller lacks a right.
        """
        rights = rights_of(request)
        for _ in range(_ATTEMPTS):
            base, under_way, splits, queues = await self._seen()
            # Not on the engine's thread: checking a large body takes long, and an error must not end the engine.
            may = self._consent(rights, splits, queues)
            with_owners = partial(may.given, base, restarts=restarts, kills=kill)
            new_tree = await in_turn(
                request, partial(self._wanted, _composed(target, with_owners), base, under_way)
            )
            with suppress(_Outdated), ExitStack() as resources:
                await run_in_threadpool(self._hold_archives, resources, base, new_tree)
                change = self.scheduler.request(
                    apps_change(partial(_if_still, base, new_tree), force=force, restarts=restarts, kill=kill)
                )
                try:
                    deployment = await result_of(change) or self._finished(base, new_tree)
                except NotAccepted as error:
                    raise told_of(rights, error, "the named queue") from None
                _note(deployment)
                return deployment
        raise Refused(503, f"other changes of apps came first {_ATTEMPTS} times", remedy="try again")

    async def _seen(self) -> "_Seen":
        """Return the state on which a change is based."""

        def seen(view: View) -> _Seen:
            deployments, splits = tuple(view.deployments.values()), tuple(view.splits.values())
            return _Seen(view.catalog.root, deployments, splits, view.tree)

        return await self.read(seen)

    def _wanted(
        self, target: Callable[[Group], Group], seen: Group, under_way: Iterable[Deployment]
    ) -> Group:
        """Return the complete tree that `target` makes, with service ports for apps that do not choose theirs."""
        new_tree = target(seen)
        _refuse_too_many(new_tree)
        reserved = (
            port
            for deployment in under_way
            for app in deployment.plan.changed_from
            for port in app.service_ports
        )
        with_ports = service_ports_given(seen, new_tree, self._settings.service_ports, kept=reserved)
        return tree.map_apps(new_tree, lambda app: with_ports.get(app.id, app)) if with_ports else new_tree

    def _hold_archives(self, held: ExitStack, seen: Group, wanted: Group) -> None:
        """Hold the archives of new and changed apps, so that they stay until the change is made.

        Raises:
            Refused: An archive is missing.
        """
        old = {app.id: app for app in seen.all_apps()}
        details: list[Detail] = []
        for app in wanted.all_apps():
            before, archive = old.get(app.id), gpu_options(app).upload
            if archive is None or (before is not None and same_but_scale(before, app)):
                continue
            try:
                if self._settings.uploads is None:
                    raise Unavailable("this scheduler does not store archives", remedy="use fetch or volumes")
                held.enter_context(self._settings.uploads.held(app.owner, archive.removeprefix("sha256:")))
            except MesosGpuError as error:
                details.append(Detail(f"{app.id}/gpu/upload", (f"{error.what}: {error.remedy}",)))
        if details:
            raise not_valid(details)

    def _finished(self, seen: Group, wanted: Group) -> Deployment:
        """Return a finished deployment for a change without effect.

        Marathon makes one as well: clients wait for it or its event.
        """
        deployment = Deployment(str(uuid.uuid4()), time.time(), Plan(seen, wanted, ()))
        self.events.tell(DeploymentMoved(Stage.DONE, deployment))
        return deployment

    async def posted(self, request: Request, ids: Sequence[str]) -> None:
        """Inform listeners that the definitions of these apps were accepted."""
        if not self.events.heard:
            return

        def definitions(view: View) -> list[tuple[App, VersionInfo]]:
            apps = {app.id: app for app in view.catalog.root.all_apps()}
            return [(apps[id], view.catalog.versions[id]) for id in ids if id in apps]

        for app, info in await self.read(definitions):
            self.events.tell(AppPosted(client_of(request), request.url.path, app, info))

    async def preview(self, request: Request, target: Callable[[Group], Group]) -> dict[str, Json]:
        """Return what a change would do.

        The result has its `steps`, its `changes` (each changed app before and after) and `warnings`.

        Raises:
            BadConfiguration, Refused, TooMuch: The change is not possible.
        """
        base, under_way, splits, queues = await self._seen()
        rights = rights_of(request)
        may = self._consent(rights, splits, queues)
        sight = AppSight(rights)

        def foreseen() -> dict[str, Json]:
            new_tree = self._wanted(lambda root: may.given(base, target(root)), base, under_way)
            steps_plan = plan(base, new_tree)
            self.scheduler.read(lambda view: check_apps(view, steps_plan)).result()
            missing = self.scheduler.read(partial(_missing, _models_of(new_tree))).result()
            before, after = sight.tree(base), sight.tree(new_tree)
            return {
                "steps": views.steps_json(sight.actions(steps_plan.steps)),
                "changes": views.changes_json(before, after),
                "warnings": views.warnings_json(before, after, missing),
            }

        try:
            return await in_turn(request, foreseen)
        except NotAccepted as error:
            raise told_of(rights, error, "the named queue") from None

    async def warnings(self, request: Request, deployment: Deployment) -> dict[str, Json]:
        """Return the `warnings` of a change if its request has `embed=warnings`, an extension to Marathon; else {}."""
        if views.WARNINGS not in embeds(request):
            return {}
        before, after = deployment.plan.original, deployment.plan.target
        missing = await self.read(partial(_missing, _models_of(after)))
        return {views.WARNINGS: views.warnings_json(before, after, missing)}

    def check(self, place: str, app: App, root: Group) -> None:
        """Refuse an earlier version of an app that cannot run here any more; see `_obstacles`.

        Args:
            place: Path of the app in the request, as "(0)".
            app: App as it was in that version.
            root: Tree of all apps.

        Raises:
            Refused: Something prevents it from running; lists all of it.
        """
        report = Report()
        report_others(report, self._obstacles(app, root))
        if (problems := report.problems()) is not None:
            raise all_refused([(place, problems)])

    def _obstacles(self, app: App, root: Group) -> Iterator[tuple[str, str]]:
        """Yield the fields that prevent an app from running, named as in `Unsupported`, with reasons.

        The largest GPU changes with the nodes: an app is only refused for asking more than that if the app of the tree
        at `root` did not ask for it before, so that existing apps can still be scaled.
        """
        for fault in unsupported(app, gpu_options(app), permits=self._settings.permits):
            yield fault.field, fault.why
        docker = app.container.docker if app.container else None
        if docker and (wrong := problem(docker.image)) is not None:
            yield "container.docker.image", wrong
        spec = asked_of(app)
        if spec.is_share and spec.gpu_model and _requests_more(app, root):
            # Requests that exceed every GPU of the named models.
            most_mib = self.scheduler.read(largest_for_shares).result()
            known_faults = {name for name, _ in share_problems(spec, OF_APPS)}
            for name, why in share_problems(spec, OF_APPS, most_mib=most_mib):
                if name not in known_faults:
                    yield OF_APPS[name], why


def _requests_more(app: App, root: Group) -> bool:
    """Return whether an app requests other resources than the app of that id in the tree."""
    before = tree.app_at(root, app.id)
    return before is None or asked_of(before) != asked_of(app)


def _refuse_too_many(root: Group) -> None:
    """Check the total number of instances.

    Each waiting instance is a job in memory: a typing error must not fill it.
    """
    count = sum(app.instances for app in root.all_apps())
    if count > MAX_INSTANCES:
        why = f"all apps together would have {count} instances, more than the maximum of {MAX_INSTANCES}"
        raise not_valid([Detail("/instances", (why,))])


def _note(made: Deployment) -> None:
    note.about("deployment", made.id)
    for id in sorted(made.plan.affected):
        note.about("app", id)


def _composed(target: Callable[[Group], Group], given: Callable[[Group], Group]) -> Callable[[Group], Group]:
    return lambda root: given(target(root))


class _Seen(NamedTuple):
    """The state on which a change is based."""

    root: Group
    under_way: tuple[Deployment, ...]
    splits: tuple[TrafficSplit, ...]
    queues: Tree


class _Outdated(MesosGpuError):
    """Raised when another change of apps came first."""


def _if_still(seen: Group, wanted: Group, root: Group) -> Group:
    """Return the wanted tree, if the tree is still the one on which the change is based."""
    if root is not seen:
        raise _Outdated("apps were changed meanwhile", remedy="try again")
    return wanted


def result(
    deployment: Deployment | None,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    *,
    more: Mapping[str, Json] | None = None,
) -> Response:
    """Answer a change.

    Args:
        deployment: Deployment of the change; None if the deployment to undo had changed nothing.
        status: HTTP status of the answer.
        headers: Headers of the answer besides Marathon-Deployment-Id.
        more: Further fields of the answer.
    """
    id = deployment.id if deployment else str(uuid.uuid4())
    version = stamp(deployment.version if deployment else time.time())
    body: dict[str, Any] = {"version": version, "deploymentId": id, **(more or {})}
    return json_answer(body, status, {DEPLOYMENT_ID: id, **(headers or {})})


def _models_of(root: Group) -> set[tuple[str, ...]]:
    """Return the lists of models that apps with GPUs name."""
    return {gpu_options(app).models for app in root.all_apps() if app.gpus}


def _missing(models: Iterable[tuple[str, ...]], view: View) -> dict[tuple[str, ...], str]:
    """Return messages about models that no node has, by the models that apps name."""
    return {names: why for names in models if (why := missing_models(view, names))}
