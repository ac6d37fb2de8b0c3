"""What all routes below /v2 share: reading, changing, and the answer to a change."""

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
_ATTEMPTS: Final = 50  # each one fails only because another change was made
_NO_KILL: Final[Mapping[str, tuple[str, ...]]] = {}


class Core:
    """The scheduler, as the routes use it."""

    def __init__(self, scheduler: SchedulerApi, events: Events, settings: ApiSettings) -> None:
        """Serve a scheduler."""
        self.scheduler, self.events, self._settings = scheduler, events, settings

    def allowed(self, root: Group) -> Allowed:
        """Return what definitions may ask for where `root` is the tree of apps.

        To read a definition by it may wait for the engine: not on the thread that answers all requests.
        """
        permits = self._settings.permits
        return Allowed(
            secrets=permits.secrets,
            default_network=next(iter(permits.host_networks), None),
            also=lambda app: self._in_the_way(app, root),
        )

    async def read(self, fn: Callable[[View], T]) -> T:
        """What `fn` finds, on the engine's thread."""
        return await result_of(self.scheduler.read(fn))

    async def read_copy(self, fn: Callable[[View], T]) -> T:
        """Return what `fn` finds in a copy of the state, on another thread than the engine."""
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
        """Begin a deployment for the sender of `request`; one without a step if nothing is to be done. `target` may be
        asked several times.

        Raises:
            AppLocked, BadConfiguration, Refused: It cannot be.
            Refusal: He may not.
        """
        rights = rights_of(request)
        for _ in range(_ATTEMPTS):
            seen, under_way, splits, queues = await self._seen()
            # Not on the engine's thread: to read and check a large body takes long, and a defect must not end it.
            may = self._consent(rights, splits, queues)
            given = partial(may.given, seen, restarts=restarts, kills=kill)
            wanted = await in_turn(request, partial(self._wanted, _both(target, given), seen, under_way))
            with suppress(_Overtaken), ExitStack() as held:
                await run_in_threadpool(self._hold_archives, held, seen, wanted)
                change = self.scheduler.request(
                    apps_change(partial(_if_still, seen, wanted), force=force, restarts=restarts, kill=kill)
                )
                try:
                    made = await result_of(change) or self._over(seen, wanted)
                except NotAccepted as error:
                    raise told_of(rights, error, "what it names") from None
                _note(made)
                return made
        raise Refused(503, "apps change too often at this moment", remedy="try again")

    async def _seen(self) -> "_Seen":
        def seen(view: View) -> _Seen:
            deployments, splits = tuple(view.deployments.values()), tuple(view.splits.values())
            return _Seen(view.catalog.root, deployments, splits, view.tree)

        return await self.read(seen)

    def _wanted(
        self, target: Callable[[Group], Group], seen: Group, under_way: Iterable[Deployment]
    ) -> Group:
        """What `target` makes of the tree, whole: with the service ports that it leaves open."""
        wanted = target(seen)
        _refuse_too_many(wanted)
        kept = (port for each in under_way for app in each.plan.changed_from for port in app.service_ports)
        given = service_ports_given(seen, wanted, self._settings.service_ports, kept=kept)
        return tree.map_apps(wanted, lambda app: given.get(app.id, app)) if given else wanted

    def _hold_archives(self, held: ExitStack, seen: Group, wanted: Group) -> None:
        """See that what comes along with apps that run something else afterwards is there, and stays while it is held.

        Raises:
            Refused: It is not.
        """
        old = {app.id: app for app in seen.all_apps()}
        details: list[Detail] = []
        for app in wanted.all_apps():
            before, said = old.get(app.id), gpu_options(app).upload
            if said is None or (before is not None and same_but_scale(before, app)):
                continue
            try:
                if self._settings.uploads is None:
                    raise Unavailable("this scheduler keeps no archives", remedy="use fetch or volumes")
                held.enter_context(self._settings.uploads.held(app.owner, said.removeprefix("sha256:")))
            except MesosGpuError as error:
                details.append(Detail(f"{app.id}/gpu/upload", (f"{error.what}: {error.remedy}",)))
        if details:
            raise not_valid(details)

    def _over(self, seen: Group, wanted: Group) -> Deployment:
        """Make a deployment where nothing is to be done, as Marathon does: clients wait for its end, or its event."""
        made = Deployment(str(uuid.uuid4()), time.time(), Plan(seen, wanted, ()))
        self.events.tell(DeploymentMoved(Stage.DONE, made))
        return made

    async def posted(self, request: Request, ids: Sequence[str]) -> None:
        """Tell those who listen that these apps' definitions were taken."""
        if not self.events.heard:
            return

        def definitions(view: View) -> list[tuple[App, VersionInfo]]:
            apps = {app.id: app for app in view.catalog.root.all_apps()}
            return [(apps[id], view.catalog.versions[id]) for id in ids if id in apps]

        for app, info in await self.read(definitions):
            self.events.tell(AppPosted(client_of(request), request.url.path, app, info))

    async def preview(self, request: Request, target: Callable[[Group], Group]) -> dict[str, Json]:
        """Return what a change would do: its `steps`, its `changes` (each app that would be another, as it is and as it
        would be) and `warnings`.

        Raises:
            BadConfiguration, Refused, TooMuch: It cannot be.
        """
        seen, under_way, splits, queues = await self._seen()
        rights = rights_of(request)
        may = self._consent(rights, splits, queues)
        sight = AppSight(rights)

        def foreseen() -> dict[str, Json]:
            wanted = self._wanted(lambda root: may.given(seen, target(root)), seen, under_way)
            made = plan(seen, wanted)
            self.scheduler.read(lambda view: check_apps(view, made)).result()
            missing = self.scheduler.read(partial(_missing, _models_of(wanted))).result()
            before, after = sight.tree(seen), sight.tree(wanted)
            return {
                "steps": views.steps_json(sight.actions(made.steps)),
                "changes": views.changes_json(before, after),
                "warnings": views.warnings_json(before, after, missing),
            }

        try:
            return await in_turn(request, foreseen)
        except NotAccepted as error:
            raise told_of(rights, error, "what it names") from None

    async def warnings(self, request: Request, deployment: Deployment) -> dict[str, Json]:
        """Return `warnings` of a change, which is ours, if its request asks for them with `embed=warnings`; else {}."""
        if views.WARNINGS not in embeds(request):
            return {}
        before, after = deployment.plan.original, deployment.plan.target
        missing = await self.read(partial(_missing, _models_of(after)))
        return {views.WARNINGS: views.warnings_json(before, after, missing)}

    def check(self, place: str, app: App, root: Group) -> None:
        """Refuse an earlier version of an app that cannot be run here any more; see `_in_the_way`.

        Args:
            place: Path of the app in the request, as "(0)".
            app: App as it was in that version.
            root: Tree of all apps.

        Raises:
            Refused: With everything that is in the way.
        """
        report = Report()
        report_others(report, self._in_the_way(app, root))
        if (problems := report.problems()) is not None:
            raise all_refused([(place, problems)])

    def _in_the_way(self, app: App, root: Group) -> Iterator[tuple[str, str]]:
        """Yield what stands in the way of running an app: the field, as in `Unsupported`, and why.

        What GPUs are large enough for changes with the nodes: only what an app of the tree at `root` has not asked
        for until now is refused for that, so that what is there can be scaled.
        """
        for each in unsupported(app, gpu_options(app), permits=self._settings.permits):
            yield each.field, each.why
        docker = app.container.docker if app.container else None
        if docker and (wrong := problem(docker.image)) is not None:
            yield "container.docker.image", wrong
        spec = asked_of(app)
        if spec.is_share and spec.gpu_model and _asks_anew(app, root):
            # What no GPU of the models that it names can ever have.
            most_mib = self.scheduler.read(largest_for_shares).result()
            known = {name for name, _ in share_problems(spec, OF_APPS)}
            for name, why in share_problems(spec, OF_APPS, most_mib=most_mib):
                if name not in known:
                    yield OF_APPS[name], why


