"""Unreserving of resources reserved for shared GPUs; a master may refuse it without an answer."""

from collections.abc import Sequence
from typing import Final

from mesos_gpu.engine.effects import Launch
from mesos_gpu.engine.indexes.memory import Unreserved
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.offer import Offer, Scalar
from mesos_gpu.policy.queueing.backoff import delay_s
from mesos_gpu.wire.mesos.reservations import is_ours

_FIRST_S: Final = 1.0  # delay after the first refusal
_MAX_S: Final = 300.0


def unreserved_of(state: State, offer: Offer) -> tuple[Scalar, ...]:
    """Return the resources of an offer that jobs may use: those that are not reserved for shared GPUs."""
    return tuple([scalar for scalar in offer.resources if not is_ours(scalar, state.mesos.framework_id)])


def may_unreserve(state: State, agent_id: AgentId, scalars: Sequence[Scalar], now: float) -> bool:
    """Return whether to unreserve resources now; those that are offered again are tried less and less often."""
    last = state.cluster.unreserved.get(agent_id)
    return last is None or now >= last.until or not _comes_again(last, scalars)


def note_unreserve(turn: Turn, launch: Launch) -> None:
    """Record that resources were unreserved, in case they are offered again."""
    if not launch.unreserve:
        return
    state, scalars = turn.state, launch.unreserve
    agent_id = state.cluster.offers[launch.offer_ids[0]].agent_id
    last = state.cluster.unreserved.get(agent_id)
    tries = last.tries + 1 if last is not None and _comes_again(last, scalars) else 1
    until = turn.now + delay_s(tries, first_s=_FIRST_S, most_s=_MAX_S)
    state.cluster.unreserved[agent_id] = Unreserved(scalars, tries, until)


def forget_unreserve(turn: Turn, offer: Offer) -> None:
    """Forget earlier tries for an agent whose offer has no reserved resources any more."""
    if offer.agent_id in turn.state.cluster.unreserved and not any(
        is_ours(scalar, turn.state.mesos.framework_id) for scalar in offer.resources
    ):
        del turn.state.cluster.unreserved[offer.agent_id]


def _comes_again(last: Unreserved, scalars: Sequence[Scalar]) -> bool:
    """Return whether all resources of the last try are offered again.

    What an executor leaves comes later than what its task leaves, so more may be offered than before.
    """
    amounts = {(scalar.name, scalar.kind): scalar.amount for scalar in scalars}
    return all(amounts.get((scalar.name, scalar.kind), 0.0) >= scalar.amount for scalar in last.scalars)
