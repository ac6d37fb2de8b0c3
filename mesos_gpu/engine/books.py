"""Sums over jobs and past use, without which each step would look at all of them.

They are not saved. They are built on first use, and each change of the state updates them.
"""

from collections import Counter
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.usage import PastUse

Kind = tuple[str, tuple[str, ...], str | None]  # of pending jobs: queue, accepted models, and class
Amounts = tuple[int, int, int]  # thousandths of GPUs, or of cost; thousandths of CPUs; MiB of memory
NOTHING: Amounts = (0, 0, 0)


@dataclass(slots=True)
class Books:
    """Sums over jobs and past use; entries with a sum of zero are removed.

    Attributes:
        submitted: Number of pending and running jobs, by queue and user.
        wanted: Amounts that pending jobs ask for, by kind of job.
        users: Past use, by leaf and user.
        revision: Number that grows with each change of `wanted`.
        changes: Number that grows with each change of `users`, by leaf.
        notes: Caches of other modules that are derived from these sums; `copied` copies each with `copy`, so that
            later changes of one do not affect the other.
        arrays: Number of tasks without a job, and how many of them may start by the array's limit, by array.
    """

    submitted: Counter[tuple[str, str]] = field(default_factory=Counter)
    wanted: dict[Kind, Amounts] = field(default_factory=dict)
    users: dict[str, dict[str, PastUse]] = field(default_factory=dict)
    revision: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, tuple[int, int]] = field(default_factory=dict)

    def copied(self) -> "Books":
        """Return a copy of the sums and the notes."""
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
        """Update the sums after a change of a job.

        Args:
            old: Job before; None if it is new.
            new: Job now; None if it was removed.
        """
        if old is not None and new is not None and _counted_as(old) == _counted_as(new):
            return
        before, after = _owner(old), _owner(new)
        if before != after:
            for key, sign in ((before, -1), (after, 1)):
                if key is not None:
                    self.submitted[key] += sign
                    if not self.submitted[key]:
                        del self.submitted[key]
        old_spec, new_spec = waits(old), waits(new)
        if old_spec is new_spec or old_spec == new_spec:
            return
        for spec, sign in ((old_spec, -1), (new_spec, 1)):
            if spec is not None:
                _add(self.wanted, (spec.queue, spec.gpu_model, spec.job_class), asked(spec), sign)
                self.revision += 1

    def enter_array(self, array: JobArray, waiting: int, startable: int) -> None:
        """Update the sums after a change of an array.

        Args:
            array: Array that has changed.
            waiting: Number of its tasks without a job.
            startable: Number of these tasks that may start by the limit of the array.
        """
        (old_waiting, old_startable), key = (
            self.arrays.pop(array.id, (0, 0)),
            (array.spec.queue, array.charged_to),
        )
        if waiting:
            self.arrays[array.id] = waiting, startable
        if waiting != old_waiting:
            self.submitted[key] += waiting - old_waiting
            if not self.submitted[key]:
                del self.submitted[key]
        if startable != old_startable:
            spec = array.spec
            _add(
                self.wanted,
                (spec.queue, spec.gpu_model, spec.job_class),
                asked(spec),
                startable - old_startable,
            )
            self.revision += 1

    def enter_use(self, use: PastUse) -> None:
        """Set the past use of a user of a leaf."""
        self.users.setdefault(use.queue, {})[use.user] = use
        self.changes[use.queue] = self.changes.get(use.queue, 0) + 1

    def drop_use(self, queue: str, user: str) -> None:
        """Remove the past use of a user of a leaf."""
        del self.users[queue][user]
        self.changes[queue] = self.changes.get(queue, 0) + 1
        if not self.users[queue]:
            del self.users[queue]


def books_of(jobs: Iterable[Job], uses: Iterable[PastUse]) -> Books:
    """Return the sums over the jobs and past use of a state."""
    books = Books()
    for job in jobs:
        books.enter_job(None, job)
    for use in uses:
        books.enter_use(use)
    return books


def _counted_as(job: Job) -> tuple[object, ...]:
    """Return the parts of a job by which it counts."""
    return job.state is JobState.PENDING, job.state.ended, job.spec, job.owner


def _owner(job: Job | None) -> tuple[str, str] | None:
    """Return the queue and the user of a job that waits or runs; None if there is no such job."""
    return None if job is None or job.state.ended else (job.spec.queue, job.charged_to)


def waits(job: Job | None) -> JobSpec | None:
    """Return the request of a pending job; None for other jobs."""
    return job.spec if job is not None and job.state is JobState.PENDING else None


def asked(spec: JobSpec) -> Amounts:
    """Return the requested amounts of all tasks of a job, with GPUs in thousandths."""
    cpus_milli, mem_mib = cpus_and_memory(spec.cpus, spec.mem_mib)
    return spec.gpu_milli_in_all, cpus_milli * spec.tasks, mem_mib * spec.tasks


def cpus_and_memory(cpus: float, mem_mib: float) -> tuple[int, int]:
    """Return CPUs in thousandths and memory in MiB."""
    return round(cpus * 1000), round(mem_mib)


def _add(sums: dict[Any, Amounts], key: Any, amounts: Amounts, sign: int) -> None:
    """Add amounts to a sum, or subtract them (sign -1); a sum of zero is removed."""
    gpus, cpus, memory = sums.get(key, NOTHING)
    total = gpus + sign * amounts[0], cpus + sign * amounts[1], memory + sign * amounts[2]
    if any(total):
        sums[key] = total
    else:
        sums.pop(key, None)
