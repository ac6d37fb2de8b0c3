"""The routes of Marathon's interface, and the one place where its errors become answers."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mesos_gpu.api.http import note
from mesos_gpu.api.marathon.apps import Apps
from mesos_gpu.api.marathon.asked import Place, place_of
from mesos_gpu.api.marathon.core import Core
from mesos_gpu.api.marathon.deployments import Deployments
from mesos_gpu.api.marathon.errors import Refused, answer_of
from mesos_gpu.api.marathon.events import Events
from mesos_gpu.api.marathon.groups import Groups
from mesos_gpu.api.marathon.queue import Queue
from mesos_gpu.api.marathon.system import System
from mesos_gpu.api.marathon.tasks import Tasks
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.jobs.permits import Permits

Handler = Callable[[Request, Place], Awaitable[Response]]
Verbs = Mapping[str, Handler]  # by method
Serve = Callable[[Request], Awaitable[Response]]
Served = tuple[str, Serve]  # a path, and what answers there
_METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
#: What the ids below a path name.
_KINDS: Final = {
    "/v2/apps": "app",
    "/v2/groups": "group",
    "/v2/deployments": "deployment",
    "/v2/queue": "app",
}
_ALL, _ONE, _ITEM = "all", "one", "/item"  # kinds of path: the collection, one of it, one of what it has


def routes(
    scheduler: SchedulerApi,
    events: Events,
    *,
    permits: Permits,
    service_ports: range,
    webui_url: str,
    version: str,
) -> list[Route]:
    """All of them, to be mounted after those of others: every path below /v2 is answered."""
    core = Core(scheduler, events, permits=permits, service_ports=service_ports)
    system, tasks = System(core, webui_url=webui_url, version=version), Tasks(core)
    deployments, queue = Deployments(core), Queue(core)
    pods = dict.fromkeys(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"], system.pods)
    table = [
        _exact("/ping", {"GET": system.ping}),
        _exact("/v2/info", {"GET": system.info}),
        *_below("/ui", {_ALL: {"GET": system.ui}, _ONE: {"GET": system.ui}}),
        _exact("/v2/plugins", {"GET": system.plugins}),
        _exact("/v2/leader", {"GET": system.leader, "DELETE": system.abdicate}),
        _exact("/v2/events", {"GET": events.stream}),
        *_below("/v2/apps", _of_apps(Apps(core), tasks)),
        *_below("/v2/groups", _of_groups(Groups(core)), of_root=True),
        _exact("/v2/tasks/delete", {"POST": tasks.kill_listed}),
        *_below("/v2/tasks", {_ALL: {"GET": tasks.list}}),
        *_below("/v2/deployments", {_ALL: {"GET": deployments.list}, _ONE: {"DELETE": deployments.delete}}),
        *_below("/v2/queue", {_ALL: {"GET": queue.list}, "delay": {"DELETE": queue.reset_delay}}),
        *_below("/v2/pods", {_ALL: pods, _ONE: pods}),
        *_below("/v2", {}),
    ]
    return [Route(path, _led(serve, webui_url), methods=_METHODS) for path, serve in table]


def _of_apps(apps: Apps, tasks: Tasks) -> Mapping[str, Verbs]:
    return {
        _ALL: {"GET": apps.list, "POST": apps.create, "PUT": apps.put_all, "PATCH": apps.patch_all},
        _ONE: {"GET": apps.show, "PUT": apps.put, "PATCH": apps.patch, "DELETE": apps.delete},
        "*": {"GET": apps.below},
        "restart": {"POST": apps.restart},
        "tasks": {"GET": tasks.of_app, "DELETE": tasks.kill_of_app},
        "tasks" + _ITEM: {"DELETE": tasks.kill_one},
        "versions": {"GET": apps.versions},
        "versions" + _ITEM: {"GET": apps.version},
    }


def _of_groups(groups: Groups) -> Mapping[str, Verbs]:
    one = {
        "GET": groups.show,
        "POST": groups.create,
        "PUT": groups.put,
        "PATCH": groups.patch,
        "DELETE": groups.delete,
    }
    versions = {"GET": groups.versions}
    return {_ALL: one, _ONE: one, "versions": versions, "versions" + _ITEM: {"GET": groups.version}}


def _exact(path: str, verbs: Verbs) -> Served:

    def find(_: Request) -> tuple[Place, Verbs]:
        note.at(path)
        return Place("/"), verbs

    return _route(path, find)


def _below(prefix: str, kinds: Mapping[str, Verbs], *, of_root: bool = False) -> list[Served]:
    """A collection and what is in it. Ids have slashes, so the router cannot tell the parts of a path."""
    words = {kind: kind + _ITEM in kinds for kind in kinds if kind not in (_ALL, _ONE) and "/" not in kind}

    def find(request: Request) -> tuple[Place, Verbs]:
        place = place_of(request.path_params.get("path", ""), words, of_root=of_root)
        kind = place.verb + (_ITEM if place.item else "") if place.verb else _ONE
        if place == Place("/"):
            kind = _ALL
        _note(prefix, place, kind)
        return place, kinds.get(kind, {})

    return [_route(prefix, find), _route(prefix + "/{path:path}", find)]


def _note(prefix: str, place: Place, kind: str) -> None:
    """What the path says that a request is about."""
    verb = f"/{place.verb}" if place.verb else ""
    note.at(prefix if kind == _ALL else f"{prefix}/{{id}}{verb}{'/{item}' if place.item else ''}")
    named = _KINDS.get(prefix)
    if named and kind != _ALL:
        note.about(named, place.id.removeprefix("/") if named == "deployment" else place.id)


def _route(path: str, find: Callable[[Request], tuple[Place, Verbs]]) -> Served:
    async def serve(request: Request) -> Response:
        try:
            place, verbs = find(request)
            return await _handler(request.method, verbs)(request, place)
        except MesosGpuError as error:
            return answer_of(error)

    return path, serve


def _led(serve: Serve, leader_url: str) -> Serve:
    """Every answer says who leads: clients of several schedulers go on there."""

    async def marked(request: Request) -> Response:
        response = await serve(request)
        response.headers["X-Marathon-Leader"] = leader_url
        return response

    return marked


def _handler(method: str, verbs: Verbs) -> Handler:
    handler = verbs.get(method) or (verbs.get("GET") if method == "HEAD" else None)
    if handler is not None:
        return handler
    if not verbs:
        raise Refused(404, "HTTP 404 Not Found")
    allow = {
        "Allow": ", ".join([*verbs, *(["HEAD"] if "GET" in verbs and "HEAD" not in verbs else []), "OPTIONS"])
    }
    if method != "OPTIONS":
        raise Refused(405, "HTTP 405 Method Not Allowed", headers=allow)

    async def say(_request: Request, _place: Place) -> Response:
        return Response(headers=allow)

    return say
