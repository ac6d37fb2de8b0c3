"""Nodes as plans see them: free amounts, what victims hold there, and what is reserved for other jobs."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mesos_gpu.engine.preemption.node_order import Order
from mesos_gpu.engine.preemption.rule import Reclaim
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.seats import Admissions
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.policy.apps.ports import enough
from mesos_gpu.policy.capacity.node import Allocation, NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.candidates import chosen as place_on
from mesos_gpu.policy.room.knapsack import Victim


@dataclass(frozen=True, slots=True)
class Ask:
    """Request for nodes for a job.

    Attributes:
        job: The waiting or moving job.
        request: Amounts that each of its tasks takes.
        victims: Jobs that may be ended for it.
        yields: Function that returns whether the job may use what is reserved for another job.
        pools: Pools in which it may run; None if there are no pools.
    """

    job: Job
    request: Request
    victims: Mapping[JobId, Victim]
    yields: Callable[[JobId], bool]
    pools: frozenset[str] | None


class Candidates:
    """Nodes of one match that plans may use, with the plans that were made so far.

    Attributes:
        looked_at: Number of nodes examined so far.
        order: Nodes in the order of the least cost of room.
    """

    def __init__(self, turn: Turn, backlog: Backlog, rule: Reclaim, seating: Admissions) -> None:
        self._turn, self._backlog, self._rule, self._seating = turn, backlog, rule, seating
        self.looked_at = 0
        self._closed = set[AgentId]()  # nodes of plans, which no other plan may use
        self._capacities: dict[AgentId, NodeCapacity] = {}
        # Nodes with the victims' allocations, as of the last job.
        self._chosen: dict[AgentId, NodeCapacity] = {}
        self._served = set[JobId]()  # jobs whose room has been subtracted from free amounts
        self.order = Order(turn.state, rule, backlog, self._capacity)

    def ask(
        self,
        job: Job,
        request: Request,
        victims: Mapping[JobId, Victim],
        pools: Collection[str] | None = None,
    ) -> Ask:
        """Return the request for nodes for a job, with the ports of the job.

        Args:
            job: The waiting or moving job.
            request: Amounts that each of its tasks takes, without ports.
            victims: Jobs that may be ended for it.
            pools: Pools that the job may use once victims have ended. None for the pools that are open to it now.
        """
        request = replace(request, ports=job.spec.ports)
        yields = yields_to(self._turn.state, self._seating, job)
        return Ask(job, request, victims, yields, self._pools(job, pools))

    def nodes(self, ask: Ask) -> list[NodeCapacity]:
        """Return the nodes that could serve a job once victims there have ended, with what these hold."""
        able = (self.node_for(ask, node) for node in self._turn.state.cluster.nodes.values())
        return [node for node in able if node is not None]

    def node_for(self, ask: Ask, node: Node) -> NodeCapacity | None:
        """Return a node as of `nodes`; None if it could not serve the job."""
        backlog, rule, job = self._backlog, self._rule, ask.job
        self.looked_at += 1
        if node.id in self._closed or not rule.serves(job, node.id) or not backlog.nodes.serves(job, node):
            return None
        if ask.pools is not None and self._seating.ground.pool_of(node) not in ask.pools:
            return None
        capacity = self._capacity(node)
        held = tuple([allocation for allocation in capacity.allocations if allocation.job_id in ask.victims])
        if len(capacity.gpus) + sum(len(allocation.gpus) for allocation in held) < ask.request.gpu.count:
            return None
        if not backlog.nodes.new_enough(job, node):
            return None
        kept = [
            reservation
            for reservation in backlog.reservations.kept_by_others(job, node)
            if reservation.booking
            or (reservation.job_id not in self._served and not ask.yields(reservation.job_id))
        ]
        capacity = self._with(capacity, held)
        if (ports := backlog.nodes.ports_for(job, node)) is not None:
            capacity = replace(capacity, ports=ports)
        if not may_have_ports(job, capacity):
            return None
        return capacity.keeping(kept) if kept else capacity

    def parts(self, job: Job, nodes: Sequence[NodeCapacity]) -> Iterator[Sequence[NodeCapacity]]:
        """Yield nodes that all tasks of a job may use together: those of each pool if its queue orders pools."""
        if job.spec.tasks == 1 or self.may_span_pools(job):
            yield nodes
            return
        by_pool: dict[str, list[NodeCapacity]] = {}
        for node in nodes:
            by_pool.setdefault(self.pool_of(node.agent_id), []).append(node)
        yield from by_pool.values()

    def may_span_pools(self, job: Job) -> bool:
        """Return whether the tasks of a job may be in several pools: its queue does not order its pools."""
        return job.spec.tasks > 1 and self._seating.tree.overflow_after_s(job.spec.queue) is None

    def pool_of(self, agent_id: AgentId) -> str:
        """Return the pool of a node."""
        return self._seating.ground.pool_of(self._turn.state.cluster.nodes[agent_id])

    def _pools(self, job: Job, later: Collection[str] | None) -> frozenset[str] | None:
        """Return the pools in which a job may run, for `Ask`.

        Args:
            job: The waiting or moving job.
            later: Pools that the job may use once victims have ended; None for those open now, with its present pool.
        """
        pools = self._backlog.barriers.open_pools(job)
        if pools is None:
            return None
        if later is not None:
            return frozenset(later)
        return pools if job.state is JobState.PENDING else pools | {self._seating.ground.granted(job)[0]}

    def _with(self, capacity: NodeCapacity, held: tuple[Allocation, ...]) -> NodeCapacity:
        """Return a node with some of its allocations, cached as most jobs of a match have equal victims."""
        node = self._chosen.get(capacity.agent_id)
        if node is None or node.allocations != held:
            node = self._chosen[capacity.agent_id] = replace(capacity, allocations=held)
        return node

    def _capacity(self, node: Node) -> NodeCapacity:
        """Return a node as it will be once all jobs with notices have ended; room of their takers is reserved."""
        node_capacity = self._capacities.get(node.id)
        if node_capacity is None:
            node_capacity = self._backlog.nodes.capacity(node)
            node_capacity = node_capacity.without(
                [allocation for allocation in node_capacity.allocations if allocation.job_id in self._ending]
            )
            self._capacities[node.id] = node_capacity
        return node_capacity

    @cached_property
    def _ending(self) -> frozenset[JobId]:
        return ending(self._turn.state)

    # --- plans that have been made

    def subtract(self, request: Request, node: NodeCapacity) -> bool:
        """Subtract a task from the free amounts of a node; return False if the node has no room for it."""
        place = place_on(request, node)
        if place is None:
            return False
        self._set(self._capacities[node.agent_id].minus(request.resources, place.gpus))
        return True

    def end(self, jobs: Collection[JobId], agents: Iterable[AgentId]) -> None:
        """Remove victims of a plan from the nodes on which they run."""
        self._ending = self._ending | frozenset(jobs)
        for agent_id in agents & self._capacities.keys():
            capacity = self._capacities[agent_id]
            self._set(capacity.without([held for held in capacity.allocations if held.job_id in jobs]))

    def serve(self, job: Job, request: Request, node: NodeCapacity) -> bool:
        """Subtract a job's room from a node, so that the rest is free for others; return False if it has no room."""
        if not self.subtract(replace(request, ports=job.spec.ports), node):
            return False
        self._served.add(job.id)
        return True

    def close(self, agents: Iterable[AgentId]) -> None:
        """Reserve nodes of a plan, so that no other plan uses them."""
        self._closed.update(agents)

    def _set(self, capacity: NodeCapacity) -> None:
        """Replace the capacity of a node, and update what depends on it."""
        self._capacities[capacity.agent_id] = capacity
        self._chosen.pop(capacity.agent_id, None)
        self.order.changed(capacity.agent_id)


