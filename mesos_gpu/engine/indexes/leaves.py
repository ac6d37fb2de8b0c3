"""Pending jobs of each leaf in their order, kept with the state from match to match.

A leaf is put in order again when one of its jobs has changed, when waiting has raised the priority of one, or when
the places of its users have changed.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import DEFAULT_QUEUE, HIGHEST_PRIORITY, Job, JobState
from mesos_gpu.policy.queueing.queue import effective_priority, in_line_since
from mesos_gpu.policy.tenancy.order import Entry
from mesos_gpu.policy.tenancy.tree import Tree

Places = Mapping[str, int]  # places of users; a user without a place comes first


def leaf_of(tree: Tree, job: Job) -> str:
    """Return the leaf of a job; the default one if its queue takes no jobs any more."""
    return tree.leaf_of(job.spec.queue) or DEFAULT_QUEUE


def rank_in_leaf(job: Job, now: float, step_s: float) -> tuple[int, ...]:
    """Return the rank of a running or waiting job in its leaf, regardless of its user; the lowest is first."""
    priority = effective_priority(job.priority, now - in_line_since(job), step_s)
    return job.room_made_at is None, -priority, job.sequence


def ruled_as(job: Job) -> Hashable:
    """Return a key of a job; limits and rules of queues and classes treat jobs with one key alike."""
    spec = job.spec
    return (
        spec.queue, job.charged_to, spec.gpus, spec.gpu_milli, spec.gpu_compute_pct, spec.tasks, spec.gpu_model,
        spec.job_class, spec.preemptible, spec.timeout_s, spec.kill_grace_s,
    )  # fmt: skip


class Ranked(NamedTuple):
    """A waiting job that asks for GPUs.

    Attributes:
        rank: Rank as of `rank_in_leaf`.
        job: Job that waits.
        milli: Thousandths of GPUs that each of its tasks counts as.
        kind: Number that jobs of the leaf share if limits and rules see no difference.
    """

    rank: tuple[int, ...]
    job: Job
    milli: int
    kind: int


@dataclass(slots=True)
class Leaf:
    """Jobs that wait in a leaf.

    Attributes:
        members: Place of each job in the order of submission.
        jobs: Jobs in their order; None if they must be put in order.
        until: Time at which a job's priority has grown by waiting, in seconds since the epoch.
        places: Places of users when the jobs were put in order.
        step_s: Seconds after which a job that waits gains one of priority.
        entries: Entries of the line while no job has a seat or starves; None until first used.
        room_made: Whether other jobs were ended for any of the jobs.
        ranked: Jobs that ask for GPUs by `rank_in_leaf`; None until first used.
        ranked_in: Begin and end of the time for which that order holds, and its `step_s`.
    """

    members: dict[JobId, int] = field(default_factory=dict)
    jobs: list[Job] | None = None
    until: float = inf
    places: Places = field(default_factory=dict)
    step_s: float = inf
    entries: list[Entry[Job]] | None = None
    room_made: bool = False
    ranked: list[Ranked] | None = None
    ranked_in: tuple[float, float, float] = inf, -inf, inf

    def by_rank(self, known: Mapping[JobId, Job], now: float, step_s: float) -> list[Ranked]:
        """Return the jobs that ask for GPUs regardless of their users.

        Jobs that others were ended for come first, then the order is by effective priority and submission.

        Args:
            known: Jobs by their ids.
            now: Time in seconds since the epoch.
            step_s: Seconds after which a job that waits gains one of priority.
        """
        since, until, known_step_s = self.ranked_in
        if self.ranked is not None and since <= now < until and step_s == known_step_s:
            return self.ranked
        kinds: dict[Hashable, int] = {}
        jobs = [job for job in self._submitted(known) if job.spec.gpus]
        self.ranked = [
            Ranked(
                rank_in_leaf(job, now, step_s),
                job,
                job.spec.counted_milli,
                kinds.setdefault(ruled_as(job), len(kinds)),
            )
            for job in jobs
        ]
        self.ranked.sort(key=lambda each: each.rank)
        self.ranked_in = now, min((_worth_more_at(job, now, step_s) for job in jobs), default=inf), step_s
        return self.ranked

    def _submitted(self, known: Mapping[JobId, Job]) -> list[Job]:
        """Return the jobs in the order of submission; of jobs with one submission time, by their ids."""
        return [known[job_id] for _, job_id in sorted((place, id_) for id_, place in self.members.items())]

    def forget(self) -> None:
        """Drop the order, as one of the jobs has changed."""
        self.jobs = self.ranked = None

    def put_in_order(
        self, known: Mapping[JobId, Job], now: float, step_s: float, places: Places
    ) -> list[Job]:
        """Return the jobs by their users' places, then effective priority, then submission.

        Args:
            known: Jobs by their ids.
            now: Time in seconds since the epoch.
            step_s: Seconds after which a job that waits gains one of priority.
            places: Places of users in the line.
        """
        fresh = self.jobs is not None and now < self.until and places == self.places and step_s == self.step_s
        if self.jobs is not None and fresh:
            return self.jobs
        jobs = self._submitted(known)

        def place(job: Job) -> tuple[int, int]:
            """Return the sort key of a job: the place of its user, then its effective priority."""
            priority = effective_priority(job.priority, now - in_line_since(job), step_s)
            return places.get(job.charged_to, 0) if places else 0, -priority

        self.jobs = sorted(jobs, key=place)  # a stable sort keeps the order of submission
        self.until = min((_worth_more_at(job, now, step_s) for job in jobs), default=inf)
        self.places, self.step_s, self.entries = places, step_s, None
        self.room_made = any(job.room_made_at is not None for job in jobs)
        return self.jobs


def _worth_more_at(job: Job, now: float, step_s: float) -> float:
    """Return the time at which a job's effective priority grows next, in seconds since the epoch."""
    if step_s in (0.0, inf) or job.priority >= HIGHEST_PRIORITY:
        return inf if step_s else now
    since = in_line_since(job)
    return since + (max(now - since, 0.0) // step_s + 1) * step_s


@dataclass(slots=True)
class Leaves:
    """All leaves in which jobs wait."""

    tree: Tree
    by_path: dict[str, Leaf] = field(default_factory=dict)
    of_job: dict[JobId, str] = field(default_factory=dict)

    def enter(self, job_id: JobId, job: Job | None) -> None:
        """Update the leaves after a change of a job.

        Args:
            job_id: Id of the job.
            job: Job now; None if it was removed.
        """
        waits = job is not None and job.state is JobState.PENDING
        old = self.of_job.pop(job_id, None)
        if old is not None:
            leaf = self.by_path[old]
            del leaf.members[job_id]
            leaf.forget()
            if not leaf.members:
                del self.by_path[old]
        if job is not None and waits:
            path = self.of_job[job_id] = leaf_of(self.tree, job)
            leaf = self.by_path.setdefault(path, Leaf())
            leaf.members[job_id] = job.sequence
            leaf.forget()

    def copied(self) -> "Leaves":
        """Return a copy of the leaves; orders are shared, as they are replaced and never changed."""
        by_path = {path: replace(leaf, members=dict(leaf.members)) for path, leaf in self.by_path.items()}
        return Leaves(self.tree, by_path, dict(self.of_job))

    def __iter__(self) -> Iterator[tuple[str, Leaf]]:
        return iter(self.by_path.items())
