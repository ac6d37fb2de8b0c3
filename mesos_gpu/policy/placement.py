"""Which agent and which GPUs: pure, deterministic.

The rule is *bundle*: the agent that has the least to spare and still fits, so that whole agents stay free.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mesos_gpu.model.driver import as_new_as
from mesos_gpu.model.gpu import Gpu
from mesos_gpu.model.ids import AgentId, GpuId


@dataclass(frozen=True, slots=True)
class Ask:
    """What one launch needs, its executor's own share included."""

    cpus: float
    mem_mib: float
    gpus: int = 0
    models: tuple[str, ...] = ()  # ordered fallbacks; empty: any
    min_driver: str | None = None  # the oldest driver that will do; None: any, or none at all


@dataclass(frozen=True, slots=True)
class Candidate:
    """An agent as it could be used now."""

    agent_id: AgentId
    hostname: str
    cpus: float
    mem_mib: float
    gpus_offered: int  # Mesos' count; not which
    free: tuple[Gpu, ...]  # healthy, held by nobody
    gpus_total: int = 0
    driver: str | None = None  # None: it has none, or it is not known


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where it goes."""

    agent_id: AgentId
    gpus: tuple[GpuId, ...]


def _fits(ask: Ask, candidate: Candidate, model: str | None) -> bool:
    if candidate.cpus < ask.cpus or candidate.mem_mib < ask.mem_mib or candidate.gpus_offered < ask.gpus:
        return False
    if not as_new_as(candidate.driver, ask.min_driver):
        return False
    return ask.gpus == 0 or ask.gpus <= sum(
        1 for gpu in candidate.free if model is None or gpu.model == model
    )


def choose_gpus(free: Iterable[Gpu], count: int, model: str | None) -> tuple[GpuId, ...]:
    """Take `count` GPUs, all on the NUMA node with the tightest fit when one node can serve."""
    fit = sorted(
        (g for g in free if model is None or g.model == model), key=lambda g: (g.memory_mib, g.minor, g.id)
    )
    by_node: dict[int | None, list[Gpu]] = {}
    for gpu in fit:
        by_node.setdefault(gpu.numa_node, []).append(gpu)
    local = [group for node, group in by_node.items() if node is not None and len(group) >= count]
    best = min(local, key=lambda group: (len(group), group[0].minor), default=fit)
    return tuple(gpu.id for gpu in best[:count])


def place(ask: Ask, candidates: Sequence[Candidate]) -> Chosen | None:
    """Where the ask fits best, or None. Without GPUs it keeps off agents with GPUs if it can."""
    for model in ask.models or (None,):
        fit = [c for c in candidates if _fits(ask, c, model)]
        if fit:
            best = min(
                fit, key=lambda c: (len(c.free) if ask.gpus else c.gpus_total, c.cpus, c.hostname, c.agent_id)
            )
            return Chosen(best.agent_id, choose_gpus(best.free, ask.gpus, model) if ask.gpus else ())
    return None
