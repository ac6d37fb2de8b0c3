"""Offers: held, asked for, given back."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from mesos_gpu.engine.calendar.booked import unfinished
from mesos_gpu.engine.changed import changed
from mesos_gpu.engine.effects import Decline, Revive, Suppress
from mesos_gpu.engine.gpus.covers import is_uncovered
from mesos_gpu.engine.gpus.unreserving import forget_unreserve
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import OfferId
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import Offer
from mesos_gpu.wire.mesos.reservations import is_others

MANY_OFFERS: Final = 500
_PARTS: Final = 64  # of the time over which many offers are given back


def on_offers(turn: Turn, offers: Iterable[Offer]) -> None:
    """Hold them, and note their agents. What other frameworks of the role have reserved for cards is left alone."""
    for offer in offers:
        resources = tuple([s for s in offer.resources if not is_others(s, turn.state.mesos.framework_id)])
        offer = changed(offer, resources=resources, received_at=turn.now)
        forget_unreserve(turn, offer)
        turn.state.cluster.hold_offer(offer)
        known = turn.state.cluster.nodes.get(offer.agent_id)
        node = changed(
            known or Node(offer.agent_id, offer.hostname),
            hostname=offer.hostname,
            agent_url=offer.agent_url,
            attributes=offer.attributes,
            region=offer.region,
            zone=offer.zone,
            lost_at=None,
        )
        if node != known:
            turn.put_node(node)


def wants_offers(turn: Turn) -> bool:
    """Whether anything waits that an offer could serve."""
    if turn.state.work.queue or is_uncovered(turn.state) or _is_booked_soon(turn):
        return True
    return any(
        _wants_monitor(turn.state.cluster.nodes[agent_id]) for agent_id in turn.state.cluster.agents.unwatched
    )


def _is_booked_soon(turn: Turn) -> bool:
    known = turn.state.calendar.provisional
    return known is not None and known.is_soon(turn.now)


def _wants_monitor(node: Node) -> bool:
    """Whether a node without a monitor has had one, or offered GPUs."""
    return (node.inventory is not None or node.monitor_launches > 0) and node.lost_at is None


def balance(turn: Turn, placed: Collection[str]) -> None:
    """Hold, give back, ask for or suppress offers as it is needed.

    `placed`: roles of jobs that this match has placed. Then more may come: of a steady stream that is placed at once
    none waits at the end of a match, and each would have all agents offer anew.
    """
    state, settings = turn.state, turn.settings
    if placed or wants_offers(turn):
        state.mesos.idle_since = None
        asked = _asked_for(turn, placed) if settings.mesos.role_of else ()
        if state.mesos.suppressed or turn.now - state.mesos.swept_at >= settings.mesos.sweep_interval_s:
            # Repeated while something waits: a REVIVE that was lost would leave it waiting for ever.
            state.mesos.suppressed, state.mesos.swept_at = False, turn.now
            turn.effects.append(Revive(asked))
            state.mesos.roles.asked = None
        if asked:
            _ask_for(turn, asked)
        _give_back(turn, tuple(_old(turn)), settings.mesos.offer_refuse_s)
        return
    if state.mesos.idle_since is None:
        state.mesos.idle_since = turn.now
    if turn.now - state.mesos.idle_since < settings.mesos.idle_linger_s:
        return
    _give_back(turn, tuple(state.cluster.offers), settings.mesos.idle_refuse_s)
    if not state.mesos.suppressed:
        state.mesos.suppressed, state.mesos.swept_at, state.mesos.roles.asked = True, turn.now, None
        turn.effects.append(Suppress())
    elif turn.now - state.mesos.swept_at >= settings.mesos.sweep_interval_s:
        # A suppressed framework is not told of new agents: ask, hold for a moment, suppress again.
        state.mesos.suppressed, state.mesos.idle_since = False, turn.now
        turn.effects.append(Revive())


def _asked_for(turn: Turn, placed: Collection[str]) -> tuple[str, ...]:
    """Find, of several roles, those that jobs or bookings wait for, or waited for a moment ago; all, if only monitors
    wait."""
    state, settings = turn.state, turn.settings
    waiting = set(placed)
    for _, job_id in state.work.queue:
        if len(waiting) == len(settings.mesos.roles):
            break
        waiting.add(settings.mesos.role_for(state.work.jobs[job_id].spec.queue))
    if _is_booked_soon(turn):
        waiting |= {settings.mesos.role_for(each.spec.queue) for each in unfinished(state)}
    if not state.work.queue and not placed:
        waiting = set(settings.mesos.roles)
    for role in waiting:
        state.mesos.roles.until[role] = turn.now + settings.mesos.idle_linger_s
    soon = turn.now + settings.mesos.idle_linger_s  # later ones are of a clock that was set back
    return tuple(
        [role for role in settings.mesos.roles if turn.now < state.mesos.roles.until.get(role, 0.0) <= soon]
    )


def _ask_for(turn: Turn, asked: tuple[str, ...]) -> None:
    """Ask for offers of these roles, and give back those of others: what they hold, these may need."""
    state, roles = turn.state, turn.settings.mesos.roles
    before = roles if state.mesos.roles.asked is None else state.mesos.roles.asked
    if more := tuple([role for role in asked if role not in before]):
        turn.effects.append(Revive(more))
    if less := tuple([role for role in before if role not in asked]):
        turn.effects.append(Suppress(less))
    state.mesos.roles.asked = asked
    others = [
        o.id for o in state.cluster.offers.values() if (o.role or turn.settings.mesos.role) not in asked
    ]
    _give_back(turn, tuple(others), turn.settings.mesos.idle_refuse_s)


def _old(turn: Turn) -> Iterator[OfferId]:
    """Yield offers that were held for long. They are in the order in which they came, unless the clock was set back.

    Of `MANY_OFFERS`, which may have come together, each is held up to twice as long: if all were given back together,
    the next jobs would find none.
    """
    hold_s, agents = turn.settings.mesos.offer_hold_s, turn.state.cluster.agents
    spread_s = hold_s if len(turn.state.cluster.offers) >= MANY_OFFERS else 0.0
    for offer in turn.state.cluster.offers.values():
        held_s = turn.now - offer.received_at
        if held_s > hold_s:
            number = agents.offers[offer.agent_id][offer.id].number
            if held_s > hold_s + spread_s * (number % _PARTS) / _PARTS:
                yield offer.id
        elif offer.received_at <= turn.now:
            return


def _give_back(turn: Turn, offer_ids: tuple[OfferId, ...], refuse_s: float) -> None:
    if offer_ids:
        turn.effects.append(Decline(offer_ids, refuse_s))
        for offer_id in offer_ids:
            turn.state.cluster.drop_offer(offer_id)
