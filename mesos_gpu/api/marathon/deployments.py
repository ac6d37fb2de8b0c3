"""/v2/deployments."""

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.http.answers import json_answer
from mesos_gpu.api.http.requests import result_of
from mesos_gpu.api.marathon import views
from mesos_gpu.api.marathon.asked import Place, embeds, flag
from mesos_gpu.api.marathon.core import Core, result
from mesos_gpu.api.marathon.errors import Refused
from mesos_gpu.errors import NotFound


class Deployments:
    """The routes' functions."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def list(self, request: Request, _place: Place) -> Response:
        """GET /v2/deployments."""
        waiting = "waiting" in embeds(request)
        deployments = await self._core.read(
            lambda view: [(each, views.current_launches(view, each)) for each in view.deployments.values()]
        )
        return json_answer(
            [
                views.deployment_json(each, waiting=waiting, launches=launches)
                for each, launches in deployments
            ]
        )

    async def delete(self, request: Request, place: Place) -> Response:
        """DELETE /v2/deployments/{id}: another one undoes it; with force it ends where it is."""
        id, force = place.id.removeprefix("/"), flag(request, "force")
        try:
            made = await result_of(self._core.scheduler.cancel_deployment(id, force=force))
        except NotFound as error:
            raise Refused(404, f"DeploymentPlan {id} does not exist") from error
        return Response(status_code=202) if force else result(made)
