"""GPUs that tasks hold but that reports of their node lack: they stay known, with unknown health."""

from dataclasses import replace
from typing import Final

from mesos_gpu.engine.gpus.cards import record
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory, Transition
from mesos_gpu.model.nodes.node import Node

UNNAMED: Final = "tasks hold it, and its node's reports do not name it"
NAMED: Final = "its node's reports name it again"


def is_unnamed(gpu: Gpu) -> bool:
    """Return whether a GPU is known from earlier reports only."""
    return gpu.health is Health.UNKNOWN and gpu.reason == UNNAMED


def with_held(turn: Turn, node: Node, inventory: Inventory) -> Inventory:
    """Return a report with GPUs added that it lacks and that tasks on its node hold, of unknown health.

    A GPU that another node's report names was moved there, and one whose minor number another GPU has was replaced:
    these are not added. The changes are recorded in the history of the GPUs.
    """
    if not node.gpus:
        return inventory
    named = {gpu.id: gpu for gpu in inventory.gpus}
    for gpu in filter(is_unnamed, node.gpus):
        if gpu.id in named and not is_unnamed(named[gpu.id]):
            record(turn, gpu.id, [Transition(turn.now, gpu.health, named[gpu.id].health, NAMED)])
    minors = {gpu.minor for gpu in inventory.gpus}
    missing = [gpu for gpu in node.gpus if gpu.id not in named and gpu.minor not in minors]
    held = tuple([_unnamed(turn, gpu) for gpu in missing if _is_held(turn, node, gpu)])
    return replace(inventory, gpus=(*inventory.gpus, *held)) if held else inventory


def _is_held(turn: Turn, node: Node, gpu: Gpu) -> bool:
    """Return whether a task on a node holds a GPU that no other node reports."""
    if turn.state.cluster.agents.others_naming(node, [gpu.id]):
        return False
    return any(task.agent_id == node.id for task in turn.state.tenants(gpu.id))


def _unnamed(turn: Turn, gpu: Gpu) -> Gpu:
    """Return a GPU that is missing in a report, of unknown health, and record the change in its history."""
    if is_unnamed(gpu):
        return gpu
    record(turn, gpu.id, [Transition(turn.now, gpu.health, Health.UNKNOWN, UNNAMED)])
    return replace(gpu, health=Health.UNKNOWN, reason=UNNAMED, since=turn.now, index=None)
