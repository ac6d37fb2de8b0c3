"""Routes of jobs: submitting, listing, showing and killing them, their output, and why they wait."""

import asyncio
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.rights import JOB_CHECKPOINT, JOB_ENV, JOB_KILL, JOB_OUTPUT, JOB_READ
from mesos_gpu.adapters.hosts.agents import Agents
from mesos_gpu.api.admission import admit
from mesos_gpu.api.asking import job_kill, new_job
from mesos_gpu.api.changes import Changes
from mesos_gpu.api.host_places import HostPlaces, unless_gone
from mesos_gpu.api.http import arrays, note
from mesos_gpu.api.http import requests as asked
from mesos_gpu.api.http.answers import Refusal, invalid, json_answer, valid
from mesos_gpu.api.http.guard import may_see_env
from mesos_gpu.api.http.rate import key_of
from mesos_gpu.api.http.requests import body_of, decoded_by, job_of, launch_of, result_of
from mesos_gpu.api.http.rights import rights_of
from mesos_gpu.api.kept import Kept
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.settings import ApiSettings
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.sight.queues import sees_queue, told_of
from mesos_gpu.api.spec import shapes
from mesos_gpu.api.spec.cluster import line
from mesos_gpu.api.spec.gpus.use import UseOverTime
from mesos_gpu.api.spec.tasks.array import Array
from mesos_gpu.api.spec.tasks.command import JobCommand
from mesos_gpu.api.spec.tasks.submitted import SubmittedJob
from mesos_gpu.api.v1 import views
from mesos_gpu.api.v1.files.uploads import Uploads
from mesos_gpu.api.v1.gpus.use import over_time
from mesos_gpu.api.v1.listing import Listing, of_nodes
from mesos_gpu.api.v1.logs import BASE64, ENCODINGS, LOG_BOUNDS, Chunk, LogReader, log_times
from mesos_gpu.api.v1.tenancy.hooks import wrong_receivers
from mesos_gpu.engine.events import CheckpointTold
from mesos_gpu.engine.reading.jobs import explain_job, queue_uses, round_of, tasks_of, waiting_jobs
from mesos_gpu.engine.reading.nodes import gpu_defaults, largest_for_shares, missing_models
from mesos_gpu.engine.reading.trials import plan_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import NotAccepted, NotFound
from mesos_gpu.model.arrays.indexes import count, each_of
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.jobs.queue import QueueUse, Waiting
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.wire.checking import Problem
from mesos_gpu.wire.job_command import command_of
from mesos_gpu.wire.jobs import decode, left_open
from mesos_gpu.wire.mesos.cuts import Times, size_at

T = TypeVar("T")
_FIRST: Final = 5  # waiting jobs on the dashboard's first page


