"""Routes of /v2/deployments."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.rights import APP_WRITE
from mesos_gpu.api.asking import deployment_undo
from mesos_gpu.api.http.answers import json_answer
from mesos_gpu.api.http.requests import result_of
from mesos_gpu.api.marathon import views
from mesos_gpu.api.marathon.asked import Place, embeds, flag
from mesos_gpu.api.marathon.core import AppChanges, result
from mesos_gpu.api.marathon.errors import Refused
from mesos_gpu.api.sight.apps import AppSight
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import NotFound
from mesos_gpu.model.apps.catalog import Deployment


class Deployments:
    """HTTP handlers of deployments: reading, undoing and cancelling them."""

    def __init__(self, core: AppChanges) -> None:
        self._core = core

    async def list(self, request: Request, _place: Place) -> Response:
        """GET /v2/deployments: the deployments in progress."""
        waiting, sight = "waiting" in embeds(request), AppSight.of(request)

        def gather(view: View) -> list[tuple[Deployment, dict[str, Sequence[views.Launch]]]]:
            visible = filter(None, map(sight.deployment, view.deployments.values()))
            return [(deployment, views.current_launches(view, deployment, sight)) for deployment in visible]

        deployments = await self._core.read_copy(gather)
        return json_answer(
            [
                views.deployment_json(deployment, waiting=waiting, launches=launches)
                for deployment, launches in deployments
            ]
        )

    async def delete(self, request: Request, place: Place) -> Response:
        """DELETE /v2/deployments/{id}: undo a deployment by another one, or with force=true end it where it is."""
        id, force = place.id.removeprefix("/"), flag(request, "force")
        sight = AppSight.of(request)
        await self._core.read(lambda view: _require(view, id, sight))
        try:
            deployment = await result_of(self._core.scheduler.request(deployment_undo(id, force=force)))
        except NotFound as error:
            raise Refused(404, f"DeploymentPlan {id} does not exist") from error
        return Response(status_code=202) if force else result(deployment)


def _require(view: View, id: str, sight: AppSight) -> None:
    """Require the right to change all apps of a deployment; one without visible apps counts as missing."""
    deployment = view.deployments.get(id)
    if deployment is None or sight.deployment(deployment) is None:
        raise Refused(404, f"DeploymentPlan {id} does not exist")
    for step in deployment.plan.steps:
        for action in step:
            sight.require(APP_WRITE, action.app)
