"""The queue during one match: who may start now, what is kept for whom."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

from mesos_gpu.engine.calendar.booked import Booked
from mesos_gpu.engine.charges import charges_of
from mesos_gpu.engine.gpus.capacities import capacity_of
from mesos_gpu.engine.gpus.gpu_status import is_closed, well
from mesos_gpu.engine.gpus.role import is_for_others
from mesos_gpu.engine.indexes.charges import up
from mesos_gpu.engine.indexes.leaves import rank_in_leaf
from mesos_gpu.engine.queue.barriers import Barriers
from mesos_gpu.engine.queue.ends import Ends, Learn
from mesos_gpu.engine.queue.held import Held, has_room
from mesos_gpu.engine.queue.las import Attained
from mesos_gpu.engine.queue.line import Standing, Waits
from mesos_gpu.engine.queue.neighbours import Neighbours
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.room.footprint import footprint_of
from mesos_gpu.engine.room.given_up import given_up, precedes
from mesos_gpu.engine.room.hopeless import is_hopeless, note_hopeless
from mesos_gpu.engine.room.kept import Kept
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import DEFAULT_POOL
from mesos_gpu.policy.admission.limits import Wait
from mesos_gpu.policy.apps.ports import without
from mesos_gpu.policy.capacity.altered import Altered
from mesos_gpu.policy.capacity.fit import Chosen, Misfit, fit, share_for
from mesos_gpu.policy.capacity.node import ENDLESS, Allocation, NodeCapacity, Reservation
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.policy.room.preemption import Shortage
from mesos_gpu.policy.room.reservation import (
    Leave,
    Limit,
    after_launch,
    decisive,
    ends_by,
    leave_of_all,
    reserve,
    with_leaves,
)
from mesos_gpu.policy.room.together import reserve_together
from mesos_gpu.policy.tenancy.tree import Bound

_PORTS_REST_S: Final = 120.0  # a port that was in use goes last; Linux keeps a closed connection for 60 s
_SOON_S: Final = 60.0  # until those have ended who make room for a job
Offered = Callable[[AgentId], Resources]  # what an agent's held offers still have


def request_of(job: Job, settings: Settings) -> Request:
    """What each task of the job takes from an offer, with its executor's share, but no ports: a match knows them."""
    spec = job.spec
    share = spec.share_request(settings.placing.isolation, across_users=settings.placing.mps_across_users)
    gpu = GpuRequest(
        spec.gpus,
        models=spec.gpu_model,
        memory_mib=spec.gpu_memory_mib if share is None else None,
        compute_capability=spec.compute_capability,
        share=share,
    )
    # Whose a share is decides which cards it may have; jobs that ask for whole ones are alike whoever asks.
    user = None if share is None else spec.user or settings.programs.default_user
    return Request(footprint_of(job, settings).total, gpu, job.min_driver, spec.tasks, user)


