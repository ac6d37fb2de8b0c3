"""Moves that make room: jobs leave a node for another job, and each has a place on another node at once.

A job with a seat gets room by moves as the last resort: jobs with seats leave a node if each has a place, which
borrowers may have to make for it. A job without a seat gets room by moves if little work is lost, and borrowers of
one node fit into what is free on others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from mesos_gpu.engine.indexes.leaves import leaf_of
from mesos_gpu.engine.preemption.candidates import Candidates
from mesos_gpu.engine.preemption.rule import Reclaim
from mesos_gpu.engine.queue.backlog import Backlog, request_of
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tenancy import Reclaim as Whose
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.candidates import chosen as place_on
from mesos_gpu.policy.room.knapsack import Victim
from mesos_gpu.policy.room.preemption import nodes_of_plan, plan
from mesos_gpu.policy.tenancy.tree import Queue

#: Most GPU seconds lost by moves, per requested GPU, for a job without guaranteed admission.
MAX_LOST_S: Final = 600
MOVED_AGAIN_S: Final = 3600.0  # least time between two moves of a job
_MAX_NODES: Final = 16  # nodes examined for moves, those that lack the fewest GPUs


def movable(turn: Turn, rule: Reclaim, job: Job, *, seated: bool) -> dict[JobId, Victim]:
    """Return the jobs that may move for a waiting job.

    They have one task and are smaller than the job, have made no room within `MOVED_AGAIN_S`, and are not protected
    from it by a fence (reclaim boundary) or the `reclaim` of its queue.

    Args:
        turn: Turn of the engine.
        rule: Rule by which jobs may be ended.
        job: The waiting job.
        seated: Whether jobs with seats may move, instead of jobs without.
    """
    tree, running, protection = rule.seating.tree, rule.running, rule.protection
    queue = tree.queues[leaf_of(tree, job)]
    victims: dict[JobId, Victim] = {}
    for path, jobs in running.by_leaf.items() if not tree.is_flat else ():
        owner = tree.queues[path]
        if protection.forbids(queue, owner):
            continue
        least_s = protection.min_runtime_s(queue, owner, seated=True)
        for other in jobs:
            if (other.seat is not None) is not seated or not _may_move(job, other, queue):
                continue
            if other.id in running.idle or other.id not in running.jobs:
                continue  # it is being ended
            until = _stays_until(turn, other, least_s)
            if until <= turn.now:
                victims[other.id] = running.runner(other).victim
            elif other.seat is not None:
                rule.note(until)
    return victims


def _may_move(job: Job, other: Job, queue: Queue) -> bool:
    """Return whether a running job may move for a waiting job, apart from times of protection.

    Args:
        job: The waiting job.
        other: The running job.
        queue: Queue of the waiting job.
    """
    spec, lower = other.spec, queue.resolved.reclaim is Whose.LOWER
    if not spec.gpus or spec.tasks != 1 or spec.is_share or spec.ports:
        return False
    if spec.counted_milli >= job.spec.counted_milli * job.spec.tasks or other.started_at is None:
        return False
    same = spec.queue == job.spec.queue
    return not ((lower and other.priority >= job.priority) or (same and other.priority > job.priority))


def _stays_until(turn: Turn, job: Job, least_s: float) -> float:
    """Return when a running job may move, in seconds since the epoch.

    Args:
        turn: Turn of the engine.
        job: The running job.
        least_s: Minimum run time of the job, in seconds.
    """
    assert job.started_at is not None, f"{job.id} runs"
    made_room = (task for task in turn.state.work.tasks_of(job.id) if task.preempted_for is not None)
    again_at = max((task.ended_at or inf for task in made_room), default=-inf) + MOVED_AGAIN_S
    return max(job.started_at + least_s, job.spared_until, again_at)


@dataclass
class RelocationPlan:
    """Relocation plan: the new places of the jobs that leave nodes for a job, as far as they were found.

    Attributes:
        job: Job that gets the room.
        room_on: Nodes that the others leave.
        to: New node of each job that moves.
        left: Nodes to which jobs move, with what they leave free.
        stopped: Victims that make room for each job that moves.
    """

    job: Job
    room_on: tuple[AgentId, ...]
    to: dict[JobId, AgentId] = field(default_factory=dict)
    left: dict[AgentId, NodeCapacity] = field(default_factory=dict)
    stopped: dict[JobId, tuple[Victim, ...]] = field(default_factory=dict)

    @property
    def ended(self) -> dict[JobId, Victim]:
        """Victims that make room for jobs that move."""
        return {victim.job_id: victim for victims in self.stopped.values() for victim in victims}


class RelocationPlanner:
    """Relocation planner: finds moves that make room for a job. It does not change the state.

    Args:
        turn: Turn of the engine.
        backlog: Backlog of the match.
        rule: Rule by which jobs may be ended.
        candidates: Nodes of the match, without those of its plans.
    """

    def __init__(self, turn: Turn, backlog: Backlog, rule: Reclaim, candidates: Candidates) -> None:
        self._turn, self._backlog, self._rule, self._candidates = turn, backlog, rule, candidates

    def find(self, job: Job, request: Request) -> tuple[tuple[Victim, ...], RelocationPlan] | None:
        """Return the cheapest victims that leave nodes for a job, with their new places; None without such victims.

        Args:
            job: The waiting job. Jobs that ask for shares or ports get no room by moves.
            request: Amounts that each of its tasks takes.
        """
        if job.spec.is_share or job.spec.ports or self._backlog.barriers.over_limit(job):
            return None
        seated = self._rule.seating.seat_for(job) is not None
        may_move = (
            movable(self._turn, self._rule, job, seated=seated) if seated or job.spec.tasks == 1 else None
        )
        if not may_move:
            return None
        stopped = self._rule.victims_of(job) if seated else {}
        victims = {**stopped, **may_move}
        # No job moves for a gang without a seat.
        bound = inf if seated else MAX_LOST_S * job.spec.counted_milli
        ways = list(self._ways(job, request, victims))
        if any(not chosen for _, chosen in ways):
            return None  # there is room already
        for room_on, chosen in sorted(ways, key=lambda way: (_cost(way[1]), way[0])):
            if _cost(chosen) > bound:
                break
            going = [self._turn.state.work.jobs[v.job_id] for v in chosen if v.job_id in may_move]
            homes = self._homes(job, room_on, going, may_stop=seated)
            if homes is not None:
                return chosen, homes
        return None

    def _ways(
        self, job: Job, request: Request, victims: Mapping[JobId, Victim]
    ) -> Iterator[tuple[tuple[AgentId, ...], tuple[Victim, ...]]]:
        """Yield sets of nodes, with the cheapest victims that leave each; for one task, nodes that lack little."""
        nodes = self._nodes(job, request, victims)
        nodes.sort(key=lambda node: (-len(node.gpus), node.agent_id))
        sets: Iterable[Sequence[NodeCapacity]] = ([node] for node in nodes[:_MAX_NODES])
        if job.spec.tasks > 1:
            sets = self._candidates.parts(job, nodes)
        place = self._backlog.neighbours.placing_of(job)
        for node_set in sets:
            chosen = plan(request, job.spec.tasks, node_set, victims, place=place)
            if chosen is not None:
                yield nodes_of_plan(request, job.spec.tasks, node_set, chosen, place), chosen

    def _homes(
        self, job: Job, room_on: tuple[AgentId, ...], going: Sequence[Job], *, may_stop: bool
    ) -> RelocationPlan | None:
        """Return a new place for each job that leaves nodes, the largest job first; None if one finds no place."""
        homes = RelocationPlan(job, room_on)
        for mover in sorted(going, key=lambda mover: (-mover.spec.counted_milli, mover.id)):
            if not (self._fits(mover, homes) or (may_stop and self._takes(mover, homes))):
                return None
        return homes

    def _fits(self, job: Job, homes: RelocationPlan) -> bool:
        """Move a job to the node on which it leaves the fewest GPUs free; return False if it fits nowhere."""
        request = request_of(job, self._turn.settings, self._turn.state)
        places = [
            (len(node.gpus), node.agent_id, node)
            for node in self._open_to(job, request, homes, homes.ended)
            if place_on(request, node) is not None
        ]
        if not places:
            return False
        self._go(job, request, min(places, key=lambda each: each[:2])[2], homes)
        return True

    def _takes(self, job: Job, homes: RelocationPlan) -> bool:
        """Move a job to a node on which borrowers make room for it; return False if there is no such node."""
        request, victims = request_of(job, self._turn.settings, self._turn.state), self._rule.takes_from(job)
        victims = {job_id: victim for job_id, victim in victims.items() if job_id not in homes.ended}
        nodes = [
            node for node in self._open_to(job, request, homes, victims) if node.agent_id not in homes.left
        ]
        chosen = plan(request, 1, nodes, victims) if victims else None
        if not chosen:
            return False
        (chosen_agent,) = nodes_of_plan(request, 1, nodes, chosen)[:1]
        node = next(node for node in nodes if node.agent_id == chosen_agent)
        ended = {victim.job_id for victim in chosen}
        homes.stopped[job.id] = chosen
        self._go(job, request, node.without([h for h in node.allocations if h.job_id in ended]), homes)
        return True

    @staticmethod
    def _go(job: Job, request: Request, node: NodeCapacity, homes: RelocationPlan) -> None:
        """Record the move of a job to a node with room for it."""
        place = place_on(request, node)
        assert place is not None, f"{job.id} has room on {node.agent_id}"
        homes.to[job.id] = node.agent_id
        homes.left[node.agent_id] = node.minus(request.resources, place.gpus, place.share)

    def _open_to(
        self, job: Job, request: Request, homes: RelocationPlan, victims: Mapping[JobId, Victim]
    ) -> list[NodeCapacity]:
        """Return the nodes to which a job may move, as earlier moves leave them."""
        nodes = self._nodes(job, request, victims, homes.job.id)
        return [homes.left.get(node.agent_id, node) for node in nodes if node.agent_id not in homes.room_on]

    def _nodes(
        self, job: Job, request: Request, victims: Mapping[JobId, Victim], served: JobId | None = None
    ) -> list[NodeCapacity]:
        """Return the nodes that could serve a job, without what is reserved for other jobs.

        Only a job with a seat takes what is reserved for jobs without. What is reserved for the served job is free,
        as that gets other room.
        """
        seated = self._rule.seating.seat_for(job) is not None
        ask = self._candidates.ask(job, request, victims)
        yields = ask.yields
        return self._candidates.nodes(
            replace(ask, yields=lambda other: other == served or (seated and yields(other)))
        )


def _cost(chosen: Sequence[Victim]) -> int:
    """Return the cost of all victims together."""
    return sum(victim.cost for victim in chosen)
