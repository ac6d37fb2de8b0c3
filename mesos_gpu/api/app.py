"""The REST interface: docs/reference/rest.md as routes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mesos_gpu.api import views
from mesos_gpu.api.changes import Changes
from mesos_gpu.api.guard import Guard
from mesos_gpu.api.logs import MOST, LogReader
from mesos_gpu.api.service import Service, View
from mesos_gpu.errors import Conflict, MesosGpuError, NotFound
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.job import Job, JobState
from mesos_gpu.model.task import Task
from mesos_gpu.wire.jobs import BadJson, Problem, decode

T = TypeVar("T")
MOST_BODY: Final = 1 << 20
MOST_WAIT_S: Final = 60.0
_CODES: Final = {404: "not-found", 405: "method", 409: "conflict", 503: "unavailable"}
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
    default_user: str | None = None
    allow_root: bool = False


class Problems(MesosGpuError):
    """A request that is wrong in one or more places."""

    http_status = 422

    def __init__(self, problems: list[Problem]) -> None:
        """All of them at once."""
        super().__init__("the request is not valid", remedy="mend every problem that is listed")
        self.problems = problems


class BadRequest(MesosGpuError):
    """A request that cannot be read at all."""

    def __init__(self, status: int, code: str, what: str, remedy: str) -> None:
        """`code`: the interface's word for it."""
        super().__init__(what, remedy=remedy)
        self.http_status, self.code = status, code


class Ambiguous(Conflict):
    """A prefix of several ids."""

    code = "ambiguous"


class NotStarted(Conflict):
    """There is no output before the first launch."""

    code = "not-started"


def create_app(service: Service, settings: ApiSettings) -> Starlette:
    """The application over a scheduler."""
    api = _Api(service, settings)
    routes = [
        Route("/v1/jobs", api.list_jobs, methods=["GET"]),
        Route("/v1/jobs", api.submit, methods=["POST"]),
        Route("/v1/jobs/{id}", api.show_job, methods=["GET"]),
        Route("/v1/jobs/{id}", api.kill_job, methods=["DELETE"]),
        Route("/v1/jobs/{id}/tasks", api.job_tasks),
        Route("/v1/jobs/{id}/logs", api.job_logs),
        Route("/v1/why/{id}", api.why),
        Route("/v1/gpus", api.gpus),
        Route("/v1/nodes", api.nodes),
        Route("/v1/tasks", api.tasks),
        Route("/v1/status", api.status),
        Route("/v1/health", api.health),
        Route("/", api.page),
        Route("/static/{name}", api.page),
    ]
    app = Starlette(
        routes=routes,
        lifespan=api.lifespan,
        exception_handlers={MesosGpuError: _on_error, 404: _on_http, 405: _on_http},
    )
    app.add_middleware(Guard)
    return app


