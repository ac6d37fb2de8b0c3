"""Order of all pending jobs through the tree of queues, by present holdings."""

from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Protocol

from mesos_gpu.engine.indexes.leaves import Leaf, leaf_of
from mesos_gpu.engine.queue.budgets import Budgets
from mesos_gpu.engine.queue.held import Held
from mesos_gpu.engine.queue.las import AttainedServiceOrder
from mesos_gpu.engine.room.hopeless import fit_nowhere
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import DEFAULT_POOL
from mesos_gpu.policy.admission.limits import Wait
from mesos_gpu.policy.queueing.queue import in_line_since
from mesos_gpu.policy.tenancy.order import Amount, Entry, Line, Rank


class Standing(Protocol):
    """Fair shares of queues and order of users, as of `engine.tenancy.shares.Shares`."""

    def due(self, path: str, pool: str, /) -> int:
        """Return the fair share of a queue in a pool, in thousandths of cost."""

    def ranks(self, leaf: str, /) -> Mapping[str, int]:
        """Return the places of a leaf's users; a user who is missing comes first."""

    def amount(self, pool: str, /) -> int:
        """Return the capacity of a pool, in thousandths of cost."""


class PendingOrder:
    """Queue order: the pending jobs of each leaf in their order, and the order of them all.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        now: Time, in seconds since the epoch.
        held: Holdings of queues, kept up to date while jobs are drawn from the order.
        attained: Order of queues by attained service.
        standing: Fair shares of queues and places of users. None to use guarantees and weights alone, with users
            alike.
        held_back: Function that returns why a job waits that no room could help, or None.

    Attributes:
        heads: First borrowing job of each leaf if it waits too long; filled by `jobs`.
        tree: Tree of the queues.
    """

    def __init__(
        self,
        state: State,
        settings: Settings,
        now: float,
        held: Held,
        attained: AttainedServiceOrder,
        standing: Standing | None = None,
        *,
        held_back: Callable[[Job], Wait | None],
    ) -> None:
        self._held_back = held_back
        self.heads = set[JobId]()
        self._state, self._settings, self._now, self._held = state, settings, now, held
        self.tree, self._attained = held.tree, attained
        self._standing = standing
        self._due = self._plain_due if standing is None else standing.due
        self._is_by_model = bool(self.tree.document.pools or self.tree.document.gpu_cost)
        self._budgets = Budgets(state, now) if self.tree.lets_borrow else None
        self._seated = set[str]()  # leaf queues in which a pending job has guaranteed admission

    @cached_property
    def _hopeless(self) -> Collection[JobId]:
        """Jobs that fit on no node."""
        return fit_nowhere(self._state, self._now)

    def jobs(self) -> Iterator[Job]:
        """Return an iterator of pending jobs: each next job follows from the holdings at that moment."""
        leaves = self._state.leaves_in(self.tree)
        of_job = leaves.of_job
        self._seated = {of_job[job_id] for job_id in self._state.quota.seats_given if job_id in of_job}
        entries = {path: self._entries(path, leaf) for path, leaf in leaves}
        return iter(Line(self.tree.children, self._once(self._due), self._held.sums, entries))

    @staticmethod
    def _once(due: Amount) -> Amount:
        """Return a cache of the fair share of each queue."""
        cache: dict[tuple[str, str], int] = {}

        def again(path: str, pool: str) -> int:
            """Return the cached fair share of a queue."""
            milli = cache.get((path, pool))
            if milli is None:
                milli = cache[path, pool] = due(path, pool)
            return milli

        return again

    def seat_for(self, job: Job) -> GuaranteedAdmission | None:
        """Return the seat that the latest match gave to a pending job; None if the job would borrow."""
        return self._state.quota.seats_given.get(job.id)

    def pool_of(self, job: Job) -> str:
        """Return the pool in which the queue of a job is compared with other queues.

        Of the pools that the job may use and that have a model for it, this is the one in which its leaf has the
        smallest part of its fair share.
        """
        if not self.tree.document.pools:
            return DEFAULT_POOL
        leaf = leaf_of(self.tree, job)
        return min(
            self._held.pools_with(job), key=lambda pool: self._part(leaf, pool, job), default=DEFAULT_POOL
        )

    def _part(self, leaf: str, pool: str, job: Job) -> tuple[Fraction | int, str]:
        """Return the part of its fair share that a leaf would hold with a job in a pool."""
        share, cost = self._due(leaf, pool), self._held.amount(leaf, pool) + self._held.cost_of(job, pool)
        return (Fraction(cost, share) if share else cost << 64), pool

    def _in_order(self, path: str, leaf: Leaf) -> list[Job]:
        """Return the jobs of a leaf by the places of its users, or by attained service."""
        places = {} if self._standing is None else self._standing.ranks(path)
        ordered = leaf.put_in_order(
            self._state.work.jobs, self._now, self._settings.queue.aging_step_s, places
        )
        return self._attained.line(ordered) if self._attained.orders(ordered[0]) else ordered

    def _entries(self, path: str, leaf: Leaf) -> list[Entry[Job]]:
        """Return the entries of a leaf: jobs with room, then those with seats, a starving one, and the others."""
        jobs = self._in_order(path, leaf)
        if self._attained.orders(jobs[0]) or self._is_by_model or self._budgets is not None:
            entries = sorted(map(self._entry, jobs), key=_rank)  # a stable sort
        else:
            if leaf.entries is None:
                leaf.entries = [Entry(job, job.spec.gpu_milli_in_all) for job in jobs]
            entries = leaf.entries
            if leaf.room_made or path in self._seated:
                entries = self._with_first(entries)
        first = next((i for i, entry in enumerate(entries) if entry.rank >= Rank.BORROWER), None)
        return entries if first is None else self._with_starving(path, entries, first)

    def _with_first(self, entries: list[Entry[Job]]) -> list[Entry[Job]]:
        """Move jobs for which room was made, or that have a seat, to the front of a leaf's entries."""
        given = self._state.quota.seats_given
        first, rest = list[Entry[Job]](), list[Entry[Job]]()
        for entry in entries:
            job = entry.job
            if job.room_made_at is not None or job.id in given:
                first.append(self._entry(job))
            else:
                rest.append(entry)
        first.sort(key=_rank)  # a stable sort
        return [*first, *rest]

    def _with_starving(self, path: str, entries: list[Entry[Job]], first: int) -> list[Entry[Job]]:
        """Move the first borrowing job to the front of the borrowers if it waits too long.

        Jobs that a rule blocks, or that fit on no node, are passed over, as no room could help them.
        """
        for i in range(first, len(entries)):
            since = self._starves_since(path, entries[i].job)
            if since is None:
                break
            if self._held_back(entries[i].job) is None and entries[i].job.id not in self._hopeless:
                self.heads.add(entries[i].job.id)
                head = entries[i]._replace(rank=Rank.STARVING, since=int(since * 1000))
                return [*entries[:first], head, *entries[first:i], *entries[i + 1 :]]
        return entries

    def _entry(self, job: Job) -> Entry[Job]:
        """Return the entry of a job: its cost, pool and rank in the order."""
        if job.room_made_at is not None:
            pool, since = self.pool_of(job), int(job.room_made_at * 1000)
            goes = any(task.preempted_for is not None for task in self._state.work.round_of(job))
            return Entry(job, self._held.cost_of(job, pool), Rank.ROOM_MADE, pool, since, goes)
        seat = self.seat_for(job)
        pool = self.pool_of(job) if seat is None else seat.pool
        rank = Rank.BORROWER if seat is None else Rank.SEATED
        if seat is None and self._budgets is not None and self._budgets.must_borrow(job):
            rank = Rank.UNPAID
        return Entry(job, self._held.cost_of(job, pool), rank, pool)

    def _starves_since(self, leaf: str, job: Job) -> float | None:
        """Return since when the first job of a leaf starves, in seconds since the epoch; None if it does not."""
        after_s = self.tree.queues[leaf].resolved.starve_after_s
        if self._now - in_line_since(job) <= after_s:
            return None
        ended = max((task.ended_at or 0.0 for task in self._state.work.round_of(job)), default=0.0)
        since = max(in_line_since(job), ended)
        return since if self._now - since > after_s else None

    def _plain_due(self, queue: str, pool: str) -> int:
        """Return the guarantee of a queue, or its weight times one GPU without a guarantee."""
        spec = self.tree.specs[queue]
        guarantee = spec.guarantee_gpus.get(pool)
        return guarantee.milli if guarantee is not None and guarantee.milli else spec.weight * WHOLE


def _rank(entry: Entry[Job]) -> tuple[Rank, int, bool]:
    """Return the sort key of an entry: its rank, since when room is made for it, and whether it moves."""
    return entry.rank, entry.since if entry.rank is Rank.ROOM_MADE else 0, entry.goes
