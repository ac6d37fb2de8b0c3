"""Routes of /v2/queue: apps with waiting instances, and why agents were not used for them, in Marathon's words."""

import json
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.rights import APP_WRITE
from mesos_gpu.api.http.answers import large_answer
from mesos_gpu.api.http.requests import result_of
from mesos_gpu.api.marathon import tree, views
from mesos_gpu.api.marathon.asked import Place, embeds
from mesos_gpu.api.marathon.core import AppChanges
from mesos_gpu.api.marathon.errors import Refused
from mesos_gpu.api.sight.apps import AppSight
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.engine.events import DelayReset
from mesos_gpu.engine.reading.apps import instances_of, launch_delays
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.nodes import unused_offers
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import NotFound
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.apps.rollout import VersionInfo
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.queue import LaunchDelay
from mesos_gpu.model.jobs.why import OF_LIMITS, Stage, Why
from mesos_gpu.model.nodes.offer import Offer
from mesos_gpu.wire.marathon.moments import stamp

_MAX_EXPLAINED: Final = 100  # apps, in one answer
_GPUS: Final = "InsufficientGpus"
#: Marathon's reasons, in the order in which it counts them, with this scheduler's stages for each.
_FUNNEL: Final = {
    "UnfulfilledRole": (),
    "UnfulfilledConstraint": (Stage.CONSTRAINT,),
    "NoCorrespondingReservationFound": (),
    "AgentMaintenance": (Stage.DRAINED, Stage.LOST),
    "InsufficientCpus": (Stage.CPUS,),
    "InsufficientMemory": (Stage.MEM,),
    "InsufficientDisk": (Stage.DISK,),
    _GPUS: (),  # all other stages: GPUs that do not fit
    "InsufficientPorts": (Stage.PORTS,),
    "DeclinedScarceResources": (Stage.SCARCE, Stage.KEPT, *OF_LIMITS),
}
_REASONS: Final = {stage: reason for reason, stages in _FUNNEL.items() for stage in stages}
_UNOFFERED: Final = (Stage.OFFER, Stage.PACE)  # an agent in these stages has no offer that could be declined


class Queue:
    """HTTP handlers of the queue of waiting instances."""

    def __init__(self, core: AppChanges) -> None:
        self._core = core

    async def reset_delay(self, request: Request, place: Place) -> Response:
        """DELETE /v2/queue/{id}/delay: reset the launch delay of an app."""
        sight = AppSight.of(request)
        app = await self._core.read(lambda view: tree.app_at(view.catalog.root, place.id))
        if app is not None and sight.sees(app):
            sight.require(APP_WRITE, app)
        elif app is not None:
            raise Refused(404, f"Application {place.id} not found in tasks queue.")
        try:
            await result_of(self._core.scheduler.request(DelayReset(place.id)))
        except NotFound as error:
            raise Refused(404, f"Application {place.id} not found in tasks queue.") from error
        return Response(status_code=204)

    async def list(self, request: Request, _place: Place) -> Response:
        """GET /v2/queue: the apps with waiting instances, and the reasons."""
        offers = "lastUnusedOffers" in embeds(request)
        sight = AppSight.of(request)
        waiting = await self._core.read_copy(lambda view: _waiting(view, sight))
        # One after the other: together they would keep the engine from its work for seconds.
        whys = [
            await self._core.read_copy(partial(_why, queued, Sight(sight.rights), offers=offers))
            for queued in waiting[:_MAX_EXPLAINED]
        ]
        padded = chain(whys, repeat(_Refusals()))
        entries = (_entry(queued, why, offers=offers) for queued, why in zip(waiting, padded, strict=False))
        return await large_answer({"queue": entries})


@dataclass(frozen=True, slots=True)
class _Queued:
    """An app with waiting instances, or with instances that are delayed because others failed."""

    app: App
    info: VersionInfo
    jobs: tuple[Job, ...]
    delay: LaunchDelay | None

    @property
    def until(self) -> float:
        """Earliest time at which one of the instances may start, in seconds since the epoch."""
        return min([job.not_before for job in self.jobs] or [self.delay.until if self.delay else 0.0])

    @property
    def since(self) -> float:
        """Time since which the first instance waits, in seconds since the epoch."""
        delayed = [self.delay.since] if self.delay else []
        return min([job.submitted_at for job in self.jobs] + delayed)


