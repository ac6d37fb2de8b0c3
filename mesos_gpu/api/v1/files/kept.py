"""GET /v1/jobs/{id}/files: what a job that has ended left in its sandbox."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Final

from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from mesos_gpu.access.rights import JOB_EXEC
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import Refusal, invalid
from mesos_gpu.api.http.rate import key_of
from mesos_gpu.api.http.requests import Number, job_of, result_of
from mesos_gpu.api.scheduler_api import SchedulerApi, View
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.v1.files.sandbox import Sandbox, path_of
from mesos_gpu.api.v1.logs import LogReader
from mesos_gpu.model.jobs.job import Engine, Job
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.wire.channel.file import GET, LIST
from mesos_gpu.wire.checking import Problem

MOST_AT_ONCE: Final = 16
MOST_OF_ONE: Final = 4  # of one caller
RANK: Final = Number("rank", 0, 0, (1 << 20) - 1)
MEDIA: Final = "application/octet-stream"


class UnderWay:
    """Copies that are under way, by whose they are. Only for the server's loop."""

    def __init__(self) -> None:
        """None is."""
        self._open: Counter[str] = Counter()

    def room(self, key: str) -> None:
        """See that one more may begin.

        Raises:
            Refusal: There are too many, of this caller or of all.
        """
        mine, every = self._open[key], self._open.total()
        if every >= MOST_AT_ONCE or mine >= MOST_OF_ONE:
            what = f"there are {mine} copies out of sandboxes of {key}, and {every} of all, at once"
            raise Refusal(429, "copies", what, remedy="end some, or try again later")

    @contextmanager
    def one(self, key: str) -> Iterator[None]:
        """Count one, for as long as this lasts."""
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            self._open += Counter()  # forgets who has none


class KeptFiles:
    """The route's function."""

    def __init__(self, scheduler: SchedulerApi, agent: LogReader) -> None:
        """`agent`: reads from agents."""
        self._scheduler, self._agent = scheduler, agent
        self._under_way = UnderWay()

    async def read(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/files: records, as over a channel while it runs."""
        what, path = request.query_params.get("what", LIST), path_of(request.query_params.get("path", ""))
        if what not in (LIST, GET):
            raise invalid(Problem("/what", f"must be {LIST} or {GET}, got {what!r}"))
        wanted, rank, sight = request.path_params["id"], int(RANK.of(request)), Sight.of(request)

        def find(view: View) -> tuple[Job, Task, str]:
            job = sight.require(JOB_EXEC, job_of(view, wanted, sight.sees))
            return job, _ended(view, job, wanted, rank), view.framework_id or ""

        job, task, framework_id = await result_of(self._scheduler.read(find))
        note.about("job", job.id)
        key = key_of(request.scope)
        self._under_way.room(key)
        nested = bool(job.spec.image) and job.spec.container_engine is Engine.MESOS
        sandbox = Sandbox(self._agent, task, framework_id, as_root=job.spec.user == "root", nested=nested)
        records = sandbox.listed(path) if what == LIST else sandbox.sent(path)
        with self._under_way.one(key):
            first = await run_in_threadpool(next, records)
        return StreamingResponse(self._sent(key, first, records), media_type=MEDIA)

    async def _sent(self, key: str, first: bytes, records: Iterator[bytes]) -> AsyncIterator[bytes]:
        """All of them, each read when the one before is sent."""
        with self._under_way.one(key):
            async for record in iterate_in_threadpool(chain([first], records)):
                yield record


def _ended(view: View, job: Job, wanted: str, rank: int) -> Task:
    """The task that is named, or that of a rank of the latest launch.

    Raises:
        Refusal: There is none, or it has not ended: only then nothing but this reads there.
    """
    named = [task for task in view.tasks_of(job.id) if task.id == wanted]
    tasks = named or list(view.round_of(job)) or list(view.tasks_of(job.id))[-1:]
    if not tasks:
        what = f"job {job.id} has not been launched yet"
        raise Refusal(409, "not-started", what, remedy=f"see: mesos-gpu why {job.id}")
    if not named and rank >= len(tasks):
        what = f"job {job.id} has {len(tasks)} tasks, of ranks from 0, and none of rank {rank}"
        raise invalid(Problem("/rank", what))
    task = tasks[0 if named else rank]
    if not task.ended:
        what = f"job {job.id} is {task.state.value}: its sandbox is read so when it has ended"
        raise Refusal(409, "not-ended", what, remedy=f"copy from it by: mesos-gpu cp {job.id}:PATH .")
    return task
