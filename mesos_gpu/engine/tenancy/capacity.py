"""What the pools have: GPUs that are sound and that nobody has taken out, by cost."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mesos_gpu.engine.charges import pool_of_node
from mesos_gpu.engine.gpus.gpu_status import is_closed, sound_of
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import DEFAULT_POOL, Fairness
from mesos_gpu.policy.tenancy.tree import Tree

_NOTE: Final = "capacity"


@dataclass(slots=True)
class PoolCapacity:
    """What a pool has.

    Attributes:
        milli: Thousandths of cost.
        models: Of its GPUs, with what one of each costs.
        cpus_milli, mem_mib: What its agents have, as far as they were seen; 0 where nobody asks for it.
    """

    milli: int = 0
    models: dict[str, int] = field(default_factory=dict)
    cpus_milli: int = 0
    mem_mib: int = 0

    def cost_of(self, models: tuple[str, ...], gpu_milli: int) -> int:
        """What so many thousandths of GPUs of such models cost at most; none: of any; 0: it has none of them."""
        there = self.models
        costs = [there[model] for model in models if model in there] if models else list(there.values())
        return gpu_milli * max(costs, default=0)


@dataclass(slots=True)
class _Known:
    tree: Tree
    taken_out: object
    nodes: dict[AgentId, tuple[Node, str, Mapping[str, int]]] = field(default_factory=dict)  # GPUs by model

    def __copy__(self) -> "_Known":
        return replace(self, nodes=dict(self.nodes))


def capacities(state: State, tree: Tree) -> Mapping[str, PoolCapacity]:
    """What each pool has that has nodes. A node that has not reported for a while has what it reported last: what it
    is divided into shall not jump at each report that is late."""
    taken_out = tuple(state.cluster.drains), tuple(state.gpus.resets)
    known: _Known | None = state.books.notes.get(_NOTE)
    if known is None or known.tree is not tree or known.taken_out != taken_out:
        known = state.books.notes[_NOTE] = _Known(tree, taken_out)
    pools: dict[str, PoolCapacity] = {}
    for agent_id, node in state.cluster.nodes.items():
        seen = known.nodes.get(agent_id)
        if seen is None or seen[0] is not node:
            seen = known.nodes[agent_id] = node, *_of_node(state, tree, node)
        _, pool, models = seen
        if models:
            capacity = pools.setdefault(pool, PoolCapacity())
            _add(capacity, tree, models)
            if tree.document.fairness is Fairness.DRF and agent_id in state.cluster.capacities:
                seen_of_it = state.cluster.capacities[agent_id]
                most = seen_of_it.latest.most(seen_of_it.before)
                capacity.cpus_milli += round(most.cpus * 1000)
                capacity.mem_mib += round(most.mem_mib)
    return pools


def _add(pool: PoolCapacity, tree: Tree, models: Mapping[str, int]) -> None:
    for model, count in models.items():
        cost = pool.models.get(model)
        if cost is None:
            cost = pool.models[model] = tree.cost_milli(model, 1)
        pool.milli += count * WHOLE * cost


def _of_node(state: State, tree: Tree, node: Node) -> tuple[str, Mapping[str, int]]:
    """Find its pool, and count by model the GPUs that it has to give."""
    if node.lost_at is not None or is_closed(state, node):
        return DEFAULT_POOL, {}
    return pool_of_node(tree, node), Counter(gpu.model for gpu in sound_of(state, node, node.gpus))
