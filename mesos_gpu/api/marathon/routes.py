"""Routes of Marathon's interface, and the conversion of their errors to answers."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mesos_gpu.access.rights import APP_SEE, APP_WRITE, CLUSTER_LEAD
from mesos_gpu.api.http import note
from mesos_gpu.api.http.requests import large_bodies
from mesos_gpu.api.http.rights import Rule, Ruled, admit, free, judged, named, needs, with_rules
from mesos_gpu.api.marathon.apps import Apps
from mesos_gpu.api.marathon.asked import Place, place_of
from mesos_gpu.api.marathon.core import AppChanges
from mesos_gpu.api.marathon.deployments import Deployments
from mesos_gpu.api.marathon.errors import Refused, answer_of
from mesos_gpu.api.marathon.events import Events
from mesos_gpu.api.marathon.groups import Groups
from mesos_gpu.api.marathon.queue import Queue
from mesos_gpu.api.marathon.system import System
from mesos_gpu.api.marathon.tasks import Tasks
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.errors import MesosGpuError

Handler = Callable[[Request, Place], Awaitable[Response]]
Verbs = Mapping[str, Ruled[Handler]]  # by method
Serve = Callable[[Request], Awaitable[Response]]
Served = tuple[str, Serve, Mapping[str, Rule]]  # path, handler, and rules by kind and method
_METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
#: Kinds of the ids below a path.
_KINDS: Final = {
    "/v2/apps": "app",
    "/v2/groups": "group",
    "/v2/deployments": "deployment",
    "/v2/queue": "app",
}
_ALL, _ONE, _ITEM = "all", "one", "/item"  # kinds of path: a collection, an element, an element's item


def routes(scheduler: SchedulerApi, events: Events, settings: ApiSettings) -> list[Route]:
    """Return all routes; they must come after other routes, as every path below /v2 is answered."""
    core = AppChanges(scheduler, events, settings)
    system, tasks = System(core, settings), Tasks(core)
    deployments, queue = Deployments(core), Queue(core)
    pods = dict.fromkeys(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"], named(system.pods))
    table = [
        _exact("/ping", {"GET": free(system.ping)}),
        _exact("/v2/info", {"GET": named(system.info)}),
        *_below("/ui", {_ALL: {"GET": free(system.ui)}, _ONE: {"GET": free(system.ui)}}),
        _exact("/v2/plugins", {"GET": named(system.plugins)}),
        _exact("/v2/leader", {"GET": named(system.leader), "DELETE": needs(CLUSTER_LEAD, system.abdicate)}),
        _exact("/v2/events", {"GET": judged(APP_SEE, events.stream)}),
        *_below("/v2/apps", _app_verbs(Apps(core), tasks)),
        *_below("/v2/groups", _group_verbs(Groups(core)), of_root=True),
        _exact("/v2/tasks/delete", {"POST": judged(APP_WRITE, tasks.kill_listed)}),
        *_below("/v2/tasks", {_ALL: {"GET": judged(APP_SEE, tasks.list)}}),
        *_below(
            "/v2/deployments",
            {
                _ALL: {"GET": judged(APP_SEE, deployments.list)},
                _ONE: {"DELETE": judged(APP_WRITE, deployments.delete)},
            },
        ),
        *_below(
            "/v2/queue",
            {
                _ALL: {"GET": judged(APP_SEE, queue.list)},
                "delay": {"DELETE": judged(APP_WRITE, queue.reset_delay)},
            },
        ),
        *_below("/v2/pods", {_ALL: pods, _ONE: pods}),
        *_below("/v2", {}),
    ]
    return [
        with_rules(Route(path, _with_leader(serve, settings.webui_url), methods=_METHODS), rules)
        for path, serve, rules in table
    ]


def _app_verbs(apps: Apps, tasks: Tasks) -> Mapping[str, Verbs]:
    return {
        _ALL: {
            "GET": judged(APP_SEE, apps.list),
            "POST": judged(APP_WRITE, apps.create),
            "PUT": judged(APP_WRITE, apps.put_all),
            "PATCH": judged(APP_WRITE, apps.patch_all),
        },
        _ONE: {
            "GET": judged(APP_SEE, apps.show),
            "PUT": judged(APP_WRITE, apps.put),
            "PATCH": judged(APP_WRITE, apps.patch),
            "DELETE": judged(APP_WRITE, apps.delete),
        },
        "*": {"GET": judged(APP_SEE, apps.below)},
        "restart": {"POST": judged(APP_WRITE, apps.restart)},
        "tasks": {"GET": judged(APP_SEE, tasks.of_app), "DELETE": judged(APP_WRITE, tasks.kill_of_app)},
        "tasks" + _ITEM: {"DELETE": judged(APP_WRITE, tasks.kill_one)},
        "versions": {"GET": judged(APP_SEE, apps.versions)},
        "versions" + _ITEM: {"GET": judged(APP_SEE, apps.version)},
    }


def _group_verbs(groups: Groups) -> Mapping[str, Verbs]:
    verbs = {
        "GET": judged(APP_SEE, groups.show),
        "POST": judged(APP_WRITE, groups.create),
        "PUT": judged(APP_WRITE, groups.put),
        "PATCH": judged(APP_WRITE, groups.patch),
        "DELETE": judged(APP_WRITE, groups.delete),
    }
    versions = {"GET": judged(APP_SEE, groups.versions)}
    return {
        _ALL: verbs,
        _ONE: verbs,
        "versions": versions,
        "versions" + _ITEM: {"GET": judged(APP_SEE, groups.version)},
    }


def _exact(path: str, verbs: Verbs) -> Served:
    """Return the route of a path without ids."""

    def find(_: Request) -> tuple[Place, Verbs]:
        note.at(path)
        return Place("/"), verbs

    return _route(path, find, {"": verbs})


def _below(prefix: str, kinds: Mapping[str, Verbs], *, of_root: bool = False) -> list[Served]:
    """Return the routes of a collection and its elements.

    Ids contain slashes, so that the router cannot parse paths.
    """
    words = {kind: kind + _ITEM in kinds for kind in kinds if kind not in (_ALL, _ONE) and "/" not in kind}

    def find(request: Request) -> tuple[Place, Verbs]:
        place = place_of(request.path_params.get("path", ""), words, of_root=of_root)
        kind = place.verb + (_ITEM if place.item else "") if place.verb else _ONE
        if place == Place("/"):
            kind = _ALL
        _note(prefix, place, kind)
        return place, kinds.get(kind, {})

    return [_route(prefix, find, kinds), _route(prefix + "/{path:path}", find, kinds)]


def _note(prefix: str, place: Place, kind: str) -> None:
    """Note the route and the resource that a path names, for the audit log."""
    verb = f"/{place.verb}" if place.verb else ""
    note.at(prefix if kind == _ALL else f"{prefix}/{{id}}{verb}{'/{item}' if place.item else ''}")
    named = _KINDS.get(prefix)
    if named and kind != _ALL:
        note.about(named, place.id.removeprefix("/") if named == "deployment" else place.id)


def _route(path: str, find: Callable[[Request], tuple[Place, Verbs]], kinds: Mapping[str, Verbs]) -> Served:
    """Return a path, its handler and its rules.

    The handler finds that of the method, checks its rule, and converts errors to answers.
    """

    async def serve(request: Request) -> Response:
        try:
            place, verbs = find(request)
            ruled = _handler(request.method, verbs)
            admit(request, ruled.rule)
            with large_bodies(request):
                return await ruled.handler(request, place)
        except MesosGpuError as error:
            return answer_of(error)

    rules = {
        f"{kind} {verb}".strip(): ruled.rule for kind, verbs in kinds.items() for verb, ruled in verbs.items()
    }
    return path, serve, rules


def _with_leader(serve: Serve, leader_url: str) -> Serve:
    """Add the leader to every answer: clients of several schedulers continue with it."""

    async def marked(request: Request) -> Response:
        response = await serve(request)
        response.headers["X-Marathon-Leader"] = leader_url
        return response

    return marked


def _handler(method: str, verbs: Verbs) -> Ruled[Handler]:
    """Return the handler of a method.

    Raises:
        Refused: The path does not exist (404), or does not have the method (405).
    """
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

    return free(say)
