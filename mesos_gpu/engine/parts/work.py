"""Jobs, arrays and tasks, and what the engine remembers about them."""

import bisect
from collections import deque
from dataclasses import dataclass, field

from mesos_gpu.engine.indexes.arrays import Members
from mesos_gpu.engine.indexes.memory import SecretRead
from mesos_gpu.engine.indexes.ports import FreedPorts
from mesos_gpu.engine.indexes.restless import LiveTaskIndex
from mesos_gpu.engine.parts.metadata import DERIVED
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.shares.share import Method
from mesos_gpu.model.tasks.event import JobEvent, recent
from mesos_gpu.model.tasks.idle import Idleness
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tasks.volume import PersistentVolume


@dataclass(slots=True)
class WorkPart:
    """Jobs and tasks of the state.

    Attributes:
        jobs: Jobs that are remembered, oldest first.
        tasks: Launches of these jobs, and tasks of node monitors and keepers.
        arrays: Job arrays that are remembered, oldest first.
        idlenesses: Idle times of jobs, by job.
        volumes: Persistent volumes, by id.
        queue: Sequence and id of pending jobs, sorted.
        launches: Tasks of each job, oldest first.
        live: Tasks that have not ended, in the order of their launches.
        unknown: Live tasks that wait for an operator's decision.
        ended: Jobs that have ended, the first to end first.
        released: Time in seconds since the epoch at which a member was last told to start.
        notified: Number of the notice that an executor was last sent, and its time.
        secrets: Secrets that jobs wait for, by source.
        members: Index of the members of arrays.
        next_sequence: Number of the next job in the order of submission.
        tended_at: Time at which all tasks were looked at, in seconds since the epoch.
        made_room: Launches that had to make room for a job, by that job, even if they were recalled.
        events: Latest events of jobs.
        made_restless: Index of live tasks; None until first used.
        made_ports: Index of ports of ended tasks; None until first used.
    """

    jobs: dict[JobId, Job] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    arrays: dict[JobId, JobArray] = field(default_factory=dict)
    idlenesses: dict[JobId, Idleness] = field(default_factory=dict)
    queue: list[tuple[int, JobId]] = field(default_factory=list)
    launches: dict[JobId, tuple[TaskId, ...]] = field(default_factory=dict)
    live: dict[TaskId, None] = field(default_factory=dict)
    unknown: dict[TaskId, None] = field(default_factory=dict)
    ended: dict[JobId, None] = field(default_factory=dict)
    released: dict[TaskId, float] = field(default_factory=dict)
    notified: dict[TaskId, tuple[int, float]] = field(default_factory=dict)
    secrets: dict[str, SecretRead] = field(default_factory=dict)
    members: Members = field(default_factory=Members)
    volumes: dict[str, PersistentVolume] = field(default_factory=dict)
    next_sequence: int = 1
    tended_at: float = 0.0
    made_room: dict[JobId, dict[TaskId, None]] = field(default_factory=dict, compare=False, metadata=DERIVED)
    events: deque[JobEvent] = field(default_factory=recent, compare=False, repr=False, metadata=DERIVED)
    made_restless: LiveTaskIndex | None = field(default=None, compare=False, repr=False, metadata=DERIVED)
    made_ports: FreedPorts | None = field(default=None, compare=False, repr=False, metadata=DERIVED)

    @property
    def restless(self) -> LiveTaskIndex:
        """Index of live tasks."""
        if self.made_restless is None:
            self.made_restless = LiveTaskIndex()
            for task in map(self.tasks.__getitem__, self.live):
                self.made_restless.enter(task, self.job_of(task))
        return self.made_restless

    @property
    def ports(self) -> FreedPorts:
        """Index of ports of ended tasks."""
        if self.made_ports is None:
            self.made_ports = FreedPorts()
            for task in self.tasks.values():
                if task.ended:
                    self.made_ports.enter(task)
        return self.made_ports

    def set_job(self, job: Job) -> Job | None:
        """Put a job into the state; return the job that it replaces, or None."""
        old = self.jobs.get(job.id)
        self.jobs[job.id] = job
        self.next_sequence = max(self.next_sequence, job.sequence + 1)
        was_pending, is_pending = (
            old is not None and old.state is JobState.PENDING,
            job.state is JobState.PENDING,
        )
        if is_pending and not was_pending:
            bisect.insort(self.queue, (job.sequence, job.id))
        elif was_pending and not is_pending:
            del self.queue[bisect.bisect_left(self.queue, (job.sequence, job.id))]
        if old is None or old.kill_requested != job.kill_requested or old.spec is not job.spec:
            for task_id in self.launches.get(job.id, ()):
                if task_id in self.live:
                    self.restless.enter(self.tasks[task_id], job)
        if job.state.ended:
            self.ended.setdefault(job.id)
        return old

    def set_array(self, array: JobArray) -> JobArray | None:
        """Put an array into the state; return the array that it replaces, or None."""
        old, self.arrays[array.id] = self.arrays.get(array.id), array
        self.next_sequence = max(self.next_sequence, array.sequence + array.indexes.count)
        return old

    def set_task(self, task: Task) -> None:
        """Put a task into the state."""
        if task.id not in self.tasks and task.job_id is not None:
            self.launches[task.job_id] = (*self.launches.get(task.job_id, ()), task.id)
        self.tasks[task.id] = task
        if task.preempted_for is not None:
            self.made_room.setdefault(task.preempted_for, {})[task.id] = None
        if task.unknown is None or task.ended:
            self.unknown.pop(task.id, None)
        else:
            self.unknown.setdefault(task.id)
        if task.ended:
            self.live.pop(task.id, None)
            self.restless.leave(task.id)
            self.ports.enter(task)
            self.released.pop(task.id, None)
            self.notified.pop(task.id, None)
        else:
            self.live.setdefault(task.id)
            self.restless.enter(task, self.jobs.get(task.job_id) if task.job_id else None)

    def forget_task(self, task: Task) -> None:
        """Remove an ended task of an unknown job."""
        del self.tasks[task.id]
        launches = self.launches.pop(task.job_id, ()) if task.job_id else ()
        others = tuple([task_id for task_id in launches if task_id != task.id])
        if task.job_id and others:
            self.launches[task.job_id] = others

    def forget_job(self, job_id: JobId) -> Job | None:
        """Remove an ended job and its tasks, and return it."""
        for task_id in self.launches.pop(job_id, ()):
            self.tasks.pop(task_id, None)
        job = self.jobs.pop(job_id, None)
        self.ended.pop(job_id, None)
        self.made_room.pop(job_id, None)
        self.idlenesses.pop(job_id, None)
        return job

    def job_of(self, task: Task) -> Job | None:
        """Return the job of a task."""
        return self.jobs.get(task.job_id) if task.job_id else None

    def tasks_of(self, job_id: JobId) -> list[Task]:
        """Return all launches of a job, oldest first."""
        return [self.tasks[task_id] for task_id in self.launches.get(job_id, ())]

    def live_of(self, job_id: JobId) -> list[TaskId]:
        """Return the launches of a job that have not ended."""
        return [task_id for task_id in self.launches.get(job_id, ()) if task_id in self.live]

    def current(self, task: Task) -> Job | None:
        """Return the job of a task of the job's latest launch; None for a task of an earlier launch."""
        job = self.jobs.get(task.job_id) if task.job_id else None
        if job is None:
            return None
        latest = task.launch == job.launches if task.launch else job.task_id == task.id
        return job if latest else None

    def round_of(self, job: Job) -> list[Task]:
        """Return the tasks of a job's latest launch, by rank."""
        if job.spec.tasks == 1:
            return [self.tasks[job.task_id]] if job.task_id else []
        tasks = (task for task in self.tasks_of(job.id) if task.launch == job.launches)
        return sorted(tasks, key=lambda task: task.rank)

    def holding_job(self, task: Task) -> Job | None:
        """Return the job for which a launch counts against its queue's limit, or None if it was given up."""
        job = None if task.ended else self.current(task)
        return None if job is None or job.state is JobState.PENDING else job

    def counted_milli(self, task: Task, job: Job) -> int:
        """Return the thousandths of GPUs that a launch counts as in its queue's limit.

        A task that may grow counts as its future size at once, and as its present size until it has ended. A MIG
        instance, which may be larger than its request, counts as the request.
        """
        counted, share = job.spec.counted_milli, task.counted_share
        if share is None or share.method is Method.MIG:
            return counted
        return max(counted, len(task.gpus) * share.compute_milli)