class _Api:
    """The routes' functions."""

    def __init__(self, service: Service, settings: ApiSettings) -> None:
        self._service, self._settings = service, settings
        self._changes = Changes()
        self._logs = LogReader()

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Listen for changes while the server runs."""
        self._changes.bind(asyncio.get_running_loop())
        unlisten = self._service.listen(self._changes.on_change)
        try:
            yield
        finally:
            unlisten()
            self._changes.close()
            self._logs.close()

    async def _read(self, fn: Callable[[View], T]) -> T:
        return await _of(self._service.read(fn))

    # --- jobs

    async def submit(self, request: Request) -> Response:
        """POST /v1/jobs."""
        try:
            spec = decode(await _body(request), allow_root=self._settings.allow_root)
        except BadJson as error:
            raise BadRequest(400, "bad-json", str(error), "send one JSON object") from error
        if isinstance(spec, list):
            raise Problems(spec)
        job = await _of(self._service.submit(spec))
        body = await self._read(lambda view: views.job(view, view.jobs.get(job.id, job)))
        return _json(body, 201, {"Location": f"/v1/jobs/{job.id}"})

    async def list_jobs(self, request: Request) -> Response:
        """GET /v1/jobs."""
        query = request.query_params
        states, labels = set(query.getlist("state")), query.getlist("label")
        unknown = states - {state.value for state in JobState} - {"active"}
        if unknown:
            known = ", ".join(["active", *(state.value for state in JobState)])
            raise Problems([Problem("/state", f"{sorted(unknown)[0]!r} is no state; there are {known}")])
        limit = _integer(request, "limit", 1000, 1, 1_000_000)
        name = query.get("name", "")

        def select(view: View) -> list[dict[str, Any]]:
            found = []
            for job in reversed(view.jobs.values()):  # type: ignore[call-overload]
                if _matches(job, states, labels, name):
                    found.append(views.job(view, job))
                    if len(found) >= limit:
                        break
            return found

        return _json({"jobs": await self._read(select)})

    async def show_job(self, request: Request) -> Response:
        """GET /v1/jobs/{id}, waiting for a change if asked to."""
        job_id = await self._job_id(request)
        if "after_version" in request.query_params:
            seen = _integer(request, "after_version", 0, 0, 1 << 62)
            wait_s = _number(request, "timeout_s", 30.0, 0.0, MOST_WAIT_S)
            await self._changes.wait(job_id, seen, wait_s, lambda: self._version(job_id))
        return _json(await self._job(job_id))

    async def _version(self, job_id: JobId) -> int:
        return await self._read(lambda view: _known(view, job_id).version)

    async def _job(self, job_id: JobId) -> dict[str, Any]:
        return await self._read(lambda view: views.job(view, _known(view, job_id)))

    async def kill_job(self, request: Request) -> Response:
        """DELETE /v1/jobs/{id}."""
        job_id = await self._job_id(request)
        ended = await self._read(lambda view: _known(view, job_id).state.ended)
        await _of(self._service.kill(job_id))
        return _json(await self._job(job_id), 200 if ended else 202)

    async def job_tasks(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/tasks."""
        job_id = await self._job_id(request)
        return _json(
            {"tasks": await self._read(lambda view: [views.task(view, t) for t in view.tasks_of(job_id)])}
        )

    async def job_logs(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/logs."""
        job_id = await self._job_id(request)
        stream = request.query_params.get("stream", "stdout")
        if stream not in ("stdout", "stderr"):
            raise Problems([Problem("/stream", f"must be stdout or stderr, got {stream!r}")])
        offset = _integer(request, "offset", 0, -(1 << 62), 1 << 62)
        length = _integer(request, "length", 65536, 1, MOST)
        task, framework_id = await self._read(
            lambda view: (_launch(view, job_id, request.query_params.get("task_id")), view.framework_id or "")
        )
        chunk = await run_in_threadpool(
            self._logs.read, task, framework_id, stream, offset, length, last=task.ended
        )
        return _json(
            {"data": chunk.data, "offset": chunk.offset, "next_offset": chunk.next_offset, "task_id": task.id}
        )

    async def why(self, request: Request) -> Response:
        """GET /v1/why/{id}."""
        job_id = await self._job_id(request)
        return _json(views.why(await self._read(lambda view: view.explain(job_id))))

    async def _job_id(self, request: Request) -> JobId:
        wanted = request.path_params["id"]
        return await self._read(lambda view: _resolve(view, wanted))

    # --- the cluster

    async def gpus(self, _request: Request) -> Response:
        """GET /v1/gpus."""
        found = await self._read(
            lambda view: [views.gpu(view, node, g) for node in view.nodes.values() for g in node.gpus]
        )
        return _json({"gpus": sorted(found, key=lambda g: (g["hostname"], g["minor"]))})

    async def nodes(self, _request: Request) -> Response:
        """GET /v1/nodes."""
        found = await self._read(lambda view: [views.node(view, node) for node in view.nodes.values()])
        return _json({"nodes": sorted(found, key=lambda n: (n["hostname"], n["agent_id"]))})

    async def tasks(self, _request: Request) -> Response:
        """GET /v1/tasks."""
        found = await self._read(
            lambda view: [views.task(view, task) for task in view.tasks.values() if not task.ended]
        )
        return _json({"tasks": found})

    async def status(self, _request: Request) -> Response:
        """GET /v1/status."""
        settings = self._settings
        return _json(await self._read(lambda view: views.status(view, settings.webui_url, settings.version)))

    async def health(self, _request: Request) -> Response:
        """GET /v1/health: 503 while the master is not connected."""
        connected = await self._read(lambda view: view.connected)
        return _json({"ok": connected, "connected": connected}, 200 if connected else 503)

    async def page(self, request: Request) -> Response:
        """The dashboard's files."""
        name = request.path_params.get("name", "index.html")
        if name not in _PAGE:
            raise NotFound(
                f"there is no {request.url.path}", remedy="see docs/reference/rest.md for the routes"
            )
        body = files("mesos_gpu.web").joinpath(name).read_bytes()
        return Response(body, media_type=_PAGE[name], headers={"Cache-Control": "no-cache"})


async def _of(future: Future[T]) -> T:
    return await asyncio.wrap_future(future)


async def _body(request: Request) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MOST_BODY:
            raise BadRequest(413, "too-large", f"the body is larger than {MOST_BODY} bytes", "send less")
        chunks.append(chunk)
    return b"".join(chunks)


def _known(view: View, job_id: JobId) -> Job:
    job = view.jobs.get(job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id}", remedy="list the jobs with: mesos-gpu ps --all")
    return job


def _resolve(view: View, wanted: str) -> JobId:
    if JobId(wanted) in view.jobs:
        return JobId(wanted)
    found = [job_id for job_id in view.jobs if job_id.startswith(wanted)]
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (" …" if len(found) > 5 else "")
        raise Ambiguous(f"{wanted} is the start of {len(found)} ids: {shown}", remedy="write more of it")
    if not found:
        raise NotFound(f"there is no job {wanted}", remedy="list the jobs with: mesos-gpu ps --all")
    return found[0]


def _launch(view: View, job_id: JobId, wanted: str | None) -> Task:
    launches = view.tasks_of(job_id)
    if wanted is not None:
        launches = [task for task in launches if task.id == wanted]
        if not launches:
            raise NotFound(
                f"job {job_id} has no launch {wanted}", remedy="see its tasks at /v1/jobs/ID/tasks"
            )
    if not launches:
        raise NotStarted(f"job {job_id} has not been launched yet", remedy=f"see: mesos-gpu why {job_id}")
    return launches[-1]


def _matches(job: Job, states: set[str], labels: list[str], name: str) -> bool:
    if states and job.state.value not in states and not ("active" in states and not job.state.ended):
        return False
    if name not in job.spec.name:
        return False
    for label in labels:
        key, equals, value = label.partition("=")
        if key not in job.spec.labels or (equals and job.spec.labels[key] != value):
            return False
    return True


def _integer(request: Request, name: str, default: int, least: int, most: int) -> int:
    text = request.query_params.get(name)
    try:
        value = default if text is None else int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise Problems([Problem(f"/{name}", f"must be an integer from {least} to {most}, got {text!r}")])
    return value


def _number(request: Request, name: str, default: float, least: float, most: float) -> float:
    text = request.query_params.get(name)
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise Problems([Problem(f"/{name}", f"must be a number from {least:g} to {most:g}, got {text!r}")])
    return value


def _json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return Response(text, status, headers=dict(headers or {}), media_type="application/json")


def error_response(
    status: int, code: str, message: str, remedy: str, problems: list[Problem] | None = None
) -> Response:
    """The one shape of an error."""
    error: dict[str, Any] = {"code": code, "message": message, "remedy": remedy}
    if problems is not None:
        error["problems"] = [{"path": p.path, "reason": p.reason} for p in problems]
    return _json({"error": error}, status)


async def _on_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, MesosGpuError)
    if isinstance(error, Problems):
        return error_response(422, "invalid", error.what, error.remedy, error.problems)
    code = getattr(error, "code", None) or _CODES.get(error.http_status, "failed")
    status = 503 if error.http_status == 500 else error.http_status  # the scheduler is stopping
    return error_response(status, code if status != 503 else "unavailable", error.what, error.remedy)


async def _on_http(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    what = f"{request.method} {request.url.path}: " + ("no such route" if status == 404 else "not allowed")
    return error_response(status, _CODES[status], what, "see docs/reference/rest.md for the routes")
