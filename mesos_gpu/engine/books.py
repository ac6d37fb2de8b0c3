"""What follows from jobs and past use and would cost a look at all of them, while there is a tree of queues.

Nothing here is saved. It is made when it is first asked for, and each change of the state is entered.
"""

from collections import Counter
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.usage import PastUse

Kind = tuple[
    str, tuple[str, ...], str | None
]  # of jobs that wait: the queue, the models that will do, and the class
Amounts = tuple[int, int, int]  # thousandths of GPUs, or of cost; thousandths of CPUs; MiB of memory
NOTHING: Amounts = (0, 0, 0)


@dataclass(slots=True)
class Books:
    """Sums, each entry only while it is not zero.

    Attributes:
        submitted: Jobs that wait or run, by queue and user.
        wanted: What jobs that wait ask for, in thousandths of GPUs.
        users: What is remembered of past use, by leaf and user.
        revision: Grows with each change of `wanted`.
        changes: Of `users`, by leaf: grows with each.
        notes: What others have worked out from these, and may forget; `copy` copies each, so that later changes of one
            do not affect the other.
        arrays: By array, how many tasks wait of which there is no job, and how many of them its limit lets start.
    """

    submitted: Counter[tuple[str, str]] = field(default_factory=Counter)
    wanted: dict[Kind, Amounts] = field(default_factory=dict)
    users: dict[str, dict[str, PastUse]] = field(default_factory=dict)
    revision: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, tuple[int, int]] = field(default_factory=dict)

    def copied(self) -> "Books":
        """Copy the sums and the notes."""
        return replace(
            self,
            submitted=self.submitted.copy(),
            wanted=dict(self.wanted),
            users={leaf: dict(uses) for leaf, uses in self.users.items()},
            changes=dict(self.changes),
            notes={name: copy(note) for name, note in self.notes.items()},
            arrays=dict(self.arrays),
        )

    def enter_job(self, old: Job | None, new: Job | None) -> None:
        """A job has become another; None: it was not there, or is not any more."""
        if old is not None and new is not None and _counted_as(old) == _counted_as(new):
            return
        before, after = _owner(old), _owner(new)
        if before != after:
            for key, sign in ((before, -1), (after, 1)):
                if key is not None:
                    self.submitted[key] += sign
                    if not self.submitted[key]:
                        del self.submitted[key]
        was, now = waits(old), waits(new)
        if was is now or was == now:
            return
        for spec, sign in ((was, -1), (now, 1)):
            if spec is not None:
                _add(self.wanted, (spec.queue, spec.gpu_model, spec.job_class), asked(spec), sign)
                self.revision += 1

    def enter_array(self, array: JobArray, waiting: int, startable: int) -> None:
        """So many tasks of an array wait without a job, and its limit lets so many of them start."""
        (had, could), key = self.arrays.pop(array.id, (0, 0)), (array.spec.queue, array.charged_to)
        if waiting:
            self.arrays[array.id] = waiting, startable
        if waiting != had:
            self.submitted[key] += waiting - had
            if not self.submitted[key]:
                del self.submitted[key]
        if startable != could:
            spec = array.spec
            _add(self.wanted, (spec.queue, spec.gpu_model, spec.job_class), asked(spec), startable - could)
            self.revision += 1

    def enter_use(self, use: PastUse) -> None:
        """What is remembered of a user of a leaf has become this."""
        self.users.setdefault(use.queue, {})[use.user] = use
        self.changes[use.queue] = self.changes.get(use.queue, 0) + 1

    def drop_use(self, queue: str, user: str) -> None:
        """Nothing is remembered of a user of a leaf any more."""
        del self.users[queue][user]
        self.changes[queue] = self.changes.get(queue, 0) + 1
        if not self.users[queue]:
            del self.users[queue]


def books_of(jobs: Iterable[Job], uses: Iterable[PastUse]) -> Books:
    """The books of a state."""
    books = Books()
    for job in jobs:
        books.enter_job(None, job)
    for use in uses:
        books.enter_use(use)
    return books


def _counted_as(job: Job) -> tuple[object, ...]:
    """Return what of a job decides how it counts."""
    return job.state is JobState.PENDING, job.state.ended, job.spec, job.owner


def _owner(job: Job | None) -> tuple[str, str] | None:
    """Return the queue and the user of a job that waits or runs; None if there is no such job."""
    return None if job is None or job.state.ended else (job.spec.queue, job.charged_to)


def waits(job: Job | None) -> JobSpec | None:
    """What a job asks for that waits."""
    return job.spec if job is not None and job.state is JobState.PENDING else None


def asked(spec: JobSpec) -> Amounts:
    """What all tasks of a job ask for, in thousandths of GPUs."""
    cpus_milli, mem_mib = cpus_and_memory(spec.cpus, spec.mem_mib)
    return spec.gpu_milli_in_all, cpus_milli * spec.tasks, mem_mib * spec.tasks


def cpus_and_memory(cpus: float, mem_mib: float) -> tuple[int, int]:
    """What one task asks for beside GPUs: thousandths of CPUs, and MiB."""
    return round(cpus * 1000), round(mem_mib)


def _add(sums: dict[Any, Amounts], key: Any, amounts: Amounts, sign: int) -> None:
    gpus, cpus, memory = sums.get(key, NOTHING)
    total = gpus + sign * amounts[0], cpus + sign * amounts[1], memory + sign * amounts[2]
    if any(total):
        sums[key] = total
    else:
        sums.pop(key, None)
