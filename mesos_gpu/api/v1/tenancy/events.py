"""/v1/events: notices and checkpoints of jobs, thresholds of budgets: the latest, at once or when there is one."""

import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.decide import Rights
from mesos_gpu.api.http import requests as asked
from mesos_gpu.api.http.answers import json_answer
from mesos_gpu.api.http.requests import result_of
from mesos_gpu.api.http.rights import rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi, View
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.sight.queues import sees_budget
from mesos_gpu.api.spec import events as shapes
from mesos_gpu.api.v1 import views
from mesos_gpu.api.v1.changes import Changes
from mesos_gpu.model.tasks.event import JobEvent
from mesos_gpu.model.tenancy import EVERYBODY
from mesos_gpu.model.usage import MS, BudgetUse


class EventHandlers:
    """The route's function."""

    def __init__(self, scheduler: SchedulerApi, changes: Changes) -> None:
        """Serve a scheduler. `changes`: of its jobs."""
        self._scheduler, self._changes = scheduler, changes

    async def list(self, request: Request) -> Response:
        """GET /v1/events, waiting for one if `after` says which was the last that is known."""
        after, wait_s = int(asked.AFTER.of(request)), asked.WAIT_S.of(request)
        deadline = time.monotonic() + (wait_s if asked.AFTER.name in request.query_params else 0.0)
        while True:
            news = self._changes.any()
            answer = await result_of(self._scheduler.read(lambda view: _seen(view, request, after)))
            left_s = deadline - time.monotonic()
            if answer["events"] or left_s <= 0 or not await self._changes.until(news, left_s):
                return json_answer(answer)


def _seen(view: View, request: Request, after: int) -> shapes.Events:
    events = [event for event in view.events if event.number > after]
    last = events[-1].number if events else after
    return {"events": _bodies(view, Sight.of(request), rights_of(request), events), "last": last}


def _bodies(view: View, sight: Sight, rights: Rights, events: Sequence[JobEvent]) -> list[shapes.Event]:
    bodies: list[shapes.Event] = []
    for event in events:
        job, use = view.jobs.get(event.job_id), event.budget
        if (job is not None and sight.sees(job)) or (use is not None and sees_budget(rights, use)):
            bodies.append(
                {
                    "number": event.number,
                    "at": event.at,
                    "kind": event.kind.value,
                    "job_id": event.job_id or None,
                    "notice": views.notice(view, [event.notice] if event.notice else [], sight),
                    "budget": None if use is None else _budget(use),
                }
            )
    return bodies


def _budget(use: BudgetUse) -> shapes.BudgetEvent:
    return {
        "queue": use.queue,
        "user": None if use.user == EVERYBODY else use.user,
        "percent": use.told_percent,
        "period_ends": use.ends_ms / MS,
    }
