"""/v2/deployments and /v2/queue."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.answers import json_answer
from mesos_gpu.api.marathon import views
from mesos_gpu.api.marathon.asked import Place, embeds, flag
from mesos_gpu.api.marathon.core import Core, result
from mesos_gpu.api.marathon.errors import Refused
from mesos_gpu.api.requests import result_of
from mesos_gpu.api.service import View
from mesos_gpu.errors import NotFound
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.job import Job, JobState
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
        found = await self._core.read(lambda view: list(view.deployments.values()))
        return json_answer([views.deployment_json(each, waiting=waiting) for each in found])

    async def delete(self, request: Request, place: Place) -> Response:
        """DELETE /v2/deployments/{id}: another one undoes it; with force it ends where it is."""
        id, force = place.id.removeprefix("/"), flag(request, "force")
        try:
            made = await result_of(self._core.service.cancel_deployment(id, force=force))
        except NotFound as error:
            raise Refused(404, f"DeploymentPlan {id} does not exist") from error
        return Response(status_code=202) if force else result(made)

    async def queue(self, _request: Request, _place: Place) -> Response:
        """GET /v2/queue: the apps with instances that wait, and why."""
        entries: list[dict[str, Any]] = []
        for facts, jobs in await self._core.read(_waiting):
            asked = len(entries) < _MOST_EXPLAINED
            # One at a time: together they would keep the engine from its work for seconds.
            why = await self._core.read(partial(_why, job_id=jobs[0].id)) if asked else None
            entries.append(_entry(facts, jobs, why))
        return json_answer({"queue": entries})


def _waiting(view: View) -> list[tuple[views.Facts, list[Job]]]:
    waiting = {
        app.id: [job for job in view.instances_of(app.id) if job.state is JobState.PENDING]
        for app in view.root.all_apps()
    }
    facts = views.facts_of(view, (app for app in view.root.all_apps() if waiting[app.id]))
    return [(each, waiting[each.app.id]) for each in facts]


def _why(view: View, job_id: JobId) -> Why | None:
    return view.explain(job_id) if job_id in view.jobs else None


def _entry(facts: views.Facts, jobs: Sequence[Job], why: Why | None) -> dict[str, Any]:
    """One app; `why`, in the summary, is ours, and of the first of its instances that wait."""
    left_s = max(0, round(min(job.not_before for job in jobs) - time.time()))
    return {
        "app": views.app_json(facts.app, facts.info),
        "count": len(jobs),
        "delay": {"timeLeftSeconds": left_s, "overdue": left_s == 0},
        "since": stamp(min(job.submitted_at for job in jobs)),
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