class Backlog:
    """Jobs in their order; limits, reservations and what each later job may still use."""

    def __init__(
        self,
        state: State,
        settings: Settings,
        now: float,
        offered: Offered,
        *,
        reading: bool = False,
        learn: Learn | None = None,
        standing: Standing | None = None,
    ) -> None:
        """Nothing is computed before it is needed: most matches block nobody.

        Args:
            state: The engine's.
            settings: The operator's.
            now: Seconds since the epoch.
            offered: What is left of an agent's offers.
            reading: It is a reader's backlog: the state remembers nothing of it.
            learn: The run time of jobs without a limit, for estimates.
            standing: What queues are due.
        """
        self._state, self._settings, self._now = state, settings, now
        self._offered, self._reading, self._ends_of = offered, reading, Ends(state, now, learn)
        self._roomy = set[JobId]()  # for whom room that was made is kept, before any job is tried
        self._firm = False  # whether something is kept that gangs gave up
        self.booked = Booked(state, settings, now)
        self._kept = Kept()
        self.neighbours = Neighbours(state, settings.placing.levels, reading=reading)
        self.attained = Attained(state, now)
        self._queues = set[str]()  # those whose first blocked job is known
        self._starving = set[str]()  # those whose first job that starves is blocked
        self._hopeless: set[tuple[str, Hashable]] = set()
        self._ends: dict[Hashable, tuple[int, ...]] = {}
        self._nodes: dict[AgentId, NodeCapacity] = {}
        self._before: list[list[Reservation]] = []  # reservations before each take that stands
        self.held = Held(state, charges_of(state, settings), now)
        self._below: dict[tuple[str, str], list[Allocation]] = {}  # what is held of limits
        of_step = now, self.attained, standing, settings.queue.aging_step_s
        self._barriers = Barriers(state, self.held, *of_step)
        if reading:
            self.keep_first()
        self._waits = Waits(
            state, settings, now, self.held, self.attained, standing, held_back=self.rule_against
        )

    def jobs(self) -> Iterable[Job]:
        """Yield every pending job, the first to be tried first; the next one depends on what became of those before."""
        return self._waits.jobs()

    def starving_as(self, other: "Backlog") -> None:
        """Take over the jobs that starve from another backlog of the same moment, whose line was asked for."""
        self._waits.heads = other._waits.heads

    # --- limits

    def over_limit(self, job: Job) -> bool:
        """Whether a limit, or what is kept of it for others, or a rule of its queue or class forbids it now."""
        return self.wait_of(job) is not None

    def wait_of(self, job: Job) -> Wait | None:
        """Why a job waits though there were room for it; None: limits and rules let it start."""
        if job.spec.booking is not None and (wait := self.booked.wait_of(job)):
            return wait
        return self._barriers.wait_of(job, self.reservations)

    def rule_against(self, job: Job) -> Wait | None:
        """Why a job waits that no reservation could help; None: nothing of that kind."""
        if job.spec.booking is not None:
            return self.booked.rule_against(job)
        return self._barriers.wait_of_rules(job)

    def helps_no_more(self, job: Job) -> bool:
        """Whether room that was made for a job is of no use: a rule or a limit keeps it from starting whoever ends, or
        some of the room is in a pool that it may not use any more."""
        if not self.held.may_use_room(job):
            return True
        if job.room_made_at is not None and job.room_made_at > self._now:
            return False  # hours are to change
        wait = self.rule_against(job)
        if wait is None:
            return bool(self.beyond_limit(job))
        ends_help = wait.stage is Stage.GUARANTEE or wait.lack is not None
        return not ends_help or job.id not in self.ended_for

    @cached_property
    def ended_for(self) -> frozenset[JobId | None]:
        """Jobs for which others are told to end, and hold something still; as it was before this match told anybody."""
        return frozenset(self._state.work.tasks[task_id].preempted_for for task_id in self._state.work.live)

    def has_room_without(self, job: Job, ended: Collection[JobId]) -> bool:
        """Whether the limits of GPUs let a job start when some jobs that run have ended."""
        return self._barriers.has_room_without(job, ended)

    def is_limited(self, job: Job) -> bool:
        """Return whether any limit of GPUs holds for a job."""
        return bool(self._barriers.bounds(job))

    def shortages(self, job: Job) -> Mapping[str, Sequence[Shortage]]:
        """Return what a job lacks of limits by pool, as of `Barriers.shortages`."""
        return self._barriers.shortages(job, self.reservations)

    def may_be_seated(self, job: Job, pool: str | None = None) -> bool:
        """Whether it could start if it had a seat, in any pool or in that one."""
        if job.spec.booking is not None:
            return False  # what is booked is no part of a guarantee while it lasts
        return self._barriers.may_be_seated(job, pool, self.reservations)

    def wait_of_lenders(self, job: Job, pool: str, milli: int) -> Wait | None:
        """Return why lend limits leave no room for a job to hold more, as of `Barriers.wait_of_lenders`."""
        return self._barriers.wait_of_lenders(job, pool, milli)

    def beyond_limit(self, job: Job) -> str:
        """Which limit never lets a job start, in words; "": none does so."""
        return self._barriers.beyond(job)

    def in_pools(
        self, job: Job, nodes: Mapping[AgentId, NodeCapacity]
    ) -> Sequence[Mapping[AgentId, NodeCapacity]]:
        """Keep those of some nodes that are in pools whose limits leave room for all of a job: by `Pools.preferred`."""
        pools, held = self.open_pools(job), self.held
        if pools is None:
            return (nodes,)
        parts = held.pools.preferred(job, pools, self._state.quota.seats_given.get(job.id))
        able = {key: node for key, node in nodes.items() if held.is_in(key, pools)}
        return [{key: node for key, node in able.items() if held.pool_of(key) in part} for part in parts]

    def open_pools(self, job: Job) -> frozenset[str] | None:
        """The pools whose limits leave room for it; None: there are no pools."""
        if not self.held.tree.document.pools:
            return None
        if not job.spec.gpus:
            return self.held.pools_of(job)
        return self._barriers.open_pools(job, self.reservations)

    def booked_for(self, job: Job, nodes: Mapping[AgentId, NodeCapacity]) -> Mapping[AgentId, NodeCapacity]:
        """What is booked for a job on some nodes, where its queue and class, and limits of their pools, let it be."""
        booked, held = self.booked.only(job, nodes), self.held
        pools = self._barriers.pools_of_booked(job, self.reservations)
        return {key: node for key, node in booked.items() if held.is_in(key, pools)}

    def _limits(self, job: Job, pool: str) -> list[Limit]:
        """The limits that hold for a job in a pool, and what counts against them."""
        bounds = self._barriers.bounds_in(job, pool)
        return [Limit(b.path, pool, b.milli, self._held_below(b)) for b in bounds]

    def _held_below(self, bound: Bound) -> list[Allocation]:
        """What counts against a limit: found when somebody asks, and kept up to date then."""
        key = bound.path, bound.pool
        if key not in self._below:
            held = self.held
            self._below[key] = [
                replace(self.allocation(task), counted_milli=charge.milli)
                for task in held.tasks_below(bound.path)
                if (charge := held.charge_of(task)).pool == bound.pool
            ] + [
                self._taken(job, charge.milli)
                for job, charge in held.taken_below(bound.path)
                if charge.pool == bound.pool
            ]
        return self._below[key]

    # --- reservations

    def keep_first(self) -> None:
        """Keep what is booked, and what gangs gave up that start again, before anything is kept for other jobs."""
        asked = (
            self.rule_against,
            partial(request_of, settings=self._settings),
            self._barriers.spares_beside,
        )
        free = given_up(self._state, self._settings, self._now, *asked, self.capacity)
        self._kept.every, self._firm = [*self.booked.kept(self.capacity), *free], bool(free)

    def keep_rooms(self) -> None:
        """Keep what others ended for, for each whom they ended for, before any of these takes room of another."""
        jobs, queue = self._state.work.jobs, self._state.work.queue
        waiting = [job for _, job_id in queue if has_room(job := jobs[job_id])]
        for job in sorted(waiting, key=lambda job: (job.room_made_at, job.sequence)):
            self.block(job)
            self._roomy.add(job.id)

    def kept_for(self, jobs: Iterable[Job], others: Collection[JobId]) -> Iterator[Job]:
        """Yield the jobs for which `block` may keep anything, in their order: each is blocked before the next.

        Args:
            jobs: The first jobs of the line.
            others: Jobs that are yielded in any case.
        """
        line, most = iter(jobs), self._settings.queue.most_reservations
        while len(self._queues) < most and (job := next(line, None)) is not None:
            yield job
        heads = self._waits.heads
        for job in line:
            if job.room_made_at is not None or job.id in heads or job.id in others:
                yield job

    def block(self, job: Job) -> None:
        """The job cannot start: reserve for it, if it is the first of its queue, or of those there that borrow and has
        waited too long, and some node could serve it."""
        queue = job.spec.queue
        if job.room_on and job.room_made_at is not None:
            if job.id not in self._roomy and not self.helps_no_more(job):
                request, ahead = request_of(job, self._settings), job.room_made_at > self._now
                self._keep(self._reserve(job, request) if ahead else self.reservations_for(job, request))
            return
        starves = job.id in self._waits.heads
        served = self._starving if starves else self._queues
        if queue in served or len(served) >= self._settings.queue.most_reservations:
            return
        if self.rule_against(job) is not None:
            return  # it waits for something else than room
        request = request_of(job, self._settings)
        key = queue, self.kind(job, request)
        if key in self._hopeless:
            return
        reservations = self.reservations_for(job, request)
        if not reservations:
            self._hopeless.add(key)
            if not self._reading and self._is_lost(job, request, starves=starves):
                note_hopeless(self._state, job, self._now)
            return
        served.add(queue)
        borrows = not self.held.tree.is_flat and job.spec.gpus and self._waits.seat_for(job) is None
        # For who borrows nothing is idle of which nobody knows how long, before it starves.
        if starves or not borrows or all(each.at < ENDLESS for each in reservations):
            self._keep(reservations)

    def _is_lost(self, job: Job, request: Request, *, starves: bool) -> bool:
        """Whether no node could serve who starves, or has a seat; not while there are pools that he may use later."""
        if self.held.pools.next(job) is not None:
            return False
        if job.id in self._state.quota.seats_given:
            able = filter(lambda node: self.serves(job, node), self._state.cluster.nodes.values())
            return is_hopeless(self._state, request, map(self.capacity, able))
        if not starves:
            return False
        pools = self._barriers.may_hold(job)
        parts = self.held.parts(job, pools, pools)
        return not any(self._reserve(job, request, part, beside=False) for part in parts)

    @property
    def reservations(self) -> list[Reservation]:
        """What is kept so far, in the order in which it was kept."""
        return self._kept.every

    def _keep(self, reservations: Sequence[Reservation]) -> None:
        self._kept.add(reservations)
        self._ends.clear()

    def _left_of(self, job: Job, node: Node) -> NodeCapacity:
        """The node without what is kept of it from a job."""
        kept = self._kept.on(node.id)
        if not kept:
            return self.capacity(node)
        if self.booked.any or self._firm:
            others = [each for each in kept if each.job_id != job.id and self._is_kept_from(job, each)]
            return self.capacity(node).keeping(others)
        if node.id not in self._kept.left:
            self._kept.left[node.id] = self.capacity(node).keeping(kept)
        return self._kept.left[node.id]

    def kind(self, job: Job, request: Request) -> Hashable:
        """Jobs of one kind start together or not at all: what each of their tasks takes, how many, and where."""
        pools = self.open_pools(job)
        seat = None if pools is None else self._state.quota.seats_given.get(job.id)
        return request, self.neighbours.key(job), pools, seat and (seat.pool, job.spec.preemptible)

    def reservations_for(self, job: Job, request: Request) -> list[Reservation]:
        """Where and when it could start beside the reservations that there are, one a node; none: nowhere, never."""
        held = self.held
        if not held.tree.document.pools or not job.spec.gpus:
            return self._reservations_in(job, request, (DEFAULT_POOL,))
        pools = held.pools.every(job) if self._reading else held.pools_of(job)
        parts = held.parts(job, pools, self.open_pools(job) or ())
        each = [self._reservations_in(job, request, part) for part in parts]
        return min(filter(None, each), key=lambda each: max(r.at for r in each), default=[])

    def _reservations_in(self, job: Job, request: Request, pools: tuple[str, ...]) -> list[Reservation]:
        """Find where and when it could start in some pools, of which each has limits that leave room for all of it."""
        leaves: list[tuple[Leave, Sequence[Limit], int]] = []
        for pool in pools:
            limits = self._limits(job, pool)
            if not limits:
                continue
            cost = self.held.cost_of(job, pool)
            granted = leave_of_all(limits, cost, self._now)
            if granted is None:
                return []
            leave, spares = granted
            if leave.awaited and job.room_made_at is None:  # a node may idle no longer than for its own sake
                needs = request.resources.with_gpus(request.resources.gpus * job.spec.tasks)
                awaited = leave.awaited
                return [Reservation(job.id, job.spec.queue, needs, leave.at, spares=spares, awaited=awaited)]
            leaves.append((leave, limits, cost))
        there = self._reserve(job, request, pools)
        opens = [self.held.pools.opens_at(job, pool) for pool in pools]
        if opens_at := max(opens, default=0.0):  # not before the job may use them
            there = [replace(each, at=max(each.at, opens_at)) for each in there]
        return [with_leaves(each, leaves) for each in there]

    def _reserve(
        self, job: Job, request: Request, pools: tuple[str, ...] = (), *, beside: bool = True
    ) -> list[Reservation]:
        """Find room on nodes of some pools; (): on any that it may use. `beside`: what is kept for others is left
        alone."""
        every = self._state.cluster.nodes
        # What others are ended for is kept for whom they are ended.
        there = [every[agent_id] for agent_id in job.room_on if agent_id in every] or every.values()
        able = [node for node in there if self.serves(job, node, ever=self._reading)]
        if pools and self.held.tree.document.pools and job.spec.gpus:
            able = [node for node in able if self.held.pool_of(node.id) in pools]
        nodes = [self._left_of(job, node) if beside else self.capacity(node) for node in able]
        if job.spec.tasks > 1:
            place = self.neighbours.placing_of(job)
            return reserve_together(job, request, nodes, now=self._now, place=place)
        reservation = reserve(job, request, nodes, now=self._now)
        return [reservation] if reservation else []

    def alone(self, job: Job, request: Request) -> Reservation | None:
        """The node that it would get if nothing were kept for others, and no queue had a limit."""
        return decisive(self._reserve(job, request, beside=False))

    def outlasted(self, job: Job) -> tuple[int, ...]:
        """Which reservations of nodes it would be in the way of."""
        if not self.reservations:
            return ()
        key = (
            job.spec.timeout_s,
            job.spec.kill_grace_s,
            self.attained.passing(job),
            self.booked.kind(job),
            (job.id in self._roomy or self._firm) and job.id,
            self._barriers.kind_of_lender(job),
        )
        numbers = self._ends.get(key)
        if numbers is None:
            at, every = ends_by(job.spec, self._now), enumerate(self.reservations)
            numbers = tuple([i for i, r in every if r.agent_id is not None and self._in_way(job, at, r)])
            self._ends[key] = numbers
        return numbers

    def open_to(
        self, outlasted: Iterable[int], nodes: Mapping[AgentId, NodeCapacity]
    ) -> Mapping[AgentId, NodeCapacity]:
        """The nodes as a job may use them that is in the way of those reservations."""
        changed: dict[AgentId, NodeCapacity] = {}
        for i in outlasted:
            kept = self.reservations[i]
            if kept.agent_id is not None and kept.agent_id in nodes:
                changed[kept.agent_id] = (changed.get(kept.agent_id) or nodes[kept.agent_id]).beside(kept)
        return Altered(nodes, changed) if changed else nodes

    # --- a book of the match's ledger

    def take(self, take: Take) -> None:
        """Count it against its queue's limit, and against what reservations leave to spare."""
        self._forget(take.agent_id)
        self._before.append(self.reservations)
        job, request = take.job, take.request
        if job is None or request is None:
            return
        charge = self.held.charge_of_take(take)
        if charge is not None and self._below:
            self._count(job, charge)
        if not self.reservations:
            return
        ends_at = ends_by(job.spec, self._now)
        takes = [] if charge is None else [(path, charge.pool, charge.milli) for path in up(charge.queue)]
        self._kept.every = [
            after_launch(
                kept,
                request,
                here=kept.agent_id == take.agent_id,
                takes=takes,
                chosen=Chosen(take.agent_id, take.gpus, take.share) if take.share else None,
            )
            if self._in_way(job, ends_at, kept)
            else kept
            if kept.job_id != job.id
            else replace(kept, agent_id=None, spares=())  # it has it now
            for kept in self.reservations
        ]

    def undo(self, take: Take) -> None:
        """Be as before it."""
        self._forget(take.agent_id)
        self._kept.every = self._before.pop()
        charge = self.held.charge_of_take(take)
        if charge is not None:
            for path in up(charge.queue):
                if (path, charge.pool) in self._below:
                    self._below[path, charge.pool].pop()

    def _count(self, job: Job, charge: Charge) -> None:
        """Count a launch against the limits whose use is known."""
        taken: Allocation | None = None
        for path in up(charge.queue):
            if (path, charge.pool) in self._below:
                taken = taken or self._taken(job, charge.milli)
                self._below[path, charge.pool].append(taken)

    def _forget(self, agent_id: AgentId) -> None:
        """What is known of an agent is read anew when somebody asks."""
        self._nodes.pop(agent_id, None)
        self._kept.left.pop(agent_id, None)

    def _taken(self, job: Job, milli: int) -> Allocation:
        """What a task holds that is launched now; of its GPUs only how many."""
        ends_at, lasts_s, learnt = self._ends_of.by_itself(job, self._now)
        resources = footprint_of(job, self._settings).total
        return Allocation(job.id, resources, (), self._now, ends_at, lasts_s, learnt, counted_milli=milli)

    # --- nodes

    def serves(self, job: Job, node: Node, *, ever: bool = False) -> bool:
        """Whether the job may go there at all, now; with `ever` also where it may go only when it has waited longer."""
        if node.lost_at is not None or is_closed(self._state, node):
            return False
        if not self.held.is_in(node.id, self.held.pools.every(job) if ever else self.held.pools_of(job)):
            return False
        if self._settings.mesos.role_of and is_for_others(self._state, self._settings, job, node.id):
            return False
        return not self.neighbours.barred(job, node)

    def new_enough(self, job: Job, node: Node) -> bool:
        """Whether the node's driver is what the job needs."""
        return as_new_as(node.driver_version, job.min_driver)

    def is_new(self, job: Job) -> bool:
        """Whether it may wait still for the offer of an open card."""
        return self._now - max(job.submitted_at, job.not_before) < self._settings.placing.open_after_s

    def joins_soon(self, job: Job, request: Request) -> bool:
        """Whether there is room on an open card whose agent's offer is on its way: what was left of one comes again."""
        tasks, known = self._state.work.tasks, self._state.cluster.nodes
        agents = dict.fromkeys(tasks[task_id].agent_id for task_id in self._state.gpus.covers.values())
        nodes = (known.get(agent_id) for agent_id in agents if not self._offered(agent_id))
        return any(node is not None and self._joins(job, request, node) for node in nodes)

    def _joins(self, job: Job, request: Request, node: Node) -> bool:
        began = self._now - self._settings.placing.open_after_s
        if not self.serves(job, node) or all(task.launched_at < began for task in self._tasks_on(node.id)):
            return False
        # How much else is left there is not known before it is offered.
        capacity = replace(self.capacity(node), free=request.resources)
        chosen = None if isinstance(fit(request, capacity), Misfit) else share_for(request, capacity)
        return chosen is not None and not chosen.opens

    def kept_by_others(self, job: Job, node: Node) -> list[Reservation]:
        """What of the node is kept for other jobs."""
        return [r for r in self._kept.on(node.id) if r.job_id != job.id and self._is_kept_from(job, r)]

    def _is_kept_from(self, job: Job, kept: Reservation) -> bool:
        """Whether a job must leave it alone that could start in a while; what is booked only if it is in its way."""
        firm = kept.booking or kept.is_given_up
        return not firm or self._in_way(job, ends_by(job.spec, self._now + _SOON_S), kept)

    def _in_way(self, job: Job, ends_at: float, kept: Reservation) -> bool:
        """Whether a job that ends at the latest at a time may be in the way of what is kept for others."""
        if kept.is_given_up:
            rank = partial(rank_in_leaf, now=self._now, step_s=self._settings.queue.aging_step_s)
            if precedes(self._state, job, kept, rank):
                return False
        if not kept.booking:
            return not self._barriers.takes_own(job, kept) and self.attained.in_way(job, ends_at, kept)
        return self.booked.in_way(job, ends_at, kept)

    def ports_for(self, job: Job, node: Node) -> tuple[PortRange, ...] | None:
        """The ports of a node that nothing holds; None: the job needs none, or no offer says which they are."""
        if job.spec.tasks == 1 and not job.spec.ports:
            return None
        offers = [offer for offer in self._state.cluster.offers.values() if offer.agent_id == node.id]
        here = [each for offer in offers for each in offer.ports]
        if not here and (not offers or self._offered(node.id).cpus < self.capacity(node).free.cpus):
            return None  # offers that may have some were given back
        taken = sorted(port for task in self._tasks_on(node.id) for port in task.ports)
        return without([PortRange(port, port) for port in taken], here)

    def ports_in_use_lately(self, agent_id: AgentId) -> Mapping[int, float]:
        """Return the ports that tasks of an agent had which ended lately, with the time of the end."""
        return self._state.work.ports.freed_since(agent_id, self._now - _PORTS_REST_S)

    def capacity(self, node: Node) -> NodeCapacity:
        """What the node has free, and what its tasks will give back."""
        capacity = self._nodes.get(node.id)
        if capacity is None:
            capacity = self._nodes[node.id] = self._built(node)
        return capacity

    def _built(self, node: Node) -> NodeCapacity:
        tasks = self._tasks_on(node.id)
        held = [self.allocation(task, node) for task in tasks if task.covers is None]
        seen = node, tasks, held, self._offered(node.id)
        return capacity_of(self._state, self._settings, self._now, *seen, reading=self._reading)

    def _tasks_on(self, agent_id: AgentId) -> list[Task]:
        return [self._state.work.tasks[task_id] for task_id in self._state.work.restless.on.get(agent_id, ())]

    def allocation(self, task: Task, node: Node | None = None) -> Allocation:
        """What a task holds, and until when; without its node, only how many GPUs."""
        settings, job = self._settings, self._state.work.jobs.get(task.job_id or JobId(""))
        if job is None:
            return Allocation(None, settings.programs.monitor, since=task.launched_at)
        gpus = () if node is None else well(self._state, node, self._now, settings, task.gpus)
        ends_at, lasts_s, learnt = self._ends_of.of(task, job)
        return Allocation(
            job_id=job.id,
            resources=footprint_of(job, settings).total,
            gpus=gpus,
            share=task.counted_share,
            since=task.started_at or task.launched_at,
            ends_at=ends_at,
            lasts_s=lasts_s,
            learnt=learnt,
            counted_milli=self._state.work.counted_milli(task, job),
            ports=tuple([PortRange(port, port) for port in task.ports]),
        )
