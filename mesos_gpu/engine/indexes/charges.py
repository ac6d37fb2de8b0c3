"""Sums of what tasks hold, by queue, pool and user."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from typing import Final

from mesos_gpu.engine.books import NOTHING, Amounts
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import ROOT, QueueDocument
from mesos_gpu.policy.tenancy.tree import Tree, lineage

ALL: Final = "*"  # stands for all users in place of a user's name


@dataclass(slots=True)
class Sums:
    """Sums of charges of each queue and of the queues below it, up to `ROOT`.

    Attributes:
        amounts: Thousandths of cost by queue and pool.
        leaves: Cost, processors and memory that each queue is charged itself, by queue and pool.
        users: Thousandths of cost of all pools together, by queue and user or `ALL`.
        jobs: Number of jobs that hold anything, by queue and user or `ALL`.
        members: Number of tasks of each job.
        revision: Number that grows with each change.
    """

    amounts: Counter[tuple[str, str]] = field(default_factory=Counter)
    leaves: dict[tuple[str, str], Amounts] = field(default_factory=dict)
    users: Counter[tuple[str, str]] = field(default_factory=Counter)
    jobs: Counter[tuple[str, str]] = field(default_factory=Counter)
    members: Counter[JobId] = field(default_factory=Counter)
    revision: int = 0

    def add(self, job_id: JobId, charge: Charge, sign: int = 1) -> None:
        """Add the charge of a task of a job, or subtract it if `sign` is -1."""
        self.revision += 1
        before = self.members.get(job_id, 0)
        after = self.members[job_id] = before + sign
        if not after:
            del self.members[job_id]
        job, milli, user, pool = bool(after) - bool(before), sign * charge.milli, charge.user, charge.pool
        amounts, users, jobs = self.amounts, self.users, self.jobs
        self._add_own(charge, sign)
        for path in up(charge.queue):
            if milli:
                amounts[path, pool] += milli
                users[path, ALL] += milli
                users[path, user] += milli
            if job:
                jobs[path, ALL] += job
                jobs[path, user] += job

    def amount(self, queue: str, pool: str) -> int:
        """Return the usage of a pool by a queue and all queues below it, in thousandths of cost."""
        return self.amounts.get((queue, pool), 0)

    def _add_own(self, charge: Charge, sign: int) -> None:
        """Add a charge to the amounts that its queue is charged itself, or subtract it."""
        key = charge.queue, charge.pool
        cost, cpus, memory = self.leaves.get(key, NOTHING)
        total = cost + sign * charge.milli, cpus + sign * charge.cpus_milli, memory + sign * charge.mem_mib
        if any(total):
            self.leaves[key] = total
        else:
            self.leaves.pop(key, None)

    def copied(self) -> "Sums":
        """Return a copy of all sums that can be changed on its own."""
        return replace(
            self,
            amounts=self.amounts.copy(),
            leaves=self.leaves.copy(),
            users=self.users.copy(),
            jobs=self.jobs.copy(),
            members=self.members.copy(),
        )


#: Fields on which the charge of a job and a task depends, besides whether the job waits and the task has ended.
_CHARGED_BY: Final = {
    Job: attrgetter("spec", "owner", "launches", "task_id"),
    Task: attrgetter("job_id", "launch", "agent_id", "gpus", "share", "resize", "charge"),
}


@lru_cache(maxsize=4096)
def up(queue: str) -> tuple[str, ...]:
    """Return a queue and the queues above it, the queue first and `ROOT` last."""
    return (*lineage(queue), ROOT)


@dataclass(slots=True)
class Charges:
    """Charges of tasks, kept with the state from match to match.

    Attributes:
        document: Document of queues that the charges follow from.
        tree: Queues of the document and other queues that have a limit.
        limits: GPU limits of queues that the operator's command line names.
        of_task: Job and charge of each task.
        sums: Sums of these charges.
        are_by_model: Whether charges depend on the models of the GPUs of nodes, which become known late.
    """

    document: QueueDocument
    tree: Tree
    limits: Mapping[str, int]
    of_task: dict[TaskId, tuple[JobId, Charge]] = field(default_factory=dict)
    sums: Sums = field(default_factory=Sums)
    are_by_model: bool = field(init=False)

    def put(self, task_id: TaskId, entry: tuple[JobId, Charge] | None) -> None:
        """Replace the job and charge of a task; None removes them."""
        old = self.of_task.pop(task_id, None)
        if entry is not None:
            self.of_task[task_id] = entry
        if old != entry:
            if old is not None:
                self.sums.add(*old, -1)
            if entry is not None:
                self.sums.add(*entry)

    def __post_init__(self) -> None:
        self.are_by_model = bool(self.document.pools or self.document.gpu_cost)

    def differ(self, old: Job | Task, new: Job | Task) -> bool:
        """Return whether a change may have changed charges.

        Args:
            old: Task that has not ended, or job whose state (waiting or not) stays.
            new: Task or job after the change.
        """
        charged_by = _CHARGED_BY[type(new)]
        return self.are_by_model or charged_by(old) != charged_by(new)

    def copied(self) -> "Charges":
        """Return a copy of the charges and the sums."""
        return replace(self, of_task=dict(self.of_task), sums=self.sums.copied())

    def queue_of(self, job: Job) -> str:
        """Return the queue that a job is charged to."""
        return self.tree.charged_queue(job.spec.queue)
