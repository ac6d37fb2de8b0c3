"""Route of the history: jobs that have ended, from their records."""

import re
from collections.abc import Callable
from itertools import islice
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.decide import Rights, Subject
from mesos_gpu.access.rights import JOB_READ, JOB_SEE, Right
from mesos_gpu.api.http.answers import invalid, json_answer
from mesos_gpu.api.http.requests import SINCE, UNTIL, Number, result_of
from mesos_gpu.api.http.rights import rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.spec.tasks import past as shapes
from mesos_gpu.api.v1.listing import PATTERNS, patterns_of
from mesos_gpu.api.v1.tenancy.usage import on_record
from mesos_gpu.model.past_jobs import Held, PastJob
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.usage import MS
from mesos_gpu.ports import UseRecords
from mesos_gpu.wire.checking import Problem
from mesos_gpu.wire.listing.filters import By, Values, labels_of, passes

MAX: Final = Number("limit", 1000, 1, shapes.MAX)
_LOOKED_AT: Final = 100_000  # jobs that are checked for one answer
_CURSOR: Final = re.compile(r"([0-9]{1,15})\.([a-z0-9._-]{1,255})")
_HOUR: Final = WHOLE * MS * 3600
_May = Callable[[Right, PastJob], bool]


class HistoryHandlers:
    """HTTP handler of the history.

    Args:
        records: Records of usage; None if there are none.
    """

    def __init__(self, scheduler: SchedulerApi, records: UseRecords | None) -> None:
        self._scheduler, self._kept = scheduler, records

    async def list(self, request: Request) -> Response:
        """GET /v1/history: list ended jobs."""
        states, patterns = _states(request), patterns_of(request, {**PATTERNS, "label": By.LABEL})
        since_ms, until_ms = int(SINCE.of(request) * MS), int(UNTIL.of(request) * MS)
        most, before, records = int(MAX.of(request)), _cursor(request), on_record(self._kept, "job")
        may = _cached_rights(rights_of(request))

        def wanted(job: PastJob) -> bool:
            if (states and job.state.value not in states) or not may(JOB_SEE, job):
                return False
            if By.LABEL in patterns and not may(JOB_READ, job):
                return False
            return not patterns or passes(patterns, _values(job))

        def asked() -> shapes.History:
            jobs, last, left = list[PastJob](), None, _LOOKED_AT
            for job in islice(records.past_jobs(since_ms, until_ms, before), _LOOKED_AT):
                left -= 1
                if wanted(job):
                    if len(jobs) == most:
                        break
                    jobs.append(job)
                last = job
            else:
                last = last if left == 0 else None  # no more jobs
            held_by_job = records.held_by([job.id for job in jobs])
            return {
                "jobs": [
                    _shown(job, held_by_job.get(job.id, Held()), reads=may(JOB_READ, job)) for job in jobs
                ],
                "cursor": None if last is None else f"{int(last.ended_at * MS)}.{last.id}",
            }

        answer, sight = await run_in_threadpool(asked), Sight.of(request)
        messages = [job["message"] for job in answer["jobs"]]
        veiled = await result_of(self._scheduler.read(lambda view: sight.veiled(view, messages)))
        for job, message in zip(answer["jobs"], veiled, strict=True):
            job["message"] = message
        return json_answer(answer)


def _states(request: Request) -> set[str]:
    """Return the states in a query.

    Raises:
        Refusal: A state is not valid.
    """
    states = set(request.query_params.getlist("state"))
    if states - {*shapes.ENDED}:
        states_text = ", ".join(shapes.ENDED)
        why = f"{min(states - {*shapes.ENDED})[:40]!r} is not a state of ended jobs; states are {states_text}"
        raise invalid(Problem("/state", why))
    return states


def _cursor(request: Request) -> tuple[int, str] | None:
    """Return time in milliseconds and job id of a query's cursor; None without one.

    Raises:
        Refusal: The cursor is not valid.
    """
    text = request.query_params.get("cursor")
    if text is None:
        return None
    parts = _CURSOR.fullmatch(text)
    if parts is None:
        raise invalid(Problem("/cursor", "must be the cursor of a previous answer"))
    return int(parts[1]), parts[2]


def _cached_rights(rights: Rights) -> _May:
    """Return a function that tells whether the caller has a right for a job, with cached decisions."""
    decisions: dict[tuple[Right, Subject], bool] = {}

    def may(right: Right, job: PastJob) -> bool:
        key = right, Subject(job.owner, job.queue, job.app)
        if key not in decisions:
            decisions[key] = rights.may(*key)
        return decisions[key]

    return may


def _values(job: PastJob) -> Values:
    return {
        By.NAME: (job.name,),
        By.USER: (job.user,),
        By.QUEUE: (job.queue,),
        By.APP: (job.app,) if job.app else (),
        By.LABEL: labels_of(job.labels),
        By.NODE: job.hosts,
    }


def _shown(job: PastJob, held: Held, *, reads: bool) -> shapes.PastJob:
    """Return the JSON of an ended job; `reads`: whether the caller may read what it ran."""
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user or None,
        "queue": job.queue,
        "app": job.app or None,
        "job_class": job.job_class or None,
        "state": job.state.value,
        "exit_code": job.exit_code,
        "submitted_at": job.submitted_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "attempts": job.attempts,
        "tasks": job.tasks,
        "gpus": job.gpu_milli / WHOLE,
        "gpu_models": list(held.models),
        "gpu_hours": held.gpu / _HOUR,
        "lost_gpu_hours": held.lost / _HOUR,
        "idle_gpu_hours": held.idle / _HOUR,
        "hostnames": list(job.hosts),
        "labels": dict(job.labels) if reads else {},
        "message": job.message if reads else None,
    }