def yields_to(state: State, seating: Admissions, job: Job) -> Callable[[JobId], bool]:
    """Return the rule by which a job may use what is reserved for another waiting job.

    It may if the other one has no seat and no victims, and if the job has a seat or is of another queue.
    """
    seated, queue = seating.seat_for(job) is not None, job.spec.queue

    def yields(job_id: JobId) -> bool:
        """Return whether the job may use what is reserved for another job."""
        other = state.work.jobs[job_id]
        if other.room_made_at is not None or seating.is_guaranteed(other):
            return False
        return seated or other.spec.queue != queue

    return yields


def may_have_ports(job: Job, node: NodeCapacity) -> bool:
    """Return whether the ports that a job asks for by number are free on a node once all victims there have ended."""
    if node.ports is None or job.spec.tasks > 1:
        return True
    return enough(job.spec.ports, (*node.ports, *(port for held in node.allocations for port in held.ports)))


def ending(state: State) -> frozenset[JobId]:
    """Return the jobs that are being ended for any reason, from their notice on."""
    tasks = (state.work.tasks[task_id] for task_id in state.work.live)
    jobs = (
        state.work.current(task)
        for task in tasks
        if task.preempted_for or task.kill_sent_at is not None or (task.notice and task.notice.stands)
    )
    return frozenset(job.id for job in jobs if job is not None and job.state is not JobState.UNREACHABLE)
