"""/v2/deployments and /v2/queue."""

import time
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.answers import json_answer, large_answer
from mesos_gpu.api.marathon import views
from mesos_gpu.api.marathon.asked import Place, embeds, flag
from mesos_gpu.api.marathon.core import Core, result
from mesos_gpu.api.marathon.errors import Refused
from mesos_gpu.api.requests import result_of
from mesos_gpu.api.service import View
from mesos_gpu.errors import NotFound
from mesos_gpu.model.app import App
from mesos_gpu.model.job import Job, JobState
from mesos_gpu.model.queue import LaunchDelay
from mesos_gpu.model.rollout import VersionInfo
from mesos_gpu.model.why import Stage, Why
from mesos_gpu.wire.marathon.moments import stamp

_MOST_EXPLAINED: Final = 100  # apps, in one answer
_REASONS: Final = {
    Stage.DRAINED: "AgentMaintenance",
    Stage.CONSTRAINT: "UnfulfilledConstraint",
    Stage.CPUS: "InsufficientCpus",
    Stage.MEM: "InsufficientMemory",
    Stage.PORTS: "InsufficientPorts",
    Stage.SIZE: "InsufficientGpus",
    Stage.GPUS: "InsufficientGpus",
    Stage.FRAGMENTATION: "InsufficientGpus",
    Stage.KEPT: "DeclinedScarceResources",
}


class Deployments:
    """The routes' functions."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def list(self, request: Request, _place: Place) -> Response:
        """GET /v2/deployments."""
        waiting = "waiting" in embeds(request)
        found = await self._core.read(
            lambda view: [(each, views.current_launches(view, each)) for each in view.deployments.values()]
        )
        return json_answer(
            [views.deployment_json(each, waiting=waiting, launches=launches) for each, launches in found]
        )

    async def delete(self, request: Request, place: Place) -> Response:
        """DELETE /v2/deployments/{id}: another one undoes it; with force it ends where it is."""
        id, force = place.id.removeprefix("/"), flag(request, "force")
        try:
            made = await result_of(self._core.service.cancel_deployment(id, force=force))
        except NotFound as error:
            raise Refused(404, f"DeploymentPlan {id} does not exist") from error
        return Response(status_code=202) if force else result(made)

    async def reset_delay(self, _request: Request, place: Place) -> Response:
        """DELETE /v2/queue/{id}/delay."""
        try:
            await result_of(self._core.service.reset_delay(place.id))
        except NotFound as error:
            raise Refused(404, f"Application {place.id} not found in tasks queue.") from error
        return Response(status_code=204)

    async def queue(self, _request: Request, _place: Place) -> Response:
        """GET /v2/queue: the apps with instances that wait, and why."""
        found = await self._core.read(_waiting)
        # One at a time: together they would keep the engine from its work for seconds.
        whys = [await self._core.read(partial(_why, each)) for each in found[:_MOST_EXPLAINED]]
        padded = chain(whys, repeat(None))
        entries = (_entry(each, why) for each, why in zip(found, padded, strict=False))
        return await large_answer({"queue": entries})


@dataclass(frozen=True, slots=True)
class _Queued:
    """An app with instances that wait, or that are not started yet because others failed."""

    app: App
    info: VersionInfo
    jobs: tuple[Job, ...]
    delay: LaunchDelay | None

    @property
    def until(self) -> float:
        """When the first of them may start."""
        return min([job.not_before for job in self.jobs] or [self.delay.until if self.delay else 0.0])

    @property
    def since(self) -> float:
        """How long one has waited."""
        delayed = [self.delay.since] if self.delay else []
        return min([job.submitted_at for job in self.jobs] + delayed)


def _waiting(view: View) -> list[_Queued]:
    delays, found = view.launch_delays, []
    for app in view.root.all_apps():
        jobs = tuple(job for job in view.instances_of(app.id) if job.state is JobState.PENDING)
        if jobs or app.id in delays:
            found.append(_Queued(app, view.versions[app.id], jobs, delays.get(app.id)))
    return found


def _why(queued: _Queued, view: View) -> Why | None:
    first = next(iter(queued.jobs), None)
    return view.explain(first.id) if first and first.id in view.jobs else None


def _entry(queued: _Queued, why: Why | None) -> dict[str, Any]:
    """`why`, in the summary, is ours, and of the first of its instances that wait."""
    left_s = max(0, round(queued.until - time.time()))
    return {
        "app": views.app_json(queued.app, queued.info),
        "count": len(queued.jobs) + (queued.delay.missing if queued.delay else 0),
        "delay": {"timeLeftSeconds": left_s, "overdue": left_s == 0},
        "since": stamp(queued.since),
        "processedOffersSummary": _summary(why)
        if why
        else {"processedOffersCount": 0, "unusedOffersCount": 0},
    }


def _summary(why: Why) -> dict[str, Any]:
    rejected = _rejected(why)
    return {
        "processedOffersCount": len(why.nodes),
        "unusedOffersCount": sum(each.removed for each in why.funnel),
        "rejectSummaryLastOffers": rejected,
        "rejectSummaryLaunchAttempt": rejected,
        "why": why.summary,
    }


def _rejected(why: Why) -> list[dict[str, Any]]:
    """Marathon's summary of offers, here of agents; what it has no word for is GPUs that do not fit."""
    found: dict[str, dict[str, Any]] = {}
    for each in why.funnel:
        reason = _REASONS.get(each.reason, "InsufficientGpus")
        known = found.setdefault(
            reason, {"reason": reason, "declined": 0, "processed": each.removed + each.left}
        )
        known["declined"] += each.removed
    return list(found.values())
