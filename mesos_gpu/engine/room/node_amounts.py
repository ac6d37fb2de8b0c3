"""CPUs and memory of nodes, as far as offers and launches show them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mesos_gpu.engine.room.footprint import footprint_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.offer import resources_of
from mesos_gpu.model.resources import NOTHING, Resources, total


@dataclass(frozen=True, slots=True)
class NodeAmounts:
    """Amounts of a node without what other frameworks hold.

    Attributes:
        free: Amounts that the node's latest offers had.
        total: Sum of those amounts and of those that tasks of this framework hold.
    """

    free: Resources
    total: Resources


def amounts_of(
    state: State, settings: Settings, agents: Collection[AgentId]
) -> Mapping[AgentId, NodeAmounts]:
    """Return free and total amounts of the nodes in `agents` that have an offer, held or declined.

    Nodes without one are left out: their free amounts are not known until their next offer arrives.
    """
    unused = (offer for offer in state.cluster.unused.values() if offer.agent_id in agents)
    free = {offer.agent_id: resources_of(offer.resources) for offer in unused}
    held: dict[AgentId, list[Resources]] = {}
    for offer in state.cluster.offers.values():
        if offer.agent_id in agents:
            held.setdefault(offer.agent_id, []).append(resources_of(offer.resources))
    free |= {agent_id: total(each) for agent_id, each in held.items()}
    used: dict[AgentId, Resources] = {}
    keepers = set[tuple[AgentId, str]]()
    for task_id in state.work.live:
        task = state.work.tasks[task_id]
        if task.agent_id not in agents:
            continue
        job = state.work.jobs.get(task.job_id) if task.job_id else None
        if job is not None:
            takes = footprint_of(job, settings).total
        elif task.covers is None:
            takes = settings.programs.monitor
        elif (task.agent_id, task.executor_id) in keepers:
            takes = settings.programs.cover
        else:
            keepers.add((task.agent_id, task.executor_id))
            takes = settings.programs.cover + settings.programs.keeper
        used[task.agent_id] = used.get(task.agent_id, NOTHING) + takes
    return {
        agent_id: NodeAmounts(amounts, amounts + used.get(agent_id, NOTHING))
        for agent_id, amounts in free.items()
    }
