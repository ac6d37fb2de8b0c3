"""Places for all tasks of a job at once, during one match."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mesos_gpu.engine.match.placing import Placing
from mesos_gpu.engine.queue.neighbours import Neighbours
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.policy.cluster.placement import Ask, Candidate, Chosen
from mesos_gpu.policy.room.together import times


@dataclass(frozen=True, slots=True)
class Tables:
    """What a match has for one job.

    Attributes:
        placing, neighbours: Of the match; they are as before afterwards.
        candidates: All agents on the table.
        open_to: Those that the job may use, as it may use them.
        ports: How many ports each agent offers; each task takes one.
    """

    placing: Placing
    neighbours: Neighbours
    candidates: Mapping[AgentId, Candidate]
    open_to: Mapping[AgentId, Candidate]
    ports: Mapping[AgentId, int]


def place_together(job: Job, ask: Ask, tables: Tables) -> list[Chosen] | None:
    """A place for each task, those of one node together; None: they do not all fit. Nothing is taken yet."""
    for model in ask.models or (None,):  # of one model, if any is asked for: the slowest decides for all
        one = ask if model is None else replace(ask, models=(model,))
        if _upper_bound(one, tables) < job.spec.tasks:
            continue
        trial = _Trial(job, one, tables)
        try:
            if trial.place_all():
                return trial.in_order()
        finally:
            trial.take_back()
    return None


def _upper_bound(ask: Ask, tables: Tables) -> int:
    """No more tasks than that fit: so most matches see quickly that a large job must wait."""
    return sum(
        min(
            times(found.cpus, ask.cpus),
            times(found.mem_mib, ask.mem_mib),
            times(found.disk_mib, ask.disk_mib),
            times(min(found.gpus_offered, len(found.free)), ask.gpus),
            tables.ports.get(agent_id, 0),
        )
        for agent_id, found in tables.open_to.items()
    )


class _Trial:
    """Places taken one after the other, to be given back."""

    def __init__(self, job: Job, ask: Ask, tables: Tables) -> None:
        self._job, self._ask = job, ask
        self._placing, self._neighbours = tables.placing, tables.neighbours
        self._before = tables.candidates
        self._now, self._open = dict(tables.candidates), dict(tables.open_to)
        self._ports = dict(tables.ports)
        self._chosen: list[Chosen] = []

    def place_all(self) -> bool:
        while len(self._chosen) < self._job.spec.tasks:
            free = {a: found for a, found in self._open.items() if self._ports.get(a, 0) > 0}
            chosen = self._placing.place(self._job, self._ask, self._neighbours.open_to(self._job, free))
            if chosen is None:
                return False
            self._take(chosen)
        return True

    def _take(self, chosen: Chosen) -> None:
        agent_id = chosen.agent_id
        self._chosen.append(chosen)
        self._ports[agent_id] -= 1
        narrowed = self._open[agent_id] is not self._now[agent_id]
        self._now[agent_id] = left = _without(self._now[agent_id], self._ask, chosen)
        self._open[agent_id] = _without(self._open[agent_id], self._ask, chosen) if narrowed else left
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


def _without(candidate: Candidate, ask: Ask, chosen: Chosen) -> Candidate:
    return replace(
        candidate,
        cpus=round(candidate.cpus - ask.cpus, 3),
        mem_mib=round(candidate.mem_mib - ask.mem_mib, 3),
        disk_mib=round(candidate.disk_mib - ask.disk_mib, 3),
        gpus_offered=candidate.gpus_offered - len(chosen.gpus),
        free=tuple(gpu for gpu in candidate.free if gpu.id not in chosen.gpus),
    )
