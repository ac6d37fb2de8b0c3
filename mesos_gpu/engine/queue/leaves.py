"""The pending jobs of each leaf in their order, kept with the state from match to match.

A leaf is put in order anew when one of its jobs has changed, when waiting has made one of them worth more, or when its
users have other places.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import DEFAULT_QUEUE, HIGHEST_PRIORITY, Job, JobState
from mesos_gpu.policy.queueing.queue import effective_priority, in_line_since
from mesos_gpu.policy.tenancy.order import Entry
from mesos_gpu.policy.tenancy.tree import Tree

Places = Mapping[str, int]  # of users; who is not in it comes first


def leaf_of(tree: Tree, job: Job) -> str:
    """The leaf where a job waits; of a queue that takes no jobs any more: the one of jobs that name none."""
    return tree.leaf_of(job.spec.queue) or DEFAULT_QUEUE


def rank_in_leaf(job: Job, now: float, step_s: float) -> tuple[int, ...]:
    """Where a job stands in its leaf whoever its user is, running or waiting: the lowest is first."""
    priority = effective_priority(job.priority, now - in_line_since(job), step_s)
    return job.room_made_at is None, -priority, job.sequence


def ruled_as(job: Job) -> Hashable:
    """What limits, and the rules of queues and classes, see of a job: those of one kind wait for the same."""
    spec = job.spec
    return (
        spec.queue, job.charged_to, spec.gpus, spec.gpu_milli, spec.gpu_compute_pct, spec.tasks, spec.gpu_model,
        spec.job_class, spec.preemptible, spec.timeout_s, spec.kill_grace_s,
    )  # fmt: skip


class Ranked(NamedTuple):
    """A waiting job that asks for GPUs.

    Attributes:
        rank: Of `rank_in_leaf`.
        job: It.
        milli: What each of its tasks counts as, thousandths of GPUs.
        kind: Jobs of its leaf that have the same number are alike for limits and rules.
    """

    rank: tuple[int, ...]
    job: Job
    milli: int
    kind: int


@dataclass(slots=True)
class Leaf:
    """The jobs that wait in a leaf.

    Attributes:
        members: Each, and its place in the order of submission.
        jobs: They, in their order.
        until: Then one of them is worth more, by waiting, seconds since the epoch.
        places: Of users, when it was put in order.
        step_s: So long a job waits that gains one of priority.
        entries: What the line sees of them while nobody has a seat or starves; None: it was not asked for.
        room_made: Whether others were ended for any of them.
        ranked: Those that ask for GPUs by `rank_in_leaf`; None: it was not asked for.
        ranked_in: From when and until when they stand so, and for which `step_s`.
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

    def by_rank(self, state: State, now: float, step_s: float) -> list[Ranked]:
        """The jobs that ask for GPUs, whoever their users are: first those that others were ended for, then by
        effective priority, then first come, first served."""
        since, until, known_step_s = self.ranked_in
        if self.ranked is not None and since <= now < until and step_s == known_step_s:
            return self.ranked
        kinds: dict[Hashable, int] = {}
        jobs = [job for job in self._submitted(state) if job.spec.gpus]
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

    def _submitted(self, state: State) -> list[Job]:
        """Return the jobs in the order of submission; those of one moment, as instances of an app, by their ids."""
        return [
            state.jobs[job_id] for _, job_id in sorted((place, id_) for id_, place in self.members.items())
        ]

    def forget(self) -> None:
        """Put its jobs in order anew when somebody asks: one of them has changed."""
        self.jobs = self.ranked = None

    def put_in_order(self, state: State, now: float, step_s: float, places: Places) -> list[Job]:
        """The jobs in their order: by their users' places, then effective priority, then first come, first served."""
        fresh = self.jobs is not None and now < self.until and places == self.places and step_s == self.step_s
        if self.jobs is not None and fresh:
            return self.jobs
        jobs = self._submitted(state)

        def place(job: Job) -> tuple[int, int]:
            priority = effective_priority(job.priority, now - in_line_since(job), step_s)
            return places.get(job.charged_to, 0) if places else 0, -priority

        self.jobs = sorted(jobs, key=place)  # a stable sort: equals stay as they were submitted
        self.until = min((_worth_more_at(job, now, step_s) for job in jobs), default=inf)
        self.places, self.step_s, self.entries = places, step_s, None
        self.room_made = any(job.room_made_at is not None for job in jobs)
        return self.jobs


def _worth_more_at(job: Job, now: float, step_s: float) -> float:
    """When a job's effective priority grows next."""
    if step_s in (0.0, inf) or job.priority >= HIGHEST_PRIORITY:
        return inf if step_s else now
    since = in_line_since(job)
    return since + (max(now - since, 0.0) // step_s + 1) * step_s


@dataclass(slots=True)
class Leaves:
    """All leaves in which anybody waits."""

    tree: Tree
    by_path: dict[str, Leaf] = field(default_factory=dict)
    of_job: dict[JobId, str] = field(default_factory=dict)

    def enter(self, job_id: JobId, job: Job | None) -> None:
        """A job has changed; None: it is forgotten."""
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
        """Copy the leaves; their orders are shared, as they are replaced and not changed."""
        by_path = {path: replace(leaf, members=dict(leaf.members)) for path, leaf in self.by_path.items()}
        return Leaves(self.tree, by_path, dict(self.of_job))

    def __iter__(self) -> Iterator[tuple[str, Leaf]]:
        return iter(self.by_path.items())


def leaves_of(state: State, tree: Tree) -> Leaves:
    """The leaves as they are now."""
    known: Leaves | None = state.leaves
    if known is None or known.tree is not tree:
        known = state.leaves = Leaves(tree)
        state.moved_jobs = {job_id for _, job_id in state.queue}
    if state.moved_jobs:
        for job_id in state.moved_jobs:
            known.enter(job_id, state.jobs.get(job_id))
        state.moved_jobs = set()
    return known