def _waiting(view: View, sight: AppSight) -> list[_Queued]:
    delays, entries = launch_delays(view), []
    for app in view.catalog.root.all_apps():
        if not sight.sees(app):
            continue
        jobs = tuple(job for job in instances_of(view, app.id) if job.state is JobState.PENDING)
        if jobs or app.id in delays:
            entries.append(_Queued(sight.shown(app), view.catalog.versions[app.id], jobs, delays.get(app.id)))
    return entries


@dataclass(frozen=True, slots=True)
class _Refusals:
    """The reason why the first instance of an app waits, and the unused offers."""

    why: Why | None = None  # None if no instance is queued yet
    offers: tuple[Offer, ...] = ()


def _why(queued: _Queued, sight: Sight, view: View, *, offers: bool) -> _Refusals:
    """Explain why the first waiting instance of an app waits; empty if it does not wait any more."""
    first = next(iter(queued.jobs), None)
    if first is None or first.id not in view.jobs:
        return _Refusals()
    why = explain_job(view, first.id, past_offers=True)
    why = replace(why, summary=sight.veiled(view, why.summary))
    return _Refusals(why, tuple(unused_offers(view)) if offers else ())


def _entry(queued: _Queued, refusals: _Refusals, *, offers: bool) -> dict[str, Any]:
    """Return the JSON of an app in the queue.

    Its `why` is an extension to Marathon, about the first waiting instance.
    """
    left_s = max(0, round(queued.until - time.time()))
    entry = {
        "app": views.app_json(queued.app, queued.info),
        "count": len(queued.jobs) + (queued.delay.missing if queued.delay else 0),
        "delay": {"timeLeftSeconds": left_s, "overdue": left_s == 0},
        "since": stamp(queued.since),
        "processedOffersSummary": _summary(refusals.why),
    }
    return entry | ({"lastUnusedOffers": _unused(refusals)} if offers else {})


def _stages(why: Why | None) -> dict[AgentId, Stage | None]:
    """Return the stage that excluded each agent with an offer; None for an agent that is not excluded."""
    if why is None:
        return {}
    limit = next((row.reason for row in why.funnel if row.reason in OF_LIMITS), None)
    return {node.agent_id: node.stage or limit for node in why.nodes if node.stage not in _UNOFFERED}


def _reason(stage: Stage) -> str:
    return _REASONS.get(stage, _GPUS)


def _summary(why: Why | None) -> dict[str, Any]:
    """Return the JSON of how many agents' offers were excluded at each stage, in Marathon's form."""
    stages = _stages(why)
    refused = [_reason(stage) for stage in stages.values() if stage is not None]
    left, funnel = len(stages), []
    for reason in _FUNNEL:
        funnel.append({"reason": reason, "declined": refused.count(reason), "processed": left})
        left -= refused.count(reason)
    return {
        "processedOffersCount": len(stages),
        "unusedOffersCount": len(refused),
        "rejectSummaryLastOffers": funnel,
        "rejectSummaryLaunchAttempt": funnel,
        **({"why": why.summary} if why else {}),
    }


def _unused(refusals: _Refusals) -> list[dict[str, Any]]:
    stages = _stages(refusals.why)
    return [
        {"offer": _offer_json(offer), "reason": [_reason(stage)], "timestamp": stamp(offer.received_at)}
        for offer in refusals.offers
        if (stage := stages.get(offer.agent_id)) is not None
    ]


def _offer_json(offer: Offer) -> dict[str, Any]:
    """Return the JSON of an offer in Marathon's form."""
    ranges: dict[str, list[dict[str, int]]] = {}
    for port_range in offer.ports:
        ranges.setdefault(_role(port_range.kind), []).append(
            {"begin": port_range.begin, "end": port_range.end}
        )
    scalars = [
        {"name": resource.name, "role": _role(resource.kind), "scalar": resource.amount}
        for resource in offer.resources
    ]
    return {
        "id": offer.id,
        "hostname": offer.hostname,
        "agentId": offer.agent_id,
        "resources": [
            *scalars,
            *({"name": "ports", "role": role, "ranges": spans} for role, spans in ranges.items()),
        ],
        "attributes": [{"name": name, "text": text} for name, text in offer.attributes.items()],
    }


def _role(kind: str) -> str:
    """Return the role in a resource's kind, which is the JSON of Mesos' Resource without the amount.

    It is the role of the latest reservation.
    """
    rest = json.loads(kind)
    reservations = rest.get("reservations") or [rest]
    return str(reservations[-1].get("role", "*"))
