"""The REST interface: docs/reference/rest.md as routes."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from typing import Final, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mesos_gpu.api import openapi
from mesos_gpu.api.http import requests as asked
from mesos_gpu.api.http.answers import Refusal, bad_json, invalid, json_answer, on_defect, on_known, on_route
from mesos_gpu.api.http.audit import Audit
from mesos_gpu.api.http.guard import Guard, may_see_env
from mesos_gpu.api.http.requests import body_of, job_of, launch_of, result_of
from mesos_gpu.api.marathon.events import Events
from mesos_gpu.api.marathon.routes import routes
from mesos_gpu.api.scheduler_api import SchedulerApi, View, most_for_shares
from mesos_gpu.api.spec import shapes
from mesos_gpu.api.v1 import views
from mesos_gpu.api.v1.changes import Changes
from mesos_gpu.api.v1.listing import Listing
from mesos_gpu.api.v1.logs import BASE64, ENCODINGS, Chunk, LogReader
from mesos_gpu.api.v1.operate import Operate
from mesos_gpu.api.v1.plan import Plans
from mesos_gpu.api.v1.resizes import Resizes
from mesos_gpu.api.v1.services import ServiceHandlers
from mesos_gpu.api.v1.unknown import UnknownTasks
from mesos_gpu.errors import MesosGpuError, NotFound
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Engine, Job, JobSpec
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.wire.checking import BadJson, Problem
from mesos_gpu.wire.jobs import decode

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]
SERVICE_PORTS: Final = range(10000, 20001)  # as Marathon's --local_port_min and --local_port_max
_PAGE: Final = {
    "index.html": "text/html",
    "style.css": "text/css",
    "app.js": "text/javascript",
    "favicon.svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """What an operator may set."""

    webui_url: str
    version: str
    host_names: tuple[str, ...] = ()  # by which clients may call this host, beside its addresses
    permits: Permits = field(default_factory=Permits)
    agent_authorization: str = field(default="", repr=False)  # the header that agents want, to read logs
    container_engine: Engine = Engine.MESOS  # of jobs whose image comes without one
    service_ports: range = SERVICE_PORTS  # those that apps get that leave theirs open


def create_app(scheduler: SchedulerApi, settings: ApiSettings) -> Starlette:
    """The application over a scheduler."""
    api, operate, plans = _Api(scheduler, settings), Operate(scheduler), Plans(scheduler)
    resizes = Resizes(scheduler, api.changes)
    services, events, unknown = ServiceHandlers(scheduler), Events(scheduler), UnknownTasks(scheduler)
    app = Starlette(
        routes=[
            _route("/v1/jobs", GET=api.list_jobs, POST=api.submit),
            _route("/v1/jobs/{id}", GET=api.show_job, PATCH=resizes.resize, DELETE=api.kill_job),
            _route("/v1/jobs/{id}/resize", DELETE=resizes.withdraw),
            _route("/v1/jobs/{id}/tasks", GET=api.job_tasks),
            _route("/v1/jobs/{id}/logs", GET=api.job_logs),
            _route("/v1/why/{id}", GET=api.why),
            _route("/v1/queue", GET=api.queue),
            _route("/v1/plan/defrag", POST=plans.for_request),
            _route("/v1/plan/defrag/{id}", GET=plans.for_job),
            _route("/v1/gpus", GET=operate.gpus),
            _route("/v1/gpus/{id}", GET=operate.gpu),
            _route("/v1/gpus/{id}/drain", POST=operate.drain_gpu, DELETE=operate.undrain_gpu),
            _route("/v1/gpus/{id}/reset", POST=operate.reset_gpu),
            _route("/v1/nodes", GET=operate.nodes),
            _route("/v1/nodes/{id}/drain", POST=operate.drain_node, DELETE=operate.undrain_node),
            _route("/v1/services", GET=services.list),
            _route("/v1/services/{name}", GET=services.show, PUT=services.put, DELETE=services.delete),
            _route("/v1/tasks", GET=api.tasks),
            _route("/v1/tasks/unknown", GET=unknown.list),
            _route("/v1/tasks/unknown/{id}", DELETE=unknown.kill),
            _route("/v1/tasks/unknown/{id}/adopt", POST=unknown.adopt),
            _route("/v1/status", GET=api.status),
            _route("/v1/health", GET=api.health),
            _route("/v1/openapi.json", GET=api.openapi),
            _route("/metrics", GET=operate.metrics),
            _route("/metrics/prometheus", GET=operate.prometheus),
            _route("/", GET=api.page),
            _route("/static/{name}", GET=api.page),
            *routes(
                scheduler,
                events,
                service_ports=settings.service_ports,
                permits=settings.permits,
                webui_url=settings.webui_url,
                version=settings.version,
            ),
        ],
        middleware=[Middleware(Audit), Middleware(Guard, names=settings.host_names)],
        lifespan=api.lifespan,
        exception_handlers={MesosGpuError: on_known, 404: on_route, 405: on_route, Exception: on_defect},
    )
    app.state.changes, app.state.events = api.changes, events
    return app


def _route(path: str, **verbs: Handler) -> Route:
    """Make a route for all verbs of a path: with one for each verb, Starlette would answer 405 with the first's
    verbs alone."""

    async def serve(request: Request) -> Response:
        return await verbs["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, serve, methods=list(verbs))


class _Api:
    """The routes' functions."""

    def __init__(self, scheduler: SchedulerApi, settings: ApiSettings) -> None:
        self._scheduler, self._settings = scheduler, settings
        self.changes = Changes()
        self._logs = LogReader(settings.agent_authorization)

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Listen for changes while the server runs."""
        self.changes.bind(asyncio.get_running_loop())
        unlisten = self._scheduler.listen(self.changes.on_change)
        try:
            yield
        finally:
            unlisten()
            self.changes.close()
            self._logs.close()

    async def _read(self, fn: Callable[[View], T]) -> T:
        return await result_of(self._scheduler.read(fn))

    # --- jobs

    async def submit(self, request: Request) -> Response:
        """POST /v1/jobs."""
        body = await body_of(request)
        spec = self._decoded(body)
        if isinstance(spec, list) or (spec.is_share and spec.gpu_model):
            spec = self._decoded(body, await self._read(most_for_shares))
        if isinstance(spec, list):
            raise invalid(*spec)
        job = await result_of(self._scheduler.submit(spec))
        answer = await self._read(lambda view: views.job(view, view.jobs.get(job.id, job)))
        return json_answer(answer, 201, {"Location": f"/v1/jobs/{job.id}"})

    def _decoded(self, body: bytes, most_mib: Mapping[str, int] | None = None) -> JobSpec | list[Problem]:
        """What a body asks for; `most_mib`: as of `decode`."""
        permits, engine = self._settings.permits, self._settings.container_engine
        try:
            return decode(body, permits=permits, engine=engine, most_mib=most_mib or {})
        except BadJson as error:
            raise bad_json(error) from error

    async def list_jobs(self, request: Request) -> Response:
        """GET /v1/jobs."""
        return json_answer(await self._read(Listing.of(request).select))

    async def show_job(self, request: Request) -> Response:
        """GET /v1/jobs/{id}, waiting for a change if asked to."""
        show_env = asked.SHOW_ENV.of(request) and may_see_env(request)
        job_id, version = await self._about(request, lambda _, job: (job.id, job.version))
        seen, wait_s = int(asked.AFTER_VERSION.of(request)), asked.WAIT_S.of(request)
        if asked.AFTER_VERSION.name in request.query_params and version <= seen:
            await self.changes.wait(job_id, seen, wait_s, lambda: self._version(job_id))
        return json_answer(await self._about(request, partial(views.job, show_env=show_env)))

    async def _version(self, job_id: JobId) -> int:
        return await self._read(lambda view: job_of(view, job_id).version)

    async def kill_job(self, request: Request) -> Response:
        """DELETE /v1/jobs/{id}."""
        wanted = request.path_params["id"]
        job_id, ended = await self._about(request, lambda view, job: _killed(view, job, wanted))
        job = await result_of(self._scheduler.kill(job_id))
        body = await self._read(lambda view: views.job(view, view.jobs.get(job_id, job)))
        return json_answer(body, 200 if ended else 202)

    async def job_tasks(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/tasks."""
        tasks = await self._about(
            request, lambda view, job: [views.task(view, task) for task in view.tasks_of(job.id)]
        )
        return json_answer({"tasks": tasks})

    async def job_logs(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/logs."""
        stream = request.query_params.get("stream", "stdout")
        if stream not in ("stdout", "stderr"):
            raise invalid(Problem("/stream", f"must be stdout or stderr, got {stream!r}"))
        offset, length = int(asked.OFFSET.of(request)), int(asked.LENGTH.of(request))
        encoding = request.query_params.get("encoding", ENCODINGS[0])
        if encoding not in ENCODINGS:
            raise invalid(Problem("/encoding", f"must be {' or '.join(ENCODINGS)}, got {encoding!r}"))
        wanted = request.query_params.get("task_id")
        task, framework_id = await self._about(
            request,
            lambda view, job: (
                _launch(view, job.id, wanted or launch_of(view, request.path_params["id"])),
                view.framework_id or "",
            ),
        )
        where = task, framework_id, stream, offset, length
        if encoding == BASE64:
            begin, raw, _, cut = await run_in_threadpool(self._logs.read_bytes, *where)
            chunk = Chunk(b64encode(cut.encode() + raw).decode(), begin, begin + len(raw))
        else:
            chunk = await run_in_threadpool(self._logs.read, *where)
        return json_answer(
            {"data": chunk.data, "offset": chunk.offset, "next_offset": chunk.next_offset, "task_id": task.id}
        )

    async def why(self, request: Request) -> Response:
        """GET /v1/why/{id}."""
        return json_answer(views.why(await self._about(request, lambda view, job: view.explain(job.id))))

    async def queue(self, request: Request) -> Response:
        """GET /v1/queue."""
        most = int(asked.MOST_QUEUED.of(request))

        def select(view: View) -> shapes.Queue:
            return {
                "jobs": [views.waiting(each) for each in view.waiting(most)],
                "queues": [views.queue(use) for use in view.queues()],
            }

        return json_answer(await self._read(select))

    async def _about(self, request: Request, fn: Callable[[View, Job], T]) -> T:
        """Read something of the job that the path names."""
        wanted = request.path_params["id"]
        return await self._read(lambda view: fn(view, job_of(view, wanted)))

    # --- the cluster

    async def tasks(self, _request: Request) -> Response:
        """GET /v1/tasks."""
        live = await self._read(
            lambda view: [views.task(view, task) for task in view.tasks.values() if not task.ended]
        )
        return json_answer({"tasks": live})

    async def status(self, _request: Request) -> Response:
        """GET /v1/status."""
        settings = self._settings
        return json_answer(
            await self._read(lambda view: views.status(view, settings.webui_url, settings.version))
        )

    async def health(self, _request: Request) -> Response:
        """GET /v1/health: 503 while the master is not connected."""
        connected = await self._read(lambda view: view.connected)
        return json_answer({"ok": connected, "connected": connected}, 200 if connected else 503)

    async def openapi(self, _request: Request) -> Response:
        """GET /v1/openapi.json."""
        return json_answer(await run_in_threadpool(openapi.document))

    async def page(self, request: Request) -> Response:
        """The dashboard's files."""
        name = request.path_params.get("name", "index.html")
        if name not in _PAGE:
            raise NotFound(f"there is no /static/{name}", remedy="see docs/reference/rest.md for the routes")
        body = files("mesos_gpu.web").joinpath(name).read_bytes()
        return Response(body, media_type=_PAGE[name], headers={"Cache-Control": "no-cache"})


def _killed(view: View, job: Job, wanted: str) -> tuple[JobId, bool]:
    """What is killed is named as a job: a launch that has ended must not take the next one with it."""
    if launch_of(view, wanted) is not None and not job.id.startswith(wanted):
        what = f"{wanted} is a launch of job {job.id}"
        raise Refusal(409, "not-a-job", what, remedy=f"end the job: mesos-gpu kill {job.id}")
    return job.id, job.state.ended


def _launch(view: View, job_id: JobId, wanted: str | None) -> Task:
    launches = view.tasks_of(job_id)
    if wanted is not None:
        launches = [task for task in launches if task.id == wanted]
        if not launches:
            raise NotFound(
                f"job {job_id} has no launch {wanted}", remedy="see its tasks at /v1/jobs/ID/tasks"
            )
    if not launches:
        what = f"job {job_id} has not been launched yet"
        raise Refusal(409, "not-started", what, remedy=f"see: mesos-gpu why {job_id}")
    latest = view.jobs[job_id].task_id
    return next((task for task in launches if task.id == latest), launches[-1])
