"""What was reserved for shared cards, given back: a master may refuse that, and does not say so."""

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

_FIRST_S: Final = 1.0  # after the first refusal, until it is tried again
_MAX_S: Final = 300.0


def unreserved_of(state: State, offer: Offer) -> tuple[Scalar, ...]:
    """What jobs may use of an offer: what is reserved for shared cards only those may have, until it is given back."""
    return tuple([each for each in offer.resources if not is_ours(each, state.mesos.framework_id)])


def may_unreserve(state: State, agent_id: AgentId, scalars: Sequence[Scalar], now: float) -> bool:
    """Whether to give that back now: what comes again after it was given back is tried less and less."""
    last = state.cluster.unreserved.get(agent_id)
    return last is None or now >= last.until or not _comes_again(last, scalars)


def note_unreserve(turn: Turn, launch: Launch) -> None:
    """Count what is given back, should it come again."""
    if not launch.unreserve:
        return
    state, scalars = turn.state, launch.unreserve
    agent_id = state.cluster.offers[launch.offer_ids[0]].agent_id
    last = state.cluster.unreserved.get(agent_id)
    tries = last.tries + 1 if last is not None and _comes_again(last, scalars) else 1
    until = turn.now + delay_s(tries, first_s=_FIRST_S, most_s=_MAX_S)
    state.cluster.unreserved[agent_id] = Unreserved(scalars, tries, until)


def forget_unreserve(turn: Turn, offer: Offer) -> None:
    """What an agent offers shows that all was taken back."""
    if offer.agent_id in turn.state.cluster.unreserved and not any(
        is_ours(scalar, turn.state.mesos.framework_id) for scalar in offer.resources
    ):
        del turn.state.cluster.unreserved[offer.agent_id]


def _comes_again(last: Unreserved, scalars: Sequence[Scalar]) -> bool:
    """Whether all of it is there still. What an executor leaves comes later than what its task leaves, and is less."""
    there = {(scalar.name, scalar.kind): scalar.amount for scalar in scalars}
    return all(there.get((each.name, each.kind), 0.0) >= each.amount for each in last.scalars)
