"""POST /v1/jobs/{id}/exec, /files and /forward: open a channel into a running task."""

import asyncio
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.decide import Rights
from mesos_gpu.access.rights import JOB_EXEC
from mesos_gpu.api.changes import Changes
from mesos_gpu.api.channel.channels import Channel, Channels, end_for, new_proof
from mesos_gpu.api.channel.relay import meet
from mesos_gpu.api.channel.within import LocalLine
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import Refusal, invalid, json_answer
from mesos_gpu.api.http.door import CHANNELS
from mesos_gpu.api.http.rate import key_of
from mesos_gpu.api.http.requests import job_of, read_of, result_of
from mesos_gpu.api.http.rights import rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.api.sight.jobs import Sight, subject_of
from mesos_gpu.engine.reading.jobs import round_of, tasks_of
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.access.record import AuditRecord, Result
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.wire.channel.call import Call, Kept
from mesos_gpu.wire.channel.file import file_order_of
from mesos_gpu.wire.channel.forward import forward_of
from mesos_gpu.wire.channel.frames import Frame, Kind, encode
from mesos_gpu.wire.channel.order import order_of
from mesos_gpu.wire.channel.orders import AnyOrder, encode_order
from mesos_gpu.wire.checking import Problem, object_of

#: Seconds that a request waits for a task that starts; clients wait 30 s for an answer.
MAX_START_S: Final = 20.0
_STARTING: Final = (TaskState.LAUNCHED, TaskState.STARTING)
CLOSED: Final = "CLOSE /v1/channels/{id}"  # name of a channel's end in the audit log


class Opening:
    """HTTP handlers of the routes that open channels.

    Args:
        settings: Settings of the REST interface.
        changes: Changes of jobs, for waiting until a job has started.
    """

    def __init__(
        self, scheduler: SchedulerApi, settings: ApiSettings, channels: Channels, changes: Changes
    ) -> None:
        self._scheduler, self._settings, self._channels = scheduler, settings, channels
        self._changes = changes

    async def open(self, request: Request) -> Response:
        """POST /v1/jobs/{id}/exec: open a channel for a command; the answer has its path and the client's secret."""
        return await self._open(request, order_of)

    async def forward(self, request: Request) -> Response:
        """POST /v1/jobs/{id}/forward: open a channel to a port of a task; the answer is as for a command."""
        return await self._open(request, forward_of)

    async def files(self, request: Request) -> Response:
        """POST /v1/jobs/{id}/files: open a channel for copying files; the answer is as for a command."""
        return await self._open(request, file_order_of)

    async def _open(self, request: Request, reader: "_Reader") -> Response:
        """Open a channel for the request; `reader` parses the order in its body."""
        rank, order = await read_of(request, partial(_parse_order, reader=reader))
        job_name, sight = request.path_params["id"], Sight.of(request)

        def find(view: View) -> tuple[Job, Task]:
            job = sight.require(JOB_EXEC, job_of(view, job_name, sight.sees))
            return job, _task(view, job, job_name, rank)

        job, task = await self._running(find)
        note.about("job", job.id)
        proof = new_proof()
        channel = await self._call_host(request, job, order, proof, task.id)
        where = f"{CHANNELS}{channel.id}"
        return json_answer({"path": where, "proof": proof, "task_id": task.id}, 201, {"Location": where})

    async def _running(self, find: Callable[[View], tuple[Job, Task]]) -> tuple[Job, Task]:
        """Return a job with a task that runs, after waiting for one that starts.

        Args:
            find: Function that returns the job with a task that has not ended.

        Raises:
            Refusal: The task does not run within `MAX_START_S`.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + MAX_START_S
        while True:
            job, task = await result_of(self._scheduler.read(find))
            if task.state is TaskState.RUNNING:
                return job, task
            left_s = until - loop.time()
            if left_s <= 0:
                raise _not_running(job, task)

            async def version() -> int:
                return (await result_of(self._scheduler.read(find)))[0].version

            await self._changes.wait(job.id, job.version, left_s, version)

    async def within(
        self, request: Request, job: Job, order: AnyOrder, monitor: TaskId, kept: Kept
    ) -> LocalLine:
        """Open a channel on which a node monitor sends files of an ended task to a client in this process."""
        channel = await self._call_host(request, job, order, new_proof(), monitor, kept.text)
        channel.client.taken = True
        line = LocalLine()
        _kept.add(task := asyncio.ensure_future(meet(self._channels, channel, line, is_client=True)))
        task.add_done_callback(_kept.discard)
        return line

    async def _call_host(
        self, request: Request, job: Job, order: AnyOrder, proof: str, task_id: TaskId, kept: str = ""
    ) -> Channel:
        """Return a new channel, after calling a host to it."""
        self._channels.room(key_of(request.scope))
        channel = self._channel(request, job, order, proof)
        self._channels.add(channel)
        call = Call(channel.id, task_id, self._settings.own_url, pin_of(self._settings), kept)
        try:
            await result_of(self._scheduler.call_to_channel(call, channel.host_proves))
        except MesosGpuError:
            self._channels.drop(channel)
            raise
        return channel

    def _channel(self, request: Request, job: Job, order: AnyOrder, proof: str) -> Channel:
        """Return a new channel for the request's caller, with a secret for each side."""
        rights: Callable[[], Rights] = request.scope["state"]["rights"]
        who, subject = self._settings.who, subject_of(job)

        def stands() -> bool:
            now = rights()
            return now.may(JOB_EXEC, subject) and (who is None or who.stands(now.caller))

        return Channel(
            uuid.uuid4().hex,
            client=end_for(proof),
            host=end_for(new_proof()),
            order=encode(Frame(Kind.ORDER, encode_order(order))),
            key=key_of(request.scope),
            stands=stands,
            closed=self._audit_end(request, job),
        )

    def _audit_end(self, request: Request, job: Job) -> Callable[[Channel], None]:
        """Return the function that records the end of a channel in the audit log."""
        caller, client, trail = rights_of(request).caller, request.client, self._settings.audit
        id = note.request_id()

        def closed(channel: Channel) -> None:
            if trail is None:
                return
            code = "none" if channel.exit_code is None else channel.exit_code
            seconds = time.monotonic() - channel.born
            record = AuditRecord(
                at=time.time(),
                what=CLOSED,
                result=Result.DONE if channel.both.is_set() else Result.FAILED,
                who=caller.shown,
                proof=caller.proof.value,
                proved=caller.is_proved,
                address=f"{client.host}:{client.port}" if client and client.host else "unix",
                right=JOB_EXEC.name,
                on=(f"job:{job.id}",),
                request=id,
                detail=f"exit={code} seconds={seconds:.1f} sent={channel.sent} received={channel.received}",
            )
            saved = trail.put(record)
            if saved is not None:
                _kept.add(task := asyncio.ensure_future(asyncio.wrap_future(saved)))
                task.add_done_callback(_kept.discard)

        return closed


