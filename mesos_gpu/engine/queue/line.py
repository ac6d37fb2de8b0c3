"""The line of all jobs that wait, through the tree of queues, as things stand now."""

from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Protocol

from mesos_gpu.engine.indexes.leaves import Leaf, leaf_of
from mesos_gpu.engine.queue.budgets import Budgets
from mesos_gpu.engine.queue.held import Held
from mesos_gpu.engine.queue.las import Attained
from mesos_gpu.engine.room.hopeless import fit_nowhere
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.seat import Seat
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import DEFAULT_POOL
from mesos_gpu.policy.admission.limits import Wait
from mesos_gpu.policy.queueing.queue import in_line_since
from mesos_gpu.policy.tenancy.order import Amount, Entry, Line, Rank


class Standing(Protocol):
    """Where queues and users stand beside each other, as `engine.tenancy.shares.Shares`."""

    def due(self, path: str, pool: str, /) -> int:
        """What a queue is due of a pool, thousandths of cost."""

    def ranks(self, leaf: str, /) -> Mapping[str, int]:
        """Places of a leaf's users; who is not in it comes first."""

    def amount(self, pool: str, /) -> int:
        """What a pool has, thousandths of cost."""


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
        *,
        held_back: Callable[[Job], Wait | None],
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
            held_back: Why a job waits that no room could help; None: nothing of that kind.
        """
        self._held_back = held_back
        self.heads = set[
            JobId
        ]()  # of each leaf the first that borrows, if it waits too long; `jobs` finds them
        self._state, self._settings, self._now, self._held = state, settings, now, held
        self.tree, self._attained = held.tree, attained
        self._standing = standing
        self._due = self._plain_due if standing is None else standing.due
        self._is_by_model = bool(self.tree.document.pools or self.tree.document.gpu_cost)
        self._budgets = Budgets(state, now) if self.tree.lets_borrow else None
        self._seated = set[str]()  # leaves in which a job that waits has a seat

    @cached_property
    def _hopeless(self) -> Collection[JobId]:
        return fit_nowhere(self._state, self._now)

    def jobs(self) -> Iterator[Job]:
        """Each job, when its turn has come by what is held at that moment."""
        leaves = self._state.leaves_in(self.tree)
        of_job = leaves.of_job
        self._seated = {of_job[job_id] for job_id in self._state.quota.seats_given if job_id in of_job}
        entries = {path: self._entries(path, leaf) for path, leaf in leaves}
        return iter(Line(self.tree.children, self._once(self._due), self._held.sums, entries))

    @staticmethod
    def _once(due: Amount) -> Amount:
        """Work out what each queue is due once."""
        known: dict[tuple[str, str], int] = {}

        def again(path: str, pool: str) -> int:
            milli = known.get((path, pool))
            if milli is None:
                milli = known[path, pool] = due(path, pool)
            return milli

        return again

    def seat_for(self, job: Job) -> Seat | None:
        """The seat that the latest match gave to a pending job; None: it would borrow."""
        return self._state.quota.seats_given.get(job.id)

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

    def _in_order(self, path: str, leaf: Leaf) -> list[Job]:
        places = {} if self._standing is None else self._standing.ranks(path)
        ordered = leaf.put_in_order(
            self._state.work.jobs, self._now, self._settings.queue.aging_step_s, places
        )
        return self._attained.line(ordered) if self._attained.orders(ordered[0]) else ordered

    def _entries(self, path: str, leaf: Leaf) -> list[Entry[Job]]:
        """What the line sees of a leaf: first those that others were ended for, then those with seats."""
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
        """Put those in front of a leaf's entries that others were ended for, or that have a seat."""
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
        """Put the first of those that borrow in front of them, if it waits too long. Whom a rule holds back, as no
        room could help it, is in nobody's way."""
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
        """Since when the first job of a leaf waits, if that is too long; None: it is not."""
        after_s = self.tree.queues[leaf].resolved.starve_after_s
        if self._now - in_line_since(job) <= after_s:
            return None
        ended = max((task.ended_at or 0.0 for task in self._state.work.round_of(job)), default=0.0)
        since = max(in_line_since(job), ended)
        return since if self._now - since > after_s else None

    def _plain_due(self, queue: str, pool: str) -> int:
        spec = self.tree.specs[queue]
        owed = spec.guarantee_gpus.get(pool)
        return owed.milli if owed is not None and owed.milli else spec.weight * WHOLE


def _rank(entry: Entry[Job]) -> tuple[Rank, int, bool]:
    """The rank of an entry, since when others were ended for it, and whether it goes elsewhere."""
    return entry.rank, entry.since if entry.rank is Rank.ROOM_MADE else 0, entry.goes
