"""Routes /ping, /ui/, /v2/info, /v2/leader, /v2/plugins and /v2/pods."""

from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from mesos_gpu.api.http.answers import json_answer
from mesos_gpu.api.marathon.asked import Place
from mesos_gpu.api.marathon.core import AppChanges
from mesos_gpu.api.marathon.errors import Refused
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.engine.reading.view import View


class System:
    """HTTP handlers of the scheduler's own state in Marathon's form."""

    def __init__(self, core: AppChanges, settings: ApiSettings) -> None:
        self._core, self._webui_url, self._version = core, settings.webui_url, settings.version
        self._features = ["gpu_resources", *(["secrets"] if settings.permits.secrets else [])]
        self._peers, self._own_url = settings.peers, settings.leader_url or settings.webui_url

    async def ping(self, request: Request, _place: Place) -> Response:
        """GET /ping: clients that ask for JSON compare the answer with a JSON string."""
        if "json" in request.headers.get("accept", ""):
            return json_answer("pong")
        return PlainTextResponse("pong")

    async def leader(self, _request: Request, _place: Place) -> Response:
        """GET /v2/leader: the address of the leader."""
        if not self._leader:
            raise Refused(404, "There is no leader", remedy="wait until one of the schedulers is elected")
        return json_answer({"leader": self._leader})

    async def abdicate(self, _request: Request, _place: Place) -> Response:
        """DELETE /v2/leader: give up the leadership to another scheduler.

        A single scheduler refuses, as none could take over. The status is not 5xx, which clients would take for a host
        that is down.
        """
        if self._peers is not None:
            self._peers.abdicate()
            return json_answer({"message": "Leadership abdicated"})
        raise Refused(409, "this is the only scheduler; restart its process instead: tasks keep running")

    async def plugins(self, _request: Request, _place: Place) -> Response:
        """GET /v2/plugins: an empty list."""
        return json_answer({"plugins": []})

    async def ui(self, _request: Request, _place: Place) -> Response:
        """GET /ui/: redirect to the dashboard."""
        return RedirectResponse("/", 302)

    async def info(self, _request: Request, _place: Place) -> Response:
        """GET /v2/info: facts about the scheduler."""
        return json_answer(await self._core.read(self._info))

    def _info(self, view: View) -> dict[str, object]:
        return {
            "name": "mesos_gpu",
            "version": "1.11.0",  # version of Marathon's interface, by which clients choose what to send
            "buildref": self._version,
            "elected": True,
            "leader": self._leader,
            "frameworkId": view.framework_id,
            "marathon_config": {
                "features": self._features,
                "hostname": urlsplit(self._webui_url).hostname,
                "master": view.master_url,
                "mesos_leader_ui_url": view.master_url,
                "webui_url": self._webui_url,
            },
            "http_config": {"http_port": urlsplit(self._webui_url).port},
            "zookeeper_config": {},
        }

    @property
    def _leader(self) -> str:
        url = self._own_url if self._peers is None or self._peers.leads else self._peers.leader_url
        return urlsplit(url or "").netloc

    async def pods(self, _request: Request, _place: Place) -> Response:
        """/v2/pods: refused with 404, also for clients that probe for pods."""
        raise Refused(404, "pods are not supported; define an app, or a job with several tasks at /v1/jobs")