def _asks_anew(app: App, root: Group) -> bool:
    before = tree.app_at(root, app.id)
    return before is None or asked_of(before) != asked_of(app)


def _refuse_too_many(root: Group) -> None:
    """Each instance that waits is a job that the scheduler keeps: a typing error must not fill its memory."""
    count = sum(app.instances for app in root.all_apps())
    if count > MAX_INSTANCES:
        why = f"all apps together would have {count} instances, more than the {MAX_INSTANCES} that are kept here"
        raise not_valid([Detail("/instances", (why,))])


def _note(made: Deployment) -> None:
    note.about("deployment", made.id)
    for id in sorted(made.plan.affected):
        note.about("app", id)


def _both(target: Callable[[Group], Group], given: Callable[[Group], Group]) -> Callable[[Group], Group]:
    return lambda root: given(target(root))


class _Seen(NamedTuple):
    """What a change begins with."""

    root: Group
    under_way: tuple[Deployment, ...]
    splits: tuple[TrafficSplit, ...]
    queues: Tree


class _Overtaken(MesosGpuError):
    """Somebody else changed apps meanwhile."""


def _if_still(seen: Group, wanted: Group, root: Group) -> Group:
    if root is not seen:
        raise _Overtaken("apps were changed meanwhile", remedy="try again")
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
    """Return what is to be said of models that no node has, by the models that apps name."""
    return {names: why for names in models if (why := missing_models(view, names))}