class Jobs:
    """HTTP handlers of jobs.

    Args:
        settings: Settings of the REST interface.
    """

    def __init__(self, scheduler: SchedulerApi, settings: ApiSettings) -> None:
        self._scheduler, self._settings = scheduler, settings
        self.changes = Changes()
        self.uploads = Uploads(scheduler, settings.uploads, settings.task_key)
        # Cached for callers who see all jobs, by the requested number of jobs: many pages ask every few seconds.
        self._lines = {
            count: Kept(partial(_line, count)) for count in (_FIRST, int(asked.MAX_QUEUED.default))
        }
        self._defaults = Kept(gpu_defaults)
        self._agents = Agents(settings.agent_authorization, settings.agent_tls)
        self._readers = HostPlaces("reads of output", most=64, of_host=8, of_caller=4)

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Receive changes of jobs while the server runs."""
        self.changes.bind(asyncio.get_running_loop())
        unlisten = self._scheduler.listen(self.changes.on_change)
        try:
            async with self.uploads.tended():
                yield
        finally:
            unlisten()
            self.changes.close()
            self._readers.close()

    async def _read(self, fn: Callable[[View], T]) -> T:
        return await result_of(self._scheduler.read(fn))

    async def _read_copy(self, fn: Callable[[View], T]) -> T:
        return await result_of(self._scheduler.read_copy(fn))

    async def submit(self, request: Request) -> Response:
        """POST /v1/jobs: submit a job or an array."""
        spec, sight = await self._admitted(request)
        async with self.uploads.held(spec, sight.rights.caller.name):
            try:
                job = await result_of(self._scheduler.request(new_job(spec, sight.rights.caller.name)))
            except NotAccepted as error:
                raise told_of(sight.rights, error, spec.queue) from None
        self._forget_queues()
        note.about("job", job.id)

        def submitted(view: View) -> SubmittedJob:
            missing = missing_models(view, spec.gpu_model)
            warnings = [f"the job waits: {missing}"] if missing else []
            return {**views.job(view, view.jobs.get(job.id, job), sight), "warnings": warnings}

        return json_answer(await self._read(submitted), 201, {"Location": f"/v1/jobs/{job.id}"})

    async def plan(self, request: Request) -> Response:
        """POST /v1/plan/jobs: predict what would happen to a job; nothing is changed."""
        spec, sight = await self._admitted(request)
        job = new_job(spec, sight.rights.caller.name)

        def planned(view: View) -> shapes.JobPlan:
            return views.job_plan(view, plan_job(view, job), sight)

        async with self.uploads.held(spec, sight.rights.caller.name):
            try:
                return json_answer(await self._read_copy(planned))
            except NotAccepted as error:
                raise told_of(sight.rights, error, spec.queue) from None

    async def _admitted(self, request: Request) -> tuple[JobSpec, Sight]:
        """Return the job in a body as its caller may run it, and the visibility for the caller.

        Raises:
            Refusal: The body is not valid, or the caller may not submit the job.
        """
        body = await body_of(request)
        spec = await decoded_by(request, body, self._decoded)
        if isinstance(spec, list) or (spec.is_share and spec.gpu_model):
            most_mib = await self._read(largest_for_shares)
            spec = await decoded_by(request, body, partial(self._decoded, most_mib=most_mib))
        spec = await self._with_amounts(request, body, valid(spec))
        sight = Sight.of(request)  # rights at the time when the whole body has come
        permits, pooled = self._settings.permits, self._settings.has_user_pool
        spec = admit(sight.rights, spec, permits, pooled=pooled)
        if unheard := wrong_receivers(self._settings.hooks, self._settings.sender, spec.notify):
            raise invalid(*unheard)
        return spec, sight

    async def _with_amounts(self, request: Request, body: bytes, spec: JobSpec) -> JobSpec:
        """Set CPUs and memory of a job with GPUs to defaults where its request leaves them open."""
        left = await decoded_by(request, body, left_open) if spec.gpus else ()
        return (await self._read(self._defaults.of)).given_to(spec, left) if left else spec

    def _forget_queues(self) -> None:
        """Discard cached queue orders, so that a caller sees its own change."""
        for queue_order in self._lines.values():
            queue_order.forget()

    def _decoded(self, body: bytes, most_mib: Mapping[str, int] | None = None) -> JobSpec | list[Problem]:
        """Decode the job in a body. `most_mib`: memory of the largest GPU by model, for checking shares."""
        permits, engine = self._settings.permits, self._settings.container_engine
        return decode(body, permits=permits, engine=engine, most_mib=most_mib or {})

    async def list(self, request: Request) -> Response:
        """GET /v1/jobs: list jobs."""
        return json_answer(await self._read_copy(Listing.of(request).select))

    async def show(self, request: Request) -> Response:
        """GET /v1/jobs/{id}: a job, after its next change if the request says so."""
        show_env = _shows_env(request)
        job_id, version = await self._read_job(request, lambda _view, job, _sight: (job.id, job.version))
        seen_version, wait_s = int(asked.AFTER_VERSION.of(request)), asked.WAIT_S.of(request)
        if asked.AFTER_VERSION.name in request.query_params and version <= seen_version:
            await self.changes.wait(job_id, seen_version, wait_s, lambda: self._version(job_id))

        def shown(view: View, job: Job, sight: Sight) -> shapes.Job:
            if show_env:
                sight.require(JOB_ENV, job)
            return views.job(view, job, sight, show_env=show_env)

        return json_answer(await self._read_job(request, shown))

    async def _version(self, job_id: JobId) -> int:
        return await self._read(lambda view: job_of(view, job_id).version)

    async def kill(self, request: Request) -> Response:
        """DELETE /v1/jobs/{id}: kill a job, an array, or tasks of an array."""
        job_name, sight = request.path_params["id"], Sight.of(request)
        job_id, indexes, ended = await self._read(lambda view: _to_kill(view, job_name, sight))
        note.about("job", job_id if indexes is None else f"{job_id}[{indexes}]")
        job = await result_of(self._scheduler.request(job_kill(job_id, indexes=indexes)))
        self._forget_queues()
        sight = Sight.of(request)
        body = await self._read(lambda view: views.job(view, view.jobs.get(job_id, job), sight))
        return json_answer(body, 200 if ended else 202)

    async def array(self, request: Request) -> Response:
        """GET /v1/arrays/{id}: a job array, or some of its tasks."""
        array_name, sight = request.path_params["id"], Sight.of(request)
        most = int(asked.MAX_LISTED.of(request))
        return json_answer(await self._read_copy(lambda view: _array(view, array_name, sight, most)))

    async def checkpoint(self, request: Request) -> Response:
        """POST /v1/jobs/{id}/checkpoint: report that a job's work is saved."""
        job_id = await self._read_job(request, lambda _, job, sight: sight.require(JOB_CHECKPOINT, job).id)
        note.about("job", job_id)
        job = await result_of(self._scheduler.request(CheckpointTold(job_id)))
        sight = Sight.of(request)
        return json_answer(await self._read(lambda view: views.job(view, view.jobs.get(job_id, job), sight)))

    async def tasks_of(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/tasks: the launches of a job."""
        tasks = await self._read_job(
            request,
            lambda view, job, sight: [views.task(view, task, sight) for task in tasks_of(view, job.id)],
        )
        return json_answer({"tasks": tasks})

    async def command(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/command: the command line that submits the job again."""
        show_env = _shows_env(request)

        def made(_: View, job: Job, sight: Sight) -> JobCommand:
            sight.require(JOB_ENV if show_env else JOB_READ, sight.require(JOB_READ, job))
            line = command_of(job.spec, show_env=show_env)
            return {"command": line.text, "left_out": dict(line.left_out), "request": dict(line.request)}

        return json_answer(await self._read_job(request, made))

    async def use(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/use: the recent utilization of a job's GPUs."""
        return json_answer(await self._read_job(request, _past))

    async def logs(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/logs: a piece of a task's output."""
        stream = request.query_params.get("stream", "stdout")
        if stream not in ("stdout", "stderr"):
            raise invalid(Problem("/stream", f"must be stdout or stderr, got {stream!r}"))
        offset, length = int(asked.OFFSET.of(request)), int(asked.LENGTH.of(request))
        encoding = request.query_params.get("encoding", ENCODINGS[0])
        if encoding not in ENCODINGS:
            raise invalid(Problem("/encoding", f"must be {' or '.join(ENCODINGS)}, got {encoding!r}"))
        task_id = request.query_params.get("task_id")

        def launched(view: View, job: Job, sight: Sight) -> tuple[Task, str]:
            sight.require(JOB_OUTPUT, job)
            named = task_id or launch_of(view, request.path_params["id"])
            return _launch(view, job.id, named), view.framework_id or ""

        task, framework_id = await self._read_job(request, launched)
        since = asked.SINCE.of(request) if asked.SINCE.name in request.query_params else None
        wanted_times = asked.TIMES.of(request)
        agent = self._agents.of(task, LOG_BOUNDS)

        def read() -> tuple[Chunk, Times | None]:
            reader, begin = LogReader(agent, framework_id), offset
            times = reader.times(stream) if wanted_times or since is not None else None
            if since is not None:
                begin = max(begin, _since(task, times, since))
            if encoding != BASE64:
                return reader.read(stream, begin, length), times
            begin, raw, _, cut = reader.read_bytes(stream, begin, length)
            return Chunk(b64encode(cut.encode() + raw).decode(), begin, begin + len(raw)), times

        with self._readers.place(task.agent_url, key_of(request.scope), agent) as place:
            chunk, times = await unless_gone(request, place.run(read))
        answer: shapes.Logs = {
            "data": chunk.data,
            "offset": chunk.offset,
            "next_offset": chunk.next_offset,
            "task_id": task.id,
            "times": log_times(times, chunk, task.ended_at or time.time()) if wanted_times else None,
        }
        return json_answer(answer)

    async def why(self, request: Request) -> Response:
        """GET /v1/why/{id}: explain why a job waits."""
        job_name, sight = request.path_params["id"], Sight.of(request)

        def explained(view: View) -> shapes.Why:
            return views.why(view, explain_job(view, job_of(view, job_name, sight.sees).id), sight)

        return json_answer(await self._read_copy(explained))

    async def queue(self, request: Request) -> Response:
        """GET /v1/queue: the first pending jobs in queue order, and the queues."""
        most, sight = int(asked.MAX_QUEUED.of(request)), Sight.of(request)

        def select(view: View) -> line.Queue:
            cached = self._lines.get(most) if sight.sees_all else None
            first, queues = (
                cached.of(view) if cached else (waiting_jobs(view, most, sight.sees), queue_uses(view))
            )
            return {
                "jobs": [views.waiting(view, waiting_job, sight) for waiting_job in first],
                "queues": [views.queue(use) for use in queues if sees_queue(sight.rights, use.name)],
            }

        return json_answer(await self._read_copy(select))

    async def _read_job(self, request: Request, fn: Callable[[View, Job, Sight], T]) -> T:
        """Read something about the job that the path names, with the caller's current visibility."""
        job_name, sight = request.path_params["id"], Sight.of(request)
        return await self._read(lambda view: fn(view, job_of(view, job_name, sight.sees), sight))

    async def tasks(self, request: Request) -> Response:
        """GET /v1/tasks: launches that have not ended, and node monitors."""
        sight, on = Sight.of(request), of_nodes(request)

        def select(view: View) -> Sequence[shapes.Task]:
            live = (task for task in view.tasks.values() if not task.ended and on(task.hostname))
            return [views.task(view, task, sight) for task in live if sight.sees_task(view.jobs, task)]

        return json_answer({"tasks": await self._read_copy(select)})


def _shows_env(request: Request) -> bool:
    """Return whether a request asks for the values of an environment.

    Raises:
        Refusal: Authentication is off, and the request does not come from the scheduler's own host.
    """
    show_env = asked.SHOW_ENV.of(request)
    if show_env and rights_of(request).is_open:
        may_see_env(request)
    return show_env


def _line(most: int, view: View) -> tuple[Sequence[Waiting], Sequence[QueueUse]]:
    """Return the first waiting jobs, and all queues."""
    return waiting_jobs(view, most), queue_uses(view)


def _past(view: View, job: Job, _: Sight) -> UseOverTime:
    """Return the recent utilization of GPUs by the tasks of a job's latest launch."""
    return over_time(view, [view.use_history.tasks.get(task.id) for task in round_of(view, job)])


def _since(task: Task, times: Times | None, since: float) -> int:
    """Return the offset behind everything that a task had written by a time.

    Raises:
        NotFound: No times are recorded for the task's output.
    """
    if times is None:
        raise NotFound(
            f"the times of {task.id}'s output were not recorded",
            remedy="leave --since out; see the task's executor.log",
        )
    return size_at(times, since)


def _array(view: View, wanted: str, sight: Sight, most: int) -> Array:
    """Return an array, or some of its tasks.

    Raises:
        NotFound: There is no such array.
    """
    some = arrays.some_of(view, wanted, sight.sees)
    array = arrays.array_of(view, wanted, sight.sees) if some is None else some[0]
    if array is None:
        raise NotFound(
            f"there is no job array {wanted}", remedy="list arrays and jobs with: mesos-gpu ps --all"
        )
    places = array.indexes.all if some is None else some[2]
    ids = (array.member_id(array.indexes.at(place)) for place in each_of(places))
    members = [job for job_id in ids if (job := view.jobs.get(job_id)) is not None]
    return views.array(view, array, places, members, sight, most)


def _to_kill(view: View, wanted: str, sight: Sight) -> tuple[JobId, str | None, bool]:
    """Return the named job, or the array with indexes of its named tasks (None for all); and whether it has ended."""
    some = arrays.some_of(view, wanted, sight.sees) if JobId(wanted) not in view.jobs else None
    if some is not None and count(some[2]) > 1:
        job = sight.require(JOB_KILL, arrays.shown(view, some[0]))
        return job.id, some[1], job.state.ended
    job = sight.require(JOB_KILL, job_of(view, wanted, sight.sees))
    if job.array is not None and job.id not in view.jobs:
        return job.array, str(job.index), job.state.ended
    job_id, ended = _killed(view, job, wanted)
    return job_id, None, ended


def _killed(view: View, job: Job, wanted: str) -> tuple[JobId, bool]:
    """Return the job to kill, and whether it has ended.

    Raises:
        Refusal: A launch is named, and not its job: an old launch must not end a later one.
    """
    if launch_of(view, wanted) is not None and not job.id.startswith(wanted):
        what = f"{wanted} is a launch of job {job.id}"
        raise Refusal(409, "not-a-job", what, remedy=f"end the job: mesos-gpu kill {job.id}")
    return job.id, job.state.ended


def _launch(view: View, job_id: JobId, wanted: str | None) -> Task:
    """Return the task of a named launch, or of the latest one.

    Raises:
        NotFound: The job has no such launch.
        Refusal: The job has not been launched.
    """
    launches = tasks_of(view, job_id)
    if wanted is not None:
        launches = [task for task in launches if task.id == wanted]
        if not launches:
            raise NotFound(
                f"job {job_id} has no launch {wanted}", remedy="see its tasks at /v1/jobs/ID/tasks"
            )
    if not launches:
        what = f"job {job_id} has not been launched yet"
        raise Refusal(409, "not-started", what, remedy=f"see: mesos-gpu why {job_id}")
    latest = view.jobs[job_id].task_id
    return next((task for task in launches if task.id == latest), launches[-1])
