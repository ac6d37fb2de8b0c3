"""Guaranteed admission (seats) of jobs: running jobs keep theirs; free places go to the next jobs of each queue."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import merge

from mesos_gpu.engine.calendar.booked import booked_for, owner_of
from mesos_gpu.engine.charges import cells_now, cost_of_granted, pool_of_node, tree_of
from mesos_gpu.engine.indexes.leaves import Leaf, Ranked, leaf_of, rank_in_leaf
from mesos_gpu.engine.queue.budgets import Budgets
from mesos_gpu.engine.queue.held import Pools
from mesos_gpu.engine.queue.las import AttainedServiceOrder
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.room.given_up import keeps_seat
from mesos_gpu.engine.room.hopeless import fit_nowhere
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.sparing import spared
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.bookings.booking import Booking
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.seat import GuaranteedAdmission
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import DEFAULT_POOL
from mesos_gpu.policy.queueing.queue import in_line_since
from mesos_gpu.policy.tenancy.cells import Cells, without
from mesos_gpu.policy.tenancy.seats import Ask, Held, Room, give, kept, seat_in
from mesos_gpu.policy.tenancy.tree import Tree, lineage

MayStart = Callable[[Job, str], bool]  # for a pending job and a pool


@dataclass(frozen=True)
class Ground:
    """Pools and cells (parts of guarantees) that jobs are admitted into, and what jobs take of them."""

    state: State
    tree: Tree
    now: float

    def pool_of(self, node: Node | None) -> str:
        """Return the pool of a node; the default pool for an unknown node."""
        return pool_of_node(self.tree, node)

    @cached_property
    def pools(self) -> Pools:
        """Pools that jobs may use."""
        return Pools(self.state, self.tree, self.now)

    @property
    def cells(self) -> Cells:
        """Cells of all queues, without what active bookings of the queues take."""
        cells = cells_now(self.state, self.tree)
        return cells if not self.state.calendar.bookings else self._beside_booked(cells)

    def _beside_booked(self, cells: Cells) -> Cells:
        """Return cells without what is booked in them now, which other jobs of the queue cannot use."""
        left = dict(cells)
        for booking in self.state.calendar.bookings.values():
            key = owner_of(self.state, booking.spec), booking.spec.pool
            if (
                booking.is_active and key[0] and key in left
            ):  # an empty cell stays, as seats name cells by number
                left[key] = tuple(without(left[key], [self._cost_of(booking)]))
        return left

    def _cost_of(self, booking: Booking) -> int:
        """Return the cost of a booking in thousandths: of its GPUs, or before it has any, of as many as it asks for."""
        places = (self.state.cluster.place_of(gpu) for gpu in booking.gpus)
        models = [place[1].model for place in places if place is not None]
        named = self.state.cluster.models_of(booking.spec.models)
        models = models or [next(iter(named), "")] * booking.spec.gpus_in_all
        return sum(self.tree.cost_milli(model, WHOLE) for model in models)

    def wants(self, job: Job) -> tuple[tuple[str, int], ...]:
        """Return the pools that a job may use now, each with the highest cost of one task there in thousandths.

        The pools are in the order of the job's queue if the queue has one, else the cheapest come first.
        """
        milli, asked_models = job.spec.counted_milli, {*self.state.cluster.models_of(job.spec.gpu_model)}
        if not self.tree.document.pools and not self.tree.document.gpu_cost:
            return ((DEFAULT_POOL, milli),)
        models_in = self.pools.models
        able = {
            pool: models_in[pool] & asked_models if asked_models else models_in[pool]
            for pool in self.pools.now(job)
            if pool in models_in
        }
        costs = [
            (max(self.tree.cost_milli(model, milli) for model in models), pool)
            for pool, models in able.items()
            if models
        ]
        ordered = self.tree.overflow_after_s(job.spec.queue) is not None
        return tuple((pool, cost) for cost, pool in (costs if ordered else sorted(costs)))

    def granted(self, job: Job) -> tuple[str, int]:
        """Return the pool where a job runs, and the cost of its dearest task.

        A job with tasks in several pools counts in the pool of its first task.
        """
        document = self.tree.document
        if not document.pools and not document.gpu_cost and not job.spec.is_share:
            return DEFAULT_POOL, job.spec.counted_milli
        tasks = self.state.work.round_of(job)
        nodes = [self.state.cluster.nodes.get(task.agent_id) for task in tasks]
        counted = (self.state.work.counted_milli(task, job) for task in tasks)
        most = max(
            cost_of_granted(document, node, task.gpus, job.spec.gpu_model, milli)
            for task, node, milli in zip(tasks, nodes, counted, strict=True)
        )
        return self.pool_of(nodes[0]), most

    def taken(self, job: Job, takes: Sequence[Take]) -> tuple[str, int]:
        """Return the pool where a job is launched by some assignments, and the cost of its dearest task."""
        nodes = [self.state.cluster.nodes.get(take.agent_id) for take in takes]
        document, spec = self.tree.document, job.spec
        most = max(
            cost_of_granted(document, node, take.gpus, spec.gpu_model, spec.counted_milli)
            for take, node in zip(takes, nodes, strict=True)
        )
        return self.pool_of(nodes[0]), most


@dataclass(frozen=True)
class Admissions:
    """Guaranteed admission of all jobs during one match.

    Attributes:
        ground: Pools and cells.
        given: Seats of pending jobs.
    """

    ground: Ground
    given: Mapping[JobId, GuaranteedAdmission] = field(default_factory=dict)

    @property
    def tree(self) -> Tree:
        """Tree of the queues."""
        return self.ground.tree

    def seat_for(self, job: Job) -> GuaranteedAdmission | None:
        """Return the seat of a running job, or the one that a pending job gets at its start; None if it borrows."""
        return job.seat or self.given.get(job.id)

    def is_guaranteed(self, job: Job) -> bool:
        """Return whether a job has a seat, or needs none because it asks for no GPUs."""
        return not job.spec.gpus or self.seat_for(job) is not None

    def would_seat(self, job: Job, ended: Collection[JobId], pools: Collection[str]) -> bool:
        """Return whether a job for which room was made would get a seat in some pools once other jobs have ended.

        Args:
            job: Pending job; it comes before pending jobs for which no room was made.
            ended: Running jobs that would have ended.
            pools: Pools with room for the job.
        """
        state, ground = self.ground.state, self.ground
        running = [
            running_job
            for running_job in _running(state)
            if running_job.seat is not None and running_job.id not in ended
        ]
        room, _ = kept(ground.cells, [_held(ground, running_job) for running_job in running])
        for job_id, given in self.given.items():
            if job_id != job.id and state.work.jobs[job_id].room_made_at is not None:
                room.take(given)
        wants = tuple([want for want in ground.wants(job) if want[0] in pools])
        ask = Ask(job.id, wants, job.spec.tasks)
        return seat_in(room, leaf_of(ground.tree, job), ask, 0.0) is not None

    def at_launch(self, job: Job, takes: Sequence[Take]) -> GuaranteedAdmission | None:
        """Return the seat of a job that starts with some assignments; None if it borrows there."""
        seat = self.given.get(job.id)
        if seat is None:
            return None
        pool, milli = self.ground.taken(job, takes)
        return replace(seat, milli=milli) if pool == seat.pool and milli <= seat.milli else None


def seat(turn: Turn, may_start: MayStart) -> Admissions:
    """Give free cells to the next jobs of each queue.

    Seats of running jobs are saved; those of pending jobs last as long as the match.

    Args:
        may_start: Function that returns whether a pending job may have a seat in a pool; False where a limit blocks
            it. It is called for one of several jobs that limits and rules treat alike.
    """
    tree = tree_of(turn.state, turn.settings)
    ground = Ground(turn.state, tree, turn.now)
    if tree.is_flat:
        return Admissions(ground)  # without a document nothing is guaranteed
    running = _running(turn.state)
    held = [_held(ground, job) for job in running if job.seat is not None]
    room, changed = kept(ground.cells, held)
    for job_id, now in changed.items():
        job = turn.state.work.jobs[job_id]
        until = spared(turn.state.quota.queues, turn.state.quota.hours.span.since, job, now)
        turn.show_job(replace(job, seat=now, spared_until=until, version=job.version + 1))
    lines = _lines(turn, ground, room, [turn.state.work.jobs[job.id] for job in running], may_start)
    if not lines:
        return Admissions(ground)
    weights = {path: queue.spec.weight for path, queue in tree.queues.items()}
    given = give(
        room, lines, weights, turn.now, [holder for holder in held if holder.ask.job_id not in changed]
    )
    for job in running:
        if job.id in given:
            job = turn.state.work.jobs[job.id]
            turn.show_job(replace(job, seat=given.pop(job.id), version=job.version + 1))
    return Admissions(ground, given)


def _running(state: State) -> list[Job]:
    """Return the jobs that hold GPUs, in launch order, without jobs that ended while their agents were away."""
    jobs: dict[JobId, Job] = {}
    for task_id in state.work.live:
        job = state.work.holding_job(state.work.tasks[task_id])
        if job is not None and job.spec.gpus and not job.state.ended:
            jobs.setdefault(job.id, job)
    return list(jobs.values())


def _held(ground: Ground, job: Job) -> Held:
    """Return a running job with its seat, for the assignment of free places."""
    assert job.seat is not None, f"{job.id} has no seat"
    return Held(
        leaf_of(ground.tree, job),
        job.seat,
        Ask(job.id, (ground.granted(job),), job.spec.tasks, (job.sequence,)),
    )


def _lines(
    turn: Turn, ground: Ground, room: Room, running: Sequence[Job], may_start: MayStart
) -> dict[str, Iterable[Ask]]:
    """Return by leaf, in order, the jobs without a seat for which the leaf or a queue above has a free cell."""
    state = turn.state
    left = {path: room.left(path) for path in ground.tree.queues if room.pools(path)}
    open_ = {
        leaf.path: free
        for leaf in ground.tree.leaves()
        if (free := sum(left.get(path, 0) for path in lineage(leaf.path))) > 0
    }
    if not open_:
        return {}
    lines: dict[str, list[Ask]] = {}
    budgets = Budgets(state, turn.now)
    attained = AttainedServiceOrder(state, turn.now)
    for job in running:
        leaf = leaf_of(ground.tree, job)
        if job.seat is None and leaf in open_ and not budgets.must_borrow(job) and not booked_for(state, job):
            lines.setdefault(leaf, []).append(
                Ask(job.id, (ground.granted(job),), job.spec.tasks, _rank(turn, attained, job))
            )
    asks_by_leaf: dict[str, Iterable[Ask]] = {
        path: sorted(line, key=_by_rank) for path, line in lines.items()
    }
    pays, hopeless = ground.tree.has_budgets, fit_nowhere(state, turn.now)
    for leaf, jobs in state.leaves_in(ground.tree):
        if leaf not in open_:
            continue
        due: Iterable[Ranked] = (
            entry
            for entry in _ranked(turn, attained, jobs)
            if (_is_due(entry.job, turn.now) and entry.job.id not in hopeless) or keeps_seat(state, entry.job)
        )
        if pays:
            due = (entry for entry in due if not budgets.must_borrow(entry.job))
        after_s = ground.tree.queues[leaf].resolved.starve_after_s
        asks = _with_starving(turn, _asks(ground, due, open_[leaf], may_start), after_s)
        asks_by_leaf[leaf] = Asked(
            merge(asks_by_leaf[leaf], asks, key=_by_rank) if leaf in asks_by_leaf else asks
        )
    return {leaf: line for leaf, line in asks_by_leaf.items() if any(True for _ in line)}


def _by_rank(ask: Ask) -> tuple[int, ...]:
    """Return the sort key of a request."""
    return ask.rank


def _with_starving(turn: Turn, asks: Iterator[Ask], after_s: float) -> Iterator[Ask]:
    """Yield the requests of a leaf, the first marked as starving if it has waited for at least `after_s`."""
    for ask in asks:
        starves = turn.now - in_line_since(turn.state.work.jobs[ask.job_id]) >= after_s
        yield replace(ask, starving=True) if starves else ask
        break
    yield from asks


class Asked:
    """Requests of one leaf, computed lazily: on a full cluster the first of each leaf are enough."""

    def __init__(self, line: Iterator[Ask]) -> None:
        self._known: list[Ask] = []
        self._line = line

    def __iter__(self) -> Iterator[Ask]:
        """Yield the requests from the first, computing further ones as needed."""
        at = 0
        while True:
            if at == len(self._known):
                ask = next(self._line, None)
                if ask is None:
                    return
                self._known.append(ask)
            yield self._known[at]
            at += 1


def _is_due(job: Job, now: float) -> bool:
    """Return whether a job may start now, or keeps its room until its next attempt."""
    return job.not_before <= now or job.room_made_at is not None


def _ranked(turn: Turn, attained: AttainedServiceOrder, leaf: Leaf) -> list[Ranked]:
    """Return the pending jobs of a leaf that ask for GPUs, in the order of the leaf."""
    ranked = leaf.by_rank(turn.state.work.jobs, turn.now, turn.settings.queue.aging_step_s)
    if not attained.any or not any(attained.orders(entry.job) for entry in ranked):
        return ranked
    reranked = [entry._replace(rank=_rank(turn, attained, entry.job)) for entry in ranked]
    return sorted(reranked, key=lambda each: each.rank)


def _asks(ground: Ground, ranked: Iterable[Ranked], free: int, may_start: MayStart) -> Iterator[Ask]:
    """Yield requests of the first pending jobs of each kind, until they fill the free cells and one more."""
    taken: dict[Hashable, int] = {}
    wants_by_kind: dict[Hashable, tuple[tuple[str, int], ...]] = {}
    given = ground.state.quota.seats_given
    for rank, job, milli, ruled in ranked:
        tasks = job.spec.tasks
        kind = job.spec.gpu_model, milli, tasks, job.spec.job_class, ground.pools.count(job)
        so_far = taken.get(kind, 0)
        if so_far > free:
            continue
        alike = kind, ruled, job.id in given
        if alike not in wants_by_kind:
            wants_by_kind[alike] = tuple([want for want in ground.wants(job) if may_start(job, want[0])])
        if not wants_by_kind[alike]:
            continue
        taken[kind] = so_far + max(milli * tasks, 1)
        yield Ask(job.id, wants_by_kind[alike], tasks, rank)


def _rank(turn: Turn, attained: AttainedServiceOrder, job: Job) -> tuple[int, ...]:
    """Return the sort key of a running or pending job within its leaf."""
    if attained.orders(job):
        return (job.room_made_at is None, *attained.rank(job), job.sequence)
    return rank_in_leaf(job, turn.now, turn.settings.queue.aging_step_s)
