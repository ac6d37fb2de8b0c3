"""The line of all jobs that wait, through the tree of queues, as things stand now."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Protocol

from mesos_gpu.engine.queue.held import Held
from mesos_gpu.engine.queue.las import Attained
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.jobs.job import DEFAULT_QUEUE, Job
from mesos_gpu.model.seat import Seat
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import DEFAULT_POOL
from mesos_gpu.policy.queueing.queue import effective_priority, in_line_since
from mesos_gpu.policy.tenancy.order import Entry, Line, Rank
from mesos_gpu.policy.tenancy.tree import Tree


class Standing(Protocol):
    """Where queues and users stand beside each other, as `engine.tenancy.shares.Shares`."""

    def due(self, path: str, pool: str, /) -> int:
        """What a queue is due of a pool, thousandths of cost."""

    def ranks(self, leaf: str, /) -> Mapping[str, int]:
        """Places of a leaf's users; who is not in it comes first."""

    def amount(self, pool: str, /) -> int:
        """What a pool has, thousandths of cost."""


def leaf_of(tree: Tree, job: Job) -> str:
    """The leaf where a job waits; of a queue that takes no jobs any more: the one of jobs that name none."""
    queue = tree.queues.get(job.spec.queue)
    return job.spec.queue if queue is not None and queue.is_leaf else DEFAULT_QUEUE


class Waits:
    """The pending jobs of each leaf, in their order, and the line of them all."""

    def __init__(
        self,
        state: State,
        settings: Settings,
        now: float,
        held: Held,
        attained: Attained,
        standing: Standing | None = None,
    ) -> None:
        """Look at no job yet.

        Args:
            state: The engine's.
            settings: The operator's.
            now: Seconds since the epoch.
            held: What queues hold, kept up to date while the line is asked.
            attained: The order of leaves whose jobs stand by the service that they have had.
            standing: What queues are due, and the places of users; None: only guarantees and weights count, and users
                are alike.
        """
        self._state, self._settings, self._now, self._held = state, settings, now, held
        self.tree, self._attained = held.tree, attained
        self._standing = standing
        self._due = self._plain_due if standing is None else standing.due
        self._leaves: dict[str, list[Job]] | None = None

    def jobs(self) -> Iterator[Job]:
        """Each job, when its turn has come by what is held at that moment."""
        entries = {leaf: self._entries(leaf, jobs) for leaf, jobs in self._by_leaf().items()}
        return iter(Line(self.tree.children, self._due, self._held.amount, entries))

    def seat_for(self, job: Job) -> Seat | None:
        """The seat that the latest match gave to a pending job; None: it would borrow."""
        return self._state.seats_given.get(job.id)

    def pool_of(self, job: Job) -> str:
        """The pool in which its queue is compared with others: of those that it may use, and that have what it asks
        for, the one of which its leaf has the smallest part of what it is due."""
        if not self.tree.document.pools:
            return DEFAULT_POOL
        leaf = leaf_of(self.tree, job)
        return min(
            self._held.pools_with(job), key=lambda pool: self._part(leaf, pool, job), default=DEFAULT_POOL
        )

    def _part(self, leaf: str, pool: str, job: Job) -> tuple[Fraction | int, str]:
        due, cost = self._due(leaf, pool), self._held.amount(leaf, pool) + self._held.cost_of(job, pool)
        return (Fraction(cost, due) if due else cost << 64), pool

    def _by_leaf(self) -> dict[str, list[Job]]:
        """Jobs in the order of their queue."""
        if self._leaves is None:
            leaves: dict[str, list[Job]] = {}
            for _, job_id in self._state.queue:
                job = self._state.jobs[job_id]
                leaves.setdefault(leaf_of(self.tree, job), []).append(job)
            self._leaves = {leaf: self._in_order(leaf, jobs) for leaf, jobs in leaves.items()}
        return self._leaves

    def _in_order(self, leaf: str, jobs: Sequence[Job]) -> list[Job]:
        now, step_s = self._now, self._settings.aging_step_s
        ranks = {} if self._standing is None else self._standing.ranks(leaf)

        def place(job: Job) -> tuple[int, int]:
            rank = ranks.get(job.charged_to, 0) if ranks else 0
            return rank, -effective_priority(job.spec.priority, now - in_line_since(job), step_s)

        ordered = sorted(jobs, key=place)  # a stable sort: equals stay as they were submitted
        return self._attained.line(ordered) if self._attained.orders(ordered[0]) else ordered

    def _entries(self, leaf: str, jobs: Sequence[Job]) -> list[Entry[Job]]:
        first, seated, others = [], [], []
        for job in jobs:
            if job.room_made_at is not None:
                pool = self.pool_of(job)
                cost = self._held.cost_of(job, pool)
                first.append(Entry(job, cost, Rank.ROOM_MADE, pool, int(job.room_made_at * 1000)))
            elif (seat := self.seat_for(job)) is not None:
                seated.append(Entry(job, self._held.cost_of(job, seat.pool), Rank.SEATED, seat.pool))
            else:
                pool = self.pool_of(job)
                others.append(Entry(job, self._held.cost_of(job, pool), Rank.BORROWER, pool))
        if others:
            since = self._starves_since(leaf, others[0].job)
            if since is not None:
                others[0] = others[0]._replace(rank=Rank.STARVING, since=int(since * 1000))
        return first + seated + others

    def _starves_since(self, leaf: str, job: Job) -> float | None:
        """Since when the first job of a leaf waits, if that is too long; None: it is not."""
        after_s = self.tree.queues[leaf].resolved.starve_after_s
        if self._now - in_line_since(job) <= after_s:
            return None
        ended = max((task.ended_at or 0.0 for task in self._state.round_of(job)), default=0.0)
        since = max(in_line_since(job), ended)
        return since if self._now - since > after_s else None

    def _plain_due(self, queue: str, pool: str) -> int:
        spec = self.tree.specs[queue]
        owed = spec.guarantee_gpus.get(pool)
        return owed.milli if owed is not None and owed.milli else spec.weight * WHOLE
