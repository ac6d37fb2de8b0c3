"""Capacity of pools: healthy GPUs of known agents that are not drained or being reset, by cost."""

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
    """Capacity of a pool.

    Attributes:
        milli: GPUs, in thousandths of cost.
        models: Cost of one GPU of each model that the pool has.
        cpus_milli: CPUs of its agents as far as known, in thousandths; 0 unless dominant shares count.
        mem_mib: Memory of its agents as far as known, in MiB; 0 unless dominant shares count.
    """

    milli: int = 0
    models: dict[str, int] = field(default_factory=dict)
    cpus_milli: int = 0
    mem_mib: int = 0

    def cost_of(self, models: tuple[str, ...], gpu_milli: int) -> int:
        """Return the highest cost of an amount of GPUs of some models; 0 if the pool has none of them.

        Args:
            models: Names of the models; empty for any model.
            gpu_milli: GPUs, in thousandths.
        """
        by_model = self.models
        costs = (
            [by_model[model] for model in models if model in by_model] if models else list(by_model.values())
        )
        return gpu_milli * max(costs, default=0)


@dataclass(slots=True)
class _Known:
    """Result of the last computation, for the tree and the drains that it was made with."""

    tree: Tree
    taken_out: object
    # Node, pool, and GPUs by model.
    nodes: dict[AgentId, tuple[Node, str, Mapping[str, int]]] = field(default_factory=dict)

    def __copy__(self) -> "_Known":
        return replace(self, nodes=dict(self.nodes))


def capacities(state: State, tree: Tree) -> Mapping[str, PoolCapacity]:
    """Return the capacity of each pool that has healthy GPUs.

    A node whose monitor is late counts with its last report, so that fair shares do not jump with each late report.
    """
    taken_out = tuple(state.cluster.drains), tuple(state.gpus.resets)
    cache: _Known | None = state.books.notes.get(_NOTE)
    if cache is None or cache.tree is not tree or cache.taken_out != taken_out:
        cache = state.books.notes[_NOTE] = _Known(tree, taken_out)
    pools: dict[str, PoolCapacity] = {}
    for agent_id, node in state.cluster.nodes.items():
        seen = cache.nodes.get(agent_id)
        if seen is None or seen[0] is not node:
            seen = cache.nodes[agent_id] = node, *_of_node(state, tree, node)
        _, pool, models = seen
        if models:
            capacity = pools.setdefault(pool, PoolCapacity())
            _add(capacity, tree, models)
            if tree.document.fairness is Fairness.DRF and agent_id in state.cluster.capacities:
                agent_capacity = state.cluster.capacities[agent_id]
                most = agent_capacity.latest.most(agent_capacity.before)
                capacity.cpus_milli += round(most.cpus * 1000)
                capacity.mem_mib += round(most.mem_mib)
    return pools


def _add(pool: PoolCapacity, tree: Tree, models: Mapping[str, int]) -> None:
    """Add GPUs of some models to the capacity of a pool."""
    for model, count in models.items():
        cost = pool.models.get(model)
        if cost is None:
            cost = pool.models[model] = tree.cost_milli(model, 1)
        pool.milli += count * WHOLE * cost


def _of_node(state: State, tree: Tree, node: Node) -> tuple[str, Mapping[str, int]]:
    """Return the pool of a node, and its GPUs that may be used, counted by model."""
    if node.lost_at is not None or is_closed(state, node):
        return DEFAULT_POOL, {}
    return pool_of_node(tree, node), Counter(gpu.model for gpu in sound_of(state, node, node.gpus))
