"""GET /v1/jobs/{id}/files: files that an ended job left in its sandbox."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from typing import Final
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mesos_gpu.access.rights import JOB_EXEC
from mesos_gpu.api.channel.opening import Opening
from mesos_gpu.api.channel.within import LocalLine
from mesos_gpu.api.host_places import HostPlaces, unless_gone
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import Refusal, invalid
from mesos_gpu.api.http.rate import key_of
from mesos_gpu.api.http.requests import Number, job_of, result_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.engine.reading.jobs import round_of, tasks_of
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import NotFound, Unavailable
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.job import Engine, Job
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.wire.channel import tree
from mesos_gpu.wire.channel.call import Kept
from mesos_gpu.wire.channel.file import GET, LIST, FileOrder
from mesos_gpu.wire.channel.tree import Decoder, Mark, Said
from mesos_gpu.wire.checking import Problem

#: Time limit for the first record of the host, which connects, and waits for the sandbox to be sealed.
FIRST_S: Final = 60.0
TURN_S: Final = 20.0  # until an earlier copy of the same caller from the same host has ended
RANK: Final = Number("rank", 0, 0, (1 << 20) - 1)
MEDIA: Final = "application/octet-stream"
_IN_IMAGES: Final = "/mnt/mesos/sandbox"  # path of the sandbox inside containers with an image


class Turns:
    """Turns of copies, one at a time for each host and caller.

    A host reads for two callers at a time, so that a caller who reads slowly leaves room for another one.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def next(self, host: str, caller: str) -> asyncio.Lock:
        """Wait until no other copy of a caller from a host is in progress; return the lock, which must be released.

        Raises:
            Refusal: An earlier copy has not ended in time.
        """
        lock = self._locks.setdefault((host, caller), asyncio.Lock())
        try:
            async with asyncio.timeout(TURN_S):
                await lock.acquire()
        except TimeoutError:
            what = f"another copy of {caller} out of a sandbox at {host} has not ended in {TURN_S:g} s"
            raise Refusal(429, "copies", what, remedy="end it, or try again later") from None
        return lock


class KeptFiles:
    """HTTP handler of the route GET /v1/jobs/{id}/files."""

    def __init__(self, scheduler: SchedulerApi, opening: Opening) -> None:
        """Store the sources of data.

        Args:
            scheduler: Interface to the scheduler's state.
            opening: Opener of channels to hosts.
        """
        self._scheduler, self._opening = scheduler, opening
        self._copies = HostPlaces("copies out of sandboxes", most=16, of_host=8, of_caller=4)
        self._turns = Turns()

    async def read(self, request: Request) -> Response:
        """Handle GET /v1/jobs/{id}/files: stream the records that a channel to a running job would send."""
        what, path = request.query_params.get("what", LIST), path_of(request.query_params.get("path", ""))
        if what not in (LIST, GET):
            raise invalid(Problem("/what", f"must be {LIST} or {GET}, got {what!r}"))
        job_name, rank, sight = request.path_params["id"], int(RANK.of(request)), Sight.of(request)

        def find(view: View) -> tuple[Job, TaskId, Kept, str]:
            job = sight.require(JOB_EXEC, job_of(view, job_name, sight.sees))
            task = _ended(view, job, job_name, rank)
            return job, _monitor(view, task), _kept_of(view, job, task), task.hostname

        job, monitor, location, host = await result_of(self._scheduler.read(find))
        note.about("job", job.id)
        caller = key_of(request.scope)
        with ExitStack() as resources:
            resources.enter_context(self._copies.place(host, caller))
            resources.callback((await self._turns.next(host, caller)).release)
            line = await self._opening.within(
                request, job, FileOrder(what, "/".join(path)), monitor, location
            )
            pieces = line.output()
            try:
                first = await unless_gone(request, _first(pieces, job.id))
            except BaseException:
                await line.close()
                raise
            return _Copy(_sent(first, pieces), line, resources.pop_all())


class _Copy(StreamingResponse):
    """Streaming response that closes its connection to the host at its end, also if the client disconnects.

    Then it releases the place of the copy.
    """

    def __init__(self, pieces: AsyncIterator[bytes], line: LocalLine, place: ExitStack) -> None:
        super().__init__(pieces, media_type=MEDIA)
        self._line, self._place = line, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            try:
                await super().__call__(scope, receive, send)
            finally:
                await self._line.close()


