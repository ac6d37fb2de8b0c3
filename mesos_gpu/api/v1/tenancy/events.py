"""Route of events of jobs, budgets, GPUs, nodes and apps: the latest ones, at once or when there are any."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.changes import Changes
from mesos_gpu.api.http import requests as asked
from mesos_gpu.api.http.answers import invalid, json_answer
from mesos_gpu.api.http.requests import Flag, Number, result_of
from mesos_gpu.api.http.rights import rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.events import EventSight
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.spec import events as shapes
from mesos_gpu.api.v1 import views
from mesos_gpu.api.v1.listing import patterns_of
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.tasks.event import EventKind, LogEvent
from mesos_gpu.model.tenancy import EVERYBODY
from mesos_gpu.model.usage import MS, BudgetUse
from mesos_gpu.wire.checking import Problem
from mesos_gpu.wire.listing.filters import By, passes

MAX: Final = Number("limit", 1000, 1, 10_000)  # events of an answer
NEWEST: Final = Flag("newest")
PATTERNS: Final[Mapping[str, By]] = {by.field: by for by in (By.USER, By.QUEUE, By.APP, By.NODE)}
Wanted = Callable[[LogEvent], bool]


class EventHandlers:
    """HTTP handler of events.

    Args:
        changes: Changes of jobs, for waiting.
    """

    def __init__(self, scheduler: SchedulerApi, changes: Changes) -> None:
        self._scheduler, self._changes = scheduler, changes

    async def list(self, request: Request) -> Response:
        """GET /v1/events: recent events; waits for one if `after` has the number of the last known one."""
        after, wait_s = int(asked.AFTER.of(request)), asked.WAIT_S.of(request)
        most, newest, is_wanted = int(MAX.of(request)), NEWEST.of(request), _filter_of(request)
        deadline = time.monotonic() + (wait_s if asked.AFTER.name in request.query_params else 0.0)
        while True:
            news = self._changes.any()
            last = max(after, self._scheduler.happened.last)
            sight = EventSight(rights_of(request))
            matching = [
                event
                for event in self._scheduler.happened.after(after)
                if event.number <= last and is_wanted(event) and sight.sees(event)
            ]
            left_s = deadline - time.monotonic()
            if matching or left_s <= 0 or not await self._changes.until(news, left_s):
                break
        if len(matching) > most:
            matching = matching[-most:] if newest else matching[:most]
            last = last if newest else matching[-1].number
        return json_answer(
            {
                "events": list(await self._shown(request, matching, sight)),
                "last": last,
                "first": self._scheduler.happened.first,
            }
        )

    async def _shown(
        self, request: Request, events: Sequence[LogEvent], sight: EventSight
    ) -> Sequence[shapes.Event]:
        """Return events as the REST interface shows them, without invisible jobs and queues in their texts."""
        if not events:
            return []

        def shown(view: View) -> Sequence[shapes.Event]:
            jobs = Sight.of(request)
            return [_body(view, event, sight, jobs) for event in events]

        return await result_of(self._scheduler.read(shown))


def _filter_of(request: Request) -> Wanted:
    """Return the filter that a query describes.

    Raises:
        Refusal: A kind is not valid, or there are too many patterns.
    """
    kinds, kind_names = set(request.query_params.getlist("kind")), {kind.value for kind in EventKind}
    if kinds - kind_names:
        why = f"{min(kinds - kind_names)[:40]!r} is not a kind of event; kinds are {', '.join(sorted(kind_names))}"
        raise invalid(Problem("/kind", why))
    job, since, patterns = (
        request.query_params.get("job", ""),
        asked.SINCE.of(request),
        patterns_of(request, PATTERNS),
    )

    def wanted(event: LogEvent) -> bool:
        if (kinds and event.kind.value not in kinds) or event.at < since or not event.job_id.startswith(job):
            return False
        return not patterns or passes(patterns, _values(event))

    return wanted


def _values(event: LogEvent) -> Mapping[By, Sequence[str]]:
    apps = (event.app,) if event.app else event.apps
    named = {By.USER: event.user, By.QUEUE: event.queue, By.NODE: event.node}
    return {By.APP: apps, **{by: (value,) for by, value in named.items() if value}}


def _body(view: View, event: LogEvent, sight: EventSight, jobs: Sight) -> shapes.Event:
    """Return the JSON of an event, without invisible parts."""
    notice = views.notice(view, [event.notice] if event.notice else [], jobs)
    return {
        "number": event.number,
        "at": event.at,
        "kind": event.kind.value,
        "job_id": event.job_id or None,
        "user": event.user or None,
        "queue": event.queue or None,
        "app": event.app or None,
        "node": event.node or None,
        "gpu": event.gpu or None,
        "state": event.state or None,
        "exit_code": event.exit_code,
        "deployment": event.deployment or None,
        "booking": event.booking or None,
        "apps": list(event.apps),
        "message": jobs.veiled(view, sight.message(event)),
        "notice": notice,
        "budget": None if event.budget is None else _budget(event.budget),
    }


def _budget(use: BudgetUse) -> shapes.BudgetEvent:
    return {
        "queue": use.queue,
        "user": None if use.user == EVERYBODY else use.user,
        "percent": use.told_percent,
        "period_ends": use.ends_ms / MS,
    }
