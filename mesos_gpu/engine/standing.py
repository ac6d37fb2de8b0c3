"""How a GPU stands: what its node says of it, under what operators say."""

from mesos_gpu.engine.state import State
from mesos_gpu.model.gpu import Gpu, Health
from mesos_gpu.model.node import Node, Standing


def standing(state: State, node: Node, gpu: Gpu) -> Standing:
    """The GPU with its effective health: drained, or in a reset, whatever its node says."""
    drain, card = state.drain_of(node.hostname, gpu.id), state.cards.get(gpu.id)
    reset = card.reset if card else None
    health, reason, since = gpu.health, gpu.reason, gpu.since
    if drain is not None:
        health, reason, since = Health.DRAINED, drain.words_of_gpu, drain.since
    elif reset is not None:
        health, reason, since = Health.DRAINED, f"in a reset: {reset.reason}", reset.since
    return Standing(node, gpu, health, reason, since, drain, card)
