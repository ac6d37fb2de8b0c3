"""What tasks hold of GPUs, as it is counted: by model, by pool, and by cost."""

from collections import Counter

from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.usage import Part
from mesos_gpu.policy.tenancy.pools import pool_of


def parts_of(state: State, task: Task) -> tuple[Part, ...]:
    """What a task holds, by model; a model that its node does not report has the name "". What was granted
    counts, not what was asked for: of a MIG instance its part of the card."""
    each = WHOLE if task.counted_share is None else task.counted_share.compute_milli
    node, cost = state.nodes.get(task.agent_id), state.queues.gpu_cost
    models = Counter(_model(node, gpu_id) for gpu_id in task.gpus)
    return tuple([
        Part(model, count * each, count * each * cost.get(model, 1))
        for model, count in sorted(models.items())
    ])  # fmt: skip


def pool_at(state: State, node: Node | None) -> str:
    """The pool that a node is in; "": there are none."""
    pools = state.queues.pools
    if not pools or node is None:
        return ""
    return pool_of(pools, {gpu.model for gpu in node.gpus}, node.attributes)


def _model(node: Node | None, gpu_id: GpuId) -> str:
    gpu = node.gpu(gpu_id) if node is not None else None
    return gpu.model if gpu is not None else ""