_kept: Final[set[asyncio.Future[None]]] = set()  # keeps references: asyncio itself holds tasks weakly


def pin_of(settings: ApiSettings) -> str:
    """Return the SHA-256 of this server's certificate, for executors to compare.

    "" if the server speaks plain HTTP, or if authorities verify the certificate.
    """
    return "" if settings.tls is None or settings.own_url_is_told else settings.tls.state.facts.digest


_Reader: TypeAlias = Callable[[object], tuple[AnyOrder | None, list[Problem]]]


def _parse_order(body: bytes, reader: _Reader) -> tuple[int, AnyOrder]:
    """Return rank and order from the body of a request."""
    value: dict[str, Any] = object_of(body)
    rank = value.pop("rank", None) or 0
    order, problems = reader(value)
    if type(rank) is not int or not 0 <= rank < 1 << 20:
        problems.append(Problem("/rank", f"must be a whole number from 0, got {rank!r}"))
    if order is None or problems:
        raise invalid(*problems)
    return rank, order


def _task(view: View, job: Job, wanted: str, rank: int) -> Task:
    """Return the task of a rank, or the one that is named, which runs or is about to.

    Raises:
        Refusal: There is no such task, or it has ended.
    """
    named = [task for task in tasks_of(view, job.id) if task.id == wanted]
    tasks = named or list(round_of(view, job))
    if not named and tasks and rank >= len(tasks):
        what = f"job {job.id} has {len(tasks)} tasks, of ranks from 0"
        raise invalid(Problem("/rank", f"{what}, and none of rank {rank}"))
    task = tasks[0 if named else rank] if tasks else None
    if task is None or task.state not in (TaskState.RUNNING, *_STARTING):
        raise _not_running(job, task)
    return task


def _not_running(job: Job, task: Task | None) -> Refusal:
    """Return the refusal of a channel into a task that does not run."""
    state = "has not been launched" if task is None else f"is {task.state.value}"
    what = f"job {job.id} {state}: a channel needs a running job"
    return Refusal(409, "not-running", what, remedy=f"see: mesos-gpu show {job.id}")
