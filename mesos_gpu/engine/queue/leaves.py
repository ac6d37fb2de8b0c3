"""The pending jobs of each leaf in their order, kept with the state from match to match.

A leaf is put in order anew when one of its jobs has changed, when waiting has made one of them worth more, or when its
users have other places.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

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
    """

    members: dict[JobId, int] = field(default_factory=dict)
    jobs: list[Job] | None = None
    until: float = inf
    places: Places = field(default_factory=dict)
    step_s: float = inf
    entries: list[Entry[Job]] | None = None
    room_made: bool = False

    def put_in_order(self, state: State, now: float, step_s: float, places: Places) -> list[Job]:
        """The jobs in their order: by their users' places, then effective priority, then first come, first served."""
        fresh = self.jobs is not None and now < self.until and places == self.places and step_s == self.step_s
        if self.jobs is not None and fresh:
            return self.jobs
        submitted = sorted(self.members, key=self.members.__getitem__)
        jobs = [state.jobs[job_id] for job_id in submitted]

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
            leaf.jobs = None
            if not leaf.members:
                del self.by_path[old]
        if job is not None and waits:
            path = self.of_job[job_id] = leaf_of(self.tree, job)
            leaf = self.by_path.setdefault(path, Leaf())
            leaf.members[job_id] = job.sequence
            leaf.jobs = None

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