async def _sent(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield all pieces, each read after the previous one is sent.

    If the host fails, the record DONE is missing at the end.
    """
    yield first
    with suppress(Unavailable):
        async for piece in pieces:
            yield piece


async def _first(pieces: AsyncIterator[bytes], job_id: JobId) -> bytes:
    """Return the received bytes up to at least the end of the first record.

    Raises:
        NotFound: The first record says that the path cannot be read.
        Unavailable: The host sent no record.
    """
    decoder, received = Decoder(), b""
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_S):
            async for piece in pieces:
                received += piece
                for record in decoder.take(piece):
                    if record.mark is Mark.FAULT and isinstance(record.what, Said) and not record.what.path:
                        what = f"this cannot be read in the sandbox of {job_id}: {record.what.why}"
                        raise NotFound(what, remedy=f"list its files: mesos-gpu ls {job_id}")
                    return received
    raise Unavailable(f"the host sent nothing in {FIRST_S:g} s", remedy="see the node monitor's log there")


def _monitor(view: View, task: Task) -> TaskId:
    """Return the id of the node monitor on a task's host.

    Raises:
        Unavailable: No node monitor runs on that host.
    """
    nodes = [node for node in view.nodes.values() if node.id == task.agent_id and node.lost_at is None]
    nodes += [node for node in view.nodes.values() if node.hostname == task.hostname and node.lost_at is None]
    monitor = next((node.monitor for node in nodes if node.monitor is not None), None)
    if monitor is None:
        what = f"files of ended jobs are read by the node monitor, and none runs on {task.hostname}"
        raise Unavailable(
            what, remedy="try again when one runs; mesos-gpu doctor on that host shows why it does not"
        )
    return monitor


def _kept_of(view: View, job: Job, task: Task) -> Kept:
    """Return the place of a task's sandbox on its host."""
    nested = bool(job.spec.image) and job.spec.container_engine is Engine.MESOS
    return Kept(
        str(task.agent_id),
        view.framework_id or "",
        str(task.executor_id),
        nested=nested,
        as_root=job.spec.user == "root",
    )


def _ended(view: View, job: Job, wanted: str, rank: int) -> Task:
    """Return the ended task that `wanted` names, or that has the rank in the latest launch of the job.

    Raises:
        Refusal: There is no such task, or it has not ended: a running task is read over a channel.
    """
    named = [task for task in tasks_of(view, job.id) if task.id == wanted]
    tasks = named or list(round_of(view, job)) or list(tasks_of(view, job.id))[-1:]
    if not tasks:
        what = f"job {job.id} has not been launched yet"
        raise Refusal(409, "not-started", what, remedy=f"see: mesos-gpu why {job.id}")
    if not named and rank >= len(tasks):
        what = f"job {job.id} has {len(tasks)} tasks, of ranks from 0, and none of rank {rank}"
        raise invalid(Problem("/rank", what))
    task = tasks[0 if named else rank]
    if not task.ended:
        what = f"job {job.id} is {task.state.value}: this request reads the sandbox of an ended job"
        raise Refusal(409, "not-ended", what, remedy=f"copy from it by: mesos-gpu cp {job.id}:PATH .")
    return task


def path_of(text: str) -> tuple[str, ...]:
    """Split a path in a sandbox into its names, with "." and ".." resolved.

    Raises:
        Refusal: The path is outside the sandbox, has too many names, or has an invalid one.
    """
    if f"{text}/".startswith(f"{_IN_IMAGES}/"):
        text = text.removeprefix(_IN_IMAGES).lstrip("/")
    outside = invalid(Problem("/path", f"must be in the sandbox when a job has ended, got {text[:200]!r}"))
    names: list[str] = []
    if text.startswith("/"):
        raise outside
    for name in text.split("/"):
        if name == ".." and names:
            names.pop()
        elif name == ".." or (name not in ("", ".") and not tree.is_name(name)):
            raise outside
        elif name not in ("", "."):
            names.append(name)
    if len(names) > tree.MAX_DEPTH:
        raise invalid(Problem("/path", f"has more than {tree.MAX_DEPTH} components"))
    return tuple(names)
