"""Routes of the audit log, and of the recorded changes of a job or a GPU."""

import asyncio
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.asked import Asked, Found
from mesos_gpu.api.http.answers import Refusal, invalid, json_answer
from mesos_gpu.api.http.requests import SINCE, UNTIL, Number, job_of, result_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.spec import audit as shapes
from mesos_gpu.api.v1.names import gpu_of
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import BadConfiguration, NotFound
from mesos_gpu.model.access.record import AuditRecord, Result
from mesos_gpu.ports import AuditTrail
from mesos_gpu.wire.checking import Problem

MAX_RECORDS: Final = Number("limit", 100, 1, 1000)
MAX_CHANGES: Final = Number("limit", 10, 1, 100)
MAX_LENGTH: Final = 256  # of a filter
_AT_ONCE: Final = 2  # searches, each of which may use a CPU for a second


class AuditHandlers:
    """HTTP handlers of the audit log, and of the recorded changes of a job or a GPU.

    Args:
        trail: The audit log; None if audit is off.
    """

    def __init__(self, scheduler: SchedulerApi, trail: AuditTrail | None) -> None:
        self._scheduler, self._kept = scheduler, trail
        self._turn = asyncio.Semaphore(_AT_ONCE)

    async def list(self, request: Request) -> Response:
        """GET /v1/audit: search all records."""
        search, cursor = _search_of(request), request.query_params.get("cursor", "")
        page = await self._search(search, int(MAX_RECORDS.of(request)), cursor)
        full = self._trail.full()
        body: shapes.Audit = {
            "records": [shown(id, record) for id, record in page.records],
            "cursor": page.cursor or None,
            "lost": self._trail.lost,
            "full": full.what if full else None,
        }
        return json_answer(body)

    async def of_job(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/changes: the recorded changes of a job, for callers who see the job."""
        job_name = request.path_params["id"]
        sight = Sight.of(request)
        job_id = await result_of(self._scheduler.read(lambda view: job_of(view, job_name, sight.sees).id))
        return await self._changes(request, f"job:{job_id}")

    async def of_gpu(self, request: Request) -> Response:
        """GET /v1/gpus/{id}/changes: the recorded changes of a GPU, for callers who see GPUs."""
        gpu_name = request.path_params["id"]

        def named(view: View) -> str:
            return gpu_of(view, gpu_name)

        return await self._changes(request, f"gpu:{await result_of(self._scheduler.read(named))}")

    async def _changes(self, request: Request, subject: str) -> Response:
        """Answer with the recorded changes of a job or a GPU."""
        most = int(MAX_CHANGES.of(request))
        result = await self._search(Asked(on=subject, result=Result.DONE), most, "")
        return json_answer({"changes": [_change(record) for _, record in result.records]})

    async def _search(self, asked: Asked, most: int, cursor: str) -> Found:
        """Search the audit log.

        Raises:
            Refusal: The cursor is not valid, or the log cannot be read.
        """
        async with self._turn:
            try:
                return await run_in_threadpool(self._trail.search, asked, limit=most, cursor=cursor)
            except BadConfiguration as error:
                raise invalid(Problem("/cursor", error.what)) from error
            except OSError as error:
                what = f"the audit log cannot be read: {error.strerror}"
                raise Refusal(503, "unavailable", what, remedy="see the scheduler's log") from error

    @property
    def _trail(self) -> AuditTrail:
        if self._kept is None:
            raise NotFound("this scheduler has no audit log", remedy="start the scheduler with --audit-dir")
        return self._kept


def _search_of(request: Request) -> Asked:
    """Return the search that a query describes.

    Raises:
        Refusal: A filter is not valid.
    """
    query, problems = request.query_params, []
    texts = {name: query.get(name, "") for name in ("who", "what", "on")}
    problems += [
        Problem(f"/{name}", f"must have at most {MAX_LENGTH} characters")
        for name, text in texts.items()
        if len(text) > MAX_LENGTH
    ]
    result = query.get("result")
    results = [result_value.value for result_value in Result]
    if result is not None and result not in results:
        problems.append(Problem("/result", f"{result[:40]!r} is not one of {', '.join(results)}"))
    if problems:
        raise invalid(*problems)
    since = SINCE.of(request) if SINCE.name in query else None
    until = UNTIL.of(request) if UNTIL.name in query else None
    return Asked(**texts, since=since, until=until, result=Result(result) if result else None)


def shown(id: str, record: AuditRecord) -> shapes.AuditEntry:
    """Return a record as the REST interface shows it."""
    return {
        "id": id,
        "at": record.at,
        "who": record.who,
        "proof": record.proof,
        "proved": record.proved,
        "address": record.address,
        "relayed": record.relayed or None,
        "what": record.what,
        "right": record.right or None,
        "on": list(record.on),
        "result": record.result.value,
        "status": record.status or None,
        "reason": record.reason or None,
        "request_id": record.request or None,
        "detail": record.detail or None,
        "count": record.count,
    }


def _change(record: AuditRecord) -> shapes.Change:
    return {
        "at": record.at,
        "who": record.who,
        "proved": record.proved,
        "what": record.what,
        "detail": record.detail or None,
    }
