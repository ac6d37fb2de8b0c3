"""Reasons that block a job before any node is examined.

Placement, `why`, preemption and reclaim use this list alone. Each entry decides whether it holds, explains itself,
and reports which running work would have to end. Hours are no entry: they are another tree at another time (ADR 51).
Reasons on one node (capacity, constraint, port, pace, a reservation there) are decided by
`mesos_gpu.policy.capacity.fit.misfits`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from typing import Final, Self

from mesos_gpu.engine.calendar.booked import booking_called
from mesos_gpu.engine.indexes.leaves import rank_in_leaf
from mesos_gpu.engine.queue.budgets import BudgetDeniesSeat, Budgets, BudgetSpent
from mesos_gpu.engine.queue.held import Held, Lending, has_room
from mesos_gpu.engine.queue.las import AttainedServiceOrder
from mesos_gpu.engine.queue.line import Standing
from mesos_gpu.engine.room.given_up import precedes
from mesos_gpu.engine.room.kept import Kept
from mesos_gpu.engine.state import State
from mesos_gpu.model.bookings.booking import Booking
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tenancy import DEFAULT_POOL, ROOT, JobClass
from mesos_gpu.model.words import counted
from mesos_gpu.policy.admission.limits import Lack, Scope, class_of, needs_seat, pools_apart, scopes_of
from mesos_gpu.policy.admission.reasons import ClassLeftQueue, NoSeat, QueueOnHold, Reason, ScopeLimit
from mesos_gpu.policy.calendar.local_times import shown
from mesos_gpu.policy.capacity.node import Reservation, Spare
from mesos_gpu.policy.room.reservation import ends_by
from mesos_gpu.policy.tenancy.tree import Bound, Tree, lineage


class Facts:
    """Facts of a match by which reasons are decided.

    Args:
        state: State of the engine.
        held: Holdings of queues and users, kept up to date by the ledger of the match.
        now: Time, in seconds since the epoch.
        attained: Order of queues by attained service.
        standing: Capacity of pools; None if it is unknown, and lend limits keep nothing.
        kept: Reservations of the match.
        aging_step_s: Seconds of wait that are worth one step of priority.

    Attributes:
        state: State of the engine.
        held: Holdings of queues and users, and pools of jobs.
        now: Time, in seconds since the epoch.
        attained: Order of queues by attained service.
        kept: Reservations of the match.
        tree: Queues of the document.
        budgets: State of budgets.
        lending: Lend limits of queues.
    """

    def __init__(
        self,
        state: State,
        held: Held,
        now: float,
        attained: AttainedServiceOrder,
        standing: Standing | None,
        kept: Kept,
        aging_step_s: float = inf,
    ) -> None:
        self.state, self.held, self.now, self.attained, self.kept = state, held, now, attained, kept
        self.tree, self.budgets = held.tree, Budgets(state, now)
        self.lending = Lending(state, held, None if standing is None else standing.amount)
        self._rank = partial(rank_in_leaf, now=now, step_s=aging_step_s)
        self._scopes: dict[tuple[str, str], tuple[Scope, ...]] = {}

    def bounds(self, job: Job) -> Sequence[Bound]:
        """Return the limits of GPUs of the queue of a job, and of those above it."""
        every = self.tree.bounds
        return every.get(self.held.queue_of(job), ()) if every and job.spec.gpu_milli_in_all else ()

    def bounds_of(self, job: Job, pool: str) -> list[Bound]:
        """Return those of `bounds` that are of a pool."""
        return [bound for bound in self.bounds(job) if bound.pool == pool]

    def scopes(self, job: Job) -> tuple[Scope, ...]:
        """Return the queues and users whose limits hold for a job."""
        key = self.held.queue_of(job), job.charged_to
        scopes = self._scopes.get(key)
        if scopes is None:
            scopes = self._scopes[key] = scopes_of(self.tree, *key)
        return scopes

    def spare_beside(self, case: "Case") -> Spare | None:
        """Return the amount under a limit that jobs with earlier reservations leave, if it is too little for a job.

        Returns:
            The first such limit; None if no reservation of an earlier job is in the way of the job.
        """
        job, cost = case.job, case.most
        ends_at = ends_by(job.spec, self.now)
        before = case.kept if job.id not in self.kept.jobs else self._before(job, case.kept)
        above = (*lineage(job.spec.queue), ROOT)
        return next(
            (
                spare
                for kept in before
                if kept.spares and self.attained.in_way(job, ends_at, kept) and not self._yields(kept, job)
                if not (kept.is_given_up and precedes(self.state, job, kept, self._rank))
                for spare in kept.spares
                if spare.pool == case.pool and spare.queue in above and cost > spare.milli
                if spare.queue != ROOT or not self.lending.takes_own(job, kept)
            ),
            None,
        )

    def _before(self, job: Job, every: Iterable[Reservation]) -> Iterator[Reservation]:
        """Yield the reservations of jobs before a job that has one: those after its own are of jobs behind it.

        Two kinds of jobs are not behind it: those for which others make room, too, and those that stand before a gang,
        if what is kept for the job is what it gave up as a gang.
        """
        own, jobs = None, self.state.work.jobs
        for kept in every:
            other = jobs.get(kept.job_id)
            if kept.job_id == job.id:
                own = own or kept
            elif own is None or (other is not None and self._stands_before(other, own)):
                yield kept

    def _stands_before(self, other: Job, own: Reservation) -> bool:
        """Return whether another job comes before the job of a reservation."""
        return precedes(self.state, other, own, self._rank) if own.is_given_up else has_room(other)

    def _yields(self, kept: Reservation, job: Job) -> bool:
        """Return whether a reservation is for a job that comes after another one for which room is kept, too: if a
        limit has room for one of them, neither could start otherwise."""
        other = self.state.work.jobs.get(kept.job_id) if has_room(job) else None
        if other is None or not has_room(other):
            return False
        return (-other.priority, other.sequence) > (-job.priority, job.sequence)


class Case:
    """Job for which reasons are decided, in one pool or in all that it may use.

    Attributes:
        facts: Facts of the match.
        job: Job that waits.
        pool: Name of the pool; "" for all pools that the job may use now.
        kept: Reservations of jobs before it.
        tree: Queues of the document.
        spec: Request of the job.
        budgets: Standing of budgets.
    """

    __slots__ = ("budgets", "facts", "job", "kept", "pool", "spec", "tree")

    def __init__(self, facts: Facts, job: Job, pool: str = "", kept: Sequence[Reservation] = ()) -> None:
        self.facts, self.job, self.pool, self.kept = facts, job, pool, kept
        self.tree, self.spec, self.budgets = facts.tree, job.spec, facts.budgets

    @property
    def lacks_seat(self) -> bool:
        """Whether the job starts only with a part of a guarantee, and has none."""
        return self.job.id not in self.facts.state.quota.seats_given and needs_seat(self.tree, self.spec)

    @property
    def most(self) -> int:
        """Cost of all tasks in the pool, or in that of all pools where they cost most, thousandths."""
        held = self.facts.held
        pools: Iterable[str] = (self.pool,) if self.pool else held.pools_of(self.job)
        return max((held.cost_of(self.job, pool) for pool in pools), default=0)

    @property
    def least(self) -> int:
        """Cost of all tasks in the pool, or in that of all pools with a fitting model where they cost least."""
        held = self.facts.held
        pools = (self.pool,) if self.pool else held.pools_with(self.job)
        return min((held.cost_of(self.job, pool) for pool in pools), default=self.most)

    @property
    def scopes(self) -> Sequence[Scope]:
        """Queues and users whose limits hold for the job."""
        return () if self.tree.is_flat else self.facts.scopes(self.job)

    def running(self, path: str, user: str) -> int:
        """Return the number of jobs of a queue and user that hold anything."""
        return self.facts.held.sums.jobs[path, user]

    def held(self, path: str, user: str) -> int:
        """Return the usage of all pools together by a queue and user, in thousandths of cost."""
        return self.facts.held.sums.users[path, user]

    def taken_below(self, queue: str) -> Iterable[tuple[Job, Charge]]:
        """Return the launches of this match so far in a queue and those below it, with their charges."""
        return self.facts.held.taken_below(queue)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingNotActive(Reason[Case]):
    """Reason: the booking that the job asks for has not begun, or has ended.

    Attributes:
        name: Name of the booking.
        booking: Booking that is to begin; None if it has ended.
    """

    name: str
    booking: Booking | None
    stage: Stage = Stage.BOOKING

    @classmethod
    def decide(cls, case: Case) -> Iterator[Self]:
        """Yield the booking of the job unless it is active."""
        if case.spec.booking is None:
            return
        booking = booking_called(case.facts.state, case.spec.booking)
        if booking is None or booking.state.ended:
            yield cls(name=case.spec.booking, booking=None)
        elif not booking.is_active:
            yield cls(name=booking.spec.name, booking=booking, until=float(booking.begins))

    def explain(self) -> str:
        """Return the text: when the booking begins, or that it has ended."""
        if self.booking is None:
            return f"booking {self.name} has ended"
        return f"its booking {self.name} begins {shown(self.booking.begins, self.booking.spec.zone)}"

    def lack(self) -> Lack | None:
        """Return None, as it is a matter of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookedGpusAlone(Reason[Case]):
    """Reason: the job may use the GPUs of its booking alone, so other room does not help it.

    Attributes:
        name: Name of the booking.
    """

    name: str
    stage: Stage = Stage.BOOKING

    @classmethod
    def decide(cls, case: Case) -> Iterator[Self]:
        """Yield the reason if the job asks for a booking."""
        if case.spec.booking is not None:
            yield cls(name=case.spec.booking)

    def explain(self) -> str:
        """Return the text: the job waits for GPUs of its booking."""
        return f"it runs on the GPUs of booking {self.name} alone, and they are in use"

    def lack(self) -> Lack | None:
        """Return None, as no job is ended for a job with a booking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPool(Reason[Case]):
    """Reason: no pool may be used by both the queue and the class of the job.

    Attributes:
        queue: Path of the queue.
        pools: Pools of the queue.
        job_class: Class of the job; None if it has none.
    """

    queue: str
    pools: Sequence[str]
    job_class: JobClass | None
    stage: Stage = Stage.POOL

    @classmethod
    def concerns(cls, tree: Tree) -> bool:
        """Return whether the tree has pools."""
        return bool(tree.document.pools)

    @classmethod
    def decide(cls, case: Case) -> Iterator[Self]:
        """Yield the reason if the job may use no pool."""
        if not case.facts.held.pools_of(case.job):
            queue = case.spec.queue
            class_spec = class_of(case.tree, case.spec.job_class)
            yield cls(queue=queue, pools=case.tree.pools_of(queue), job_class=class_spec)

    def explain(self) -> str:
        """Return the text: the pools of the queue and those of the class."""
        return pools_apart(self.queue, self.pools, self.job_class)

    def lack(self) -> Lack | None:
        """Return None, because no end of a job helps, only a change of the queue document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimit(Reason[Case]):
    """Reason: the limit of a queue, or of one above it, in a pool is reached.

    Attributes:
        bound: Limit, with the queue that has it.
        has: Amount that the queue holds, in thousandths of cost.
        cost: Amount that the job asks for, in thousandths of cost.
    """

    bound: Bound
    has: int
    cost: int
    stage: Stage = Stage.QUEUE_LIMIT

    @classmethod
    def decide(cls, case: Case) -> Iterator[Self]:
        """Yield each limit that the job would exceed with what the queue of the limit holds."""
        cost = case.most
        for bound in case.facts.bounds_of(case.job, case.pool):
            has = case.facts.held.amount(bound.path, case.pool)
            if has + cost > bound.milli:
                yield cls(bound=bound, has=has, cost=cost)

    def explain(self) -> str:
        """Return the text: the queue, its limit, and what it holds."""
        return _holds(self.bound, self.has)

    def explain_never(self) -> str:
        """Return the text for a limit that the job alone exceeds."""
        return f"{_may_hold(self.bound)}, and it asks for {number_of(self.cost)}"

    def lack(self) -> Lack | None:
        """Return the excess over the limit; None if the job alone exceeds it."""
        if self.cost > self.bound.milli:
            return None
        return Lack(self.has + self.cost - self.bound.milli, self.bound.path, self.bound.pool)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimitKept(Reason[Case]):
    """Reason: the rest of a limit, or of what other queues lend, is reserved for a job before this one.

    Attributes:
        spare: Rest that is left beside what is reserved.
        bound: Limit; None for what other queues lend.
        has: Amount that the queue of the limit holds, in thousandths of cost.
        cost: Amount that the job asks for, in thousandths of cost.
    """

    spare: Spare
    bound: Bound | None
    has: int
    cost: int

    @classmethod
    def decide(cls, case: Case) -> Iterator[Self]:
        """Yield the first reservation that leaves too little of a limit."""
        bounds = case.facts.bounds_of(case.job, case.pool)
        if not bounds and case.pool not in case.tree.lenders:
            return
        spare = case.facts.spare_beside(case)
        if spare is None:
            return
        bound = (
            None
            if spare.queue == ROOT
            else next(pool_bound for pool_bound in bounds if pool_bound.path == spare.queue)
        )
        has = case.facts.held.amount(spare.queue, case.pool)
        stage = Stage.GUARANTEE if bound is None else Stage.QUEUE_LIMIT
        yield cls(stage=stage, spare=spare, bound=bound, has=has, cost=case.most)

    def explain(self) -> str:
        """Return the text: the limit, and that the rest is reserved."""
        if self.bound is None:
            return f"what other queues lend{_of(self.spare.pool)} is kept for a job before it"
        return f"{_holds(self.bound, self.has)}; the rest is kept for a job before it"

    def lack(self) -> Lack | None:
        """Return the usage that must end before the job fits the rest; None if the job alone exceeds the limit."""
        if self.bound is not None and self.cost > self.bound.milli:
            return None
        return Lack(ceil(self.cost - self.spare.milli), self.spare.queue, self.spare.pool)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotLent(Reason[Case]):
    """Reason: lend limits keep the free part of a pool for other queues.

    Attributes:
        pool: Name of the pool.
        free: Free capacity of the pool, in thousandths of cost.
        kept: Capacity that lend limits keep, in thousandths of cost.
        cost: Amount that the job asks for, in thousandths of cost.
    """

    pool: str
    free: int
    kept: int
    cost: int
    stage: Stage = Stage.GUARANTEE

    @classmethod
    def concerns(cls, tree: Tree) -> bool:
        """Return whether the tree has lend limits."""
        return bool(tree.lenders)

    @classmethod
    def decide(cls, case: Case) -> Iterator[Self]:
        """Yield the reason if what is free beside lend limits is too little for the job."""
        return cls.of_growth(case.facts, case.job, case.pool, case.most)

    @classmethod
    def of_growth(cls, facts: Facts, job: Job, pool: str, cost: int) -> Iterator[Self]:
        """Yield the reason if what is free beside lend limits is too little for a job to hold more.

        Args:
            facts: Facts of the match.
            job: Job that waits, or that runs and grows.
            pool: Name of the pool.
            cost: Amount that the job takes beyond what it holds, in thousandths of cost.
        """
        free, kept = facts.lending.beside(job, pool)
        if kept and kept + cost > free:
            yield cls(pool=pool, free=free, kept=kept, cost=cost)

    def explain(self) -> str:
        """Return the text: what is free, and how much of it lend limits keep."""
        free = f"{_gpus(max(self.free, 0))}{_of(self.pool)} are free"
        keep = f"of these queues keep {number_of(self.kept)} for themselves by their lend_limit_gpus"
        return f"{free}, and {keep}"

    def lack(self) -> Lack | None:
        """Return the usage that jobs of all queues together must give back."""
        return Lack(self.kept + self.cost - self.free, ROOT, self.pool)


