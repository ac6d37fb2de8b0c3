"""Which running jobs to end so that one of higher priority can start: the cheapest, and no more than needed. Pure.

Nothing is chosen before the whole plan is known to make room.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.policy.cluster.placement import Ask
from mesos_gpu.policy.room.together import times, whole_sets

MOST_TRIED: Final = 8  # victims on one node, of which every choice is looked at


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that may be ended, and what that costs."""

    job_id: JobId
    priority: int
    lost_gpu_s: float  # the work that is done again: its GPUs by the time that it has run


@dataclass(frozen=True, slots=True)
class Share:
    """What one task of a victim holds of a node."""

    job_id: JobId
    cpus: float
    mem_mib: float
    gpus: tuple[Gpu, ...]  # those that another job could use then
    disk_mib: float = 0.0


@dataclass(frozen=True, slots=True)
class Ground:
    """A node: what is free there for the job, and what victims hold."""

    agent_id: AgentId
    hostname: str
    cpus: float
    mem_mib: float
    free: tuple[Gpu, ...]
    shares: tuple[Share, ...] = ()
    disk_mib: float = 0.0

    def holds(self, ask: Ask, ended: Collection[JobId], model: str | None = None) -> int:
        """How many tasks there is room for when those victims have ended."""
        given = [share for share in self.shares if share.job_id in ended]
        gpus = [*self.free, *(gpu for share in given for gpu in share.gpus)]
        return max(
            min(
                times(self.cpus + sum(share.cpus for share in given), ask.cpus),
                times(self.mem_mib + sum(share.mem_mib for share in given), ask.mem_mib),
                times(self.disk_mib + sum(share.disk_mib for share in given), ask.disk_mib),
                times(len(whole_sets(ask, gpus, model)), ask.gpus),
            ),
            0,
        )


def plan(
    ask: Ask, tasks: int, grounds: Sequence[Ground], victims: Mapping[JobId, Victim]
) -> tuple[Victim, ...] | None:
    """The victims whose end makes room for all tasks; none of them can be left out.

    Args:
        ask: What each task takes.
        tasks: How many start together.
        grounds: The nodes that may serve the job.
        victims: Every job that may be ended for it.

    Returns:
        Empty: there is room already. None: there is none even if all of them ended.
    """
    best: tuple[Victim, ...] | None = None
    for model in ask.models or (None,):
        found = (
            _on_one(ask, grounds, victims, model)
            if tasks == 1
            else _on_many(ask, tasks, grounds, victims, model)
        )
        if found is not None and (best is None or _cost(found) < _cost(best)):
            best = found
    return best


def _cost(chosen: Iterable[Victim]) -> tuple[int, float, int, list[str]]:
    """The highest priority that is hurt counts first, then the work lost, then how many."""
    every = list(chosen)
    highest = max((victim.priority for victim in every), default=-(1 << 30))
    return highest, sum(v.lost_gpu_s for v in every), len(every), sorted(v.job_id for v in every)


def _on_one(
    ask: Ask, grounds: Sequence[Ground], victims: Mapping[JobId, Victim], model: str | None
) -> tuple[Victim, ...] | None:
    best: tuple[Victim, ...] | None = None
    for ground in grounds:
        there = sorted({share.job_id for share in ground.shares} & victims.keys())
        if not ground.holds(ask, there, model):
            continue
        mine = [victims[job_id] for job_id in there]
        found = (
            _least(ask, ground, mine, model)
            if len(mine) <= MOST_TRIED
            else _thinned(ask, 1, [ground], mine, model)
        )
        if best is None or _cost(found) < _cost(best):
            best = found
    return best


def _least(ask: Ask, ground: Ground, mine: Sequence[Victim], model: str | None) -> tuple[Victim, ...]:
    """The cheapest choice on one node, of all choices."""
    able = (
        chosen
        for count in range(len(mine) + 1)
        for chosen in combinations(mine, count)
        if ground.holds(ask, {victim.job_id for victim in chosen}, model)
    )
    return min(able, key=_cost)


def _on_many(
    ask: Ask, tasks: int, grounds: Sequence[Ground], victims: Mapping[JobId, Victim], model: str | None
) -> tuple[Victim, ...] | None:
    if sum(ground.holds(ask, victims.keys(), model) for ground in grounds) < tasks:
        return None
    return _thinned(ask, tasks, grounds, list(victims.values()), model)


def _thinned(
    ask: Ask, tasks: int, grounds: Sequence[Ground], chosen: Sequence[Victim], model: str | None
) -> tuple[Victim, ...]:
    """Spare one after the other, the dearest first, as long as there is room enough without."""
    kept = {victim.job_id for victim in chosen}
    held = {ground.agent_id: ground.holds(ask, kept, model) for ground in grounds}
    where: dict[JobId, list[Ground]] = {}
    for ground in grounds:
        for job_id in {share.job_id for share in ground.shares}:
            where.setdefault(job_id, []).append(ground)
    total = sum(held.values())
    dearest = sorted(chosen, key=lambda v: (-v.priority, -v.lost_gpu_s, v.job_id))
    for victim in dearest:
        fewer = kept - {victim.job_id}
        now = {g.agent_id: g.holds(ask, fewer, model) for g in where.get(victim.job_id, ())}
        left = total - sum(held[agent_id] - count for agent_id, count in now.items())
        if left >= tasks:
            kept, total = fewer, left
            held.update(now)
    return tuple(victim for victim in chosen if victim.job_id in kept)
