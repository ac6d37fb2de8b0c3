"""Routes of the scheduler itself, of its OpenAPI document, and of the dashboard's files."""

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from mesos_gpu.api import openapi
from mesos_gpu.api.host_places import HostPlaces
from mesos_gpu.api.http.answers import json_answer
from mesos_gpu.api.http.rate import key_of
from mesos_gpu.api.http.requests import result_of
from mesos_gpu.api.http.rights import rights_of
from mesos_gpu.api.peers import Leadership
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.api.spec import shapes
from mesos_gpu.api.v1 import views
from mesos_gpu.api.v1.security import secured
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import NotFound

_LOGIN: Final = "login.html"  # a template, which has its own route
_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@cache
def _files() -> dict[str, str]:
    """Return the dashboard's files with their media types."""
    names = (file.name for file in files("mesos_gpu.web").iterdir())
    return {name: _TYPES[suffix] for name in names if (suffix := PurePath(name).suffix) in _TYPES}


class System:
    """HTTP handlers of the scheduler's state, health and leadership, of the OpenAPI document, and of the dashboard.

    Args:
        settings: Settings of the REST interface.
        counted: Function that returns the numbers of GPUs by kind.
    """

    def __init__(
        self, scheduler: SchedulerApi, settings: ApiSettings, counted: Callable[[View], shapes.Counted]
    ) -> None:
        self._scheduler, self._settings, self._counted = scheduler, settings, counted
        self._threads = HostPlaces("requests about the leader", most=8, of_host=8, of_caller=4)

    async def status(self, _request: Request) -> Response:
        """GET /v1/status: the scheduler and a summary of the cluster."""
        settings = self._settings
        how = secured(settings.tls, settings.who, open_to_all=settings.open_to_all)
        of_journal = self._scheduler.journal_problem

        def shown(view: View) -> shapes.Status:
            general = settings.webui_url, settings.version, how, self._counted(view)
            return views.status(view, *general, journal_problem=of_journal)

        return json_answer(await result_of(self._scheduler.read_copy(shown)))

    async def leader(self, request: Request) -> Response:
        """GET /v1/leader: the leading scheduler and all others."""
        if self._settings.peers is not None:
            with self._threads.place("ZooKeeper", key_of(request.scope)) as place:
                return json_answer(await place.run(self._settings.peers.told))
        url = self._settings.webui_url
        alone: Leadership = {
            "leader": url,
            "here": url,
            "leads": True,
            "age_s": None,
            "batch": 0,
            "candidates": 1,
            "schedulers": [{"url": url, "leads": True, "here": True, "applied": 0}],
            "zookeeper": None,
        }
        return json_answer(alone)

    async def health(self, _request: Request) -> Response:
        """GET /v1/health: 503 while the master is not connected or the state cannot be saved; without the reason."""
        connected, saves = await result_of(
            self._scheduler.read(lambda view: (view.connected, not view.unsaved))
        )
        ok = connected and saves
        return json_answer({"ok": ok, "connected": connected, "saves": saves}, 200 if ok else 503)

    async def openapi(self, _request: Request) -> Response:
        """GET /v1/openapi.json: the OpenAPI document of /v1."""
        return json_answer(await run_in_threadpool(openapi.document))

    async def page(self, request: Request) -> Response:
        """GET / and /static/{name}: a file of the dashboard."""
        rights = rights_of(request)
        if "name" not in request.path_params and not (rights.is_open or rights.caller.is_proved):
            return RedirectResponse("login", 303)
        name = request.path_params.get("name", "index.html")
        if name not in _files() or name == _LOGIN:
            raise NotFound(f"there is no /static/{name}", remedy="see /v1/openapi.json for the routes")
        body = files("mesos_gpu.web").joinpath(name).read_bytes()
        return Response(body, media_type=_files()[name], headers={"Cache-Control": "no-cache"})
