"""Places for all tasks of a job at once, during one match."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mesos_gpu.engine.match.placing import Placing
from mesos_gpu.engine.queue.neighbours import Neighbours
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.offer import take_port
from mesos_gpu.policy.capacity import Chosen, NodeCapacity, Request, room_for


@dataclass(frozen=True, slots=True)
class Tables:
    """What a match has for one job.

    Attributes:
        placing, neighbours: Of the match; they are as before afterwards.
        nodes: All agents on the table.
        open_to: Those that the job may use, as it may use them.
    """

    placing: Placing
    neighbours: Neighbours
    nodes: Mapping[AgentId, NodeCapacity]
    open_to: Mapping[AgentId, NodeCapacity]


def place_together(job: Job, request: Request, tables: Tables) -> list[Chosen] | None:
    """A place for each task, those of one node together; None: they do not all fit. Nothing is taken yet."""
    for one in request.each_model():  # of one model, if any is asked for: the slowest decides for all
        if _upper_bound(one, tables) < job.spec.tasks:
            continue
        trial = _Trial(job, one, tables)
        try:
            if trial.place_all():
                return trial.in_order()
        finally:
            trial.take_back()
    return None


def _upper_bound(request: Request, tables: Tables) -> int:
    """No more tasks than that fit: so most matches see quickly that a large job must wait."""
    return sum(room_for(request, node).slots for node in tables.open_to.values())


class _Trial:
    """Places taken one after the other, to be given back."""

    def __init__(self, job: Job, request: Request, tables: Tables) -> None:
        self._job, self._request = job, request
        self._placing, self._neighbours = tables.placing, tables.neighbours
        self._before = tables.nodes
        self._now, self._open = dict(tables.nodes), dict(tables.open_to)
        self._chosen: list[Chosen] = []

    def place_all(self) -> bool:
        while len(self._chosen) < self._job.spec.tasks:
            open_to = {agent_id: node for agent_id, node in self._open.items() if node.ports}
            chosen = self._placing.place(
                self._job, self._request, self._neighbours.open_to(self._job, open_to)
            )
            if chosen is None:
                return False
            self._take(chosen)
        return True

    def _take(self, chosen: Chosen) -> None:
        agent_id = chosen.agent_id
        self._chosen.append(chosen)
        narrowed = self._open[agent_id] is not self._now[agent_id]
        self._now[agent_id] = left = _without(self._now[agent_id], self._request, chosen)
        self._open[agent_id] = _without(self._open[agent_id], self._request, chosen) if narrowed else left
        self._placing.launched(self._job, left)
        self._neighbours.tried(self._job, agent_id)

    def in_order(self) -> list[Chosen]:
        """By rank: the first node's first, so that neighbours in rank are neighbours."""
        nodes = list(dict.fromkeys(chosen.agent_id for chosen in self._chosen))
        return sorted(self._chosen, key=lambda chosen: nodes.index(chosen.agent_id))

    def take_back(self) -> None:
        for chosen in self._chosen:
            self._placing.given_back(self._job, self._before[chosen.agent_id])
        if self._chosen:
            self._neighbours.forget()


def _without(node: NodeCapacity, request: Request, chosen: Chosen) -> NodeCapacity:
    left = node.minus(request.resources, chosen.gpus)
    return replace(left, ports=take_port(left.ports or ())[1])