#: Reasons that block a job in all pools, the most decisive first; a seat helps only if nothing else blocks it.
IN_ALL_POOLS: Final[tuple[type[Reason[Case]], ...]] = (
    BookingNotActive,
    QueueOnHold,
    ClassLeftQueue,
    NoPool,
    BudgetDeniesSeat,
    BudgetSpent,
    ScopeLimit,
    NoSeat,
)
#: Reasons for which no reservation of other room helps a job.
BESIDE_BOOKED: Final[tuple[type[Reason[Case]], ...]] = (BookedGpusAlone,)
#: Reasons that block a job in one pool, the most decisive first.
IN_ONE_POOL: Final[tuple[type[Reason[Case]], ...]] = (PoolLimit, PoolLimitKept, ScopeLimit, NotLent)


def _may_hold(bound: Bound) -> str:
    """Return a limit in words."""
    return f"queue {bound.path} may hold {_gpus(bound.milli)}{_of(bound.pool)}"


def _holds(bound: Bound, has: int) -> str:
    """Return a limit and what its queue holds, in words."""
    return f"{_may_hold(bound)}, and holds {number_of(has)}"


def _gpus(milli: int) -> str:
    """Return thousandths of GPUs as a number of GPUs, in words."""
    return counted(number_of(milli), "GPU")


def _of(pool: str) -> str:
    """Return " of pool NAME"; "" for the default pool."""
    return "" if pool == DEFAULT_POOL else f" of pool {pool}"
