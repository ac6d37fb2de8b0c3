"""Offers: held, requested and given back."""

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
_PARTS: Final = 64  # steps by which the return of many offers is spread


def on_offers(turn: Turn, offers: Iterable[Offer]) -> None:
    """Hold offers and update their nodes, ignoring reservations of other frameworks of the role."""
    for offer in offers:
        resources = tuple([s for s in offer.resources if not is_others(s, turn.state.mesos.framework_id)])
        offer = changed(offer, resources=resources, received_at=turn.now)
        forget_unreserve(turn, offer)
        turn.state.cluster.hold_offer(offer)
        old = turn.state.cluster.nodes.get(offer.agent_id)
        node = changed(
            old or Node(offer.agent_id, offer.hostname),
            hostname=offer.hostname,
            agent_url=offer.agent_url,
            attributes=offer.attributes,
            region=offer.region,
            zone=offer.zone,
            lost_at=None,
        )
        if node != old:
            turn.put_node(node)


def wants_offers(turn: Turn) -> bool:
    """Return whether anything waits that an offer could serve."""
    if turn.state.work.queue or is_uncovered(turn.state) or _is_booked_soon(turn):
        return True
    return any(
        _wants_monitor(turn.state.cluster.nodes[agent_id]) for agent_id in turn.state.cluster.agents.unwatched
    )


def _is_booked_soon(turn: Turn) -> bool:
    """Return whether a booking may need nodes soon."""
    provisional = turn.state.calendar.provisional
    return provisional is not None and provisional.is_soon(turn.now)


def _wants_monitor(node: Node) -> bool:
    """Return whether a node lacks a monitor that it needs, as it had one before."""
    return (node.inventory is not None or node.monitor_launches > 0) and node.lost_at is None


def balance(turn: Turn, placed: Collection[str]) -> None:
    """Hold, give back, request or suppress offers as needed.

    Args:
        placed: Roles of jobs that this match has placed. More jobs of these may follow soon, so their offers stay: in
            a steady stream of jobs that start at once none waits at the end of a match, and each would need offers of
            all agents.
    """
    state, settings = turn.state, turn.settings
    if placed or wants_offers(turn):
        state.mesos.idle_since = None
        roles = _asked_for(turn, placed) if settings.mesos.role_of else ()
        if state.mesos.suppressed or turn.now - state.mesos.swept_at >= settings.mesos.sweep_interval_s:
            # Repeated while something waits, as a lost REVIVE would leave it waiting for ever.
            state.mesos.suppressed, state.mesos.swept_at = False, turn.now
            turn.effects.append(Revive(roles))
            state.mesos.roles.asked = None
        if roles:
            _ask_for(turn, roles)
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
        # A suppressed framework gets no offers of new agents: revive, hold for a moment, suppress again.
        state.mesos.suppressed, state.mesos.idle_since = False, turn.now
        turn.effects.append(Revive())


def _asked_for(turn: Turn, placed: Collection[str]) -> tuple[str, ...]:
    """Return the roles for which jobs or bookings wait or waited a moment ago; all roles if only monitors wait."""
    state, settings = turn.state, turn.settings
    waiting = set(placed)
    for _, job_id in state.work.queue:
        if len(waiting) == len(settings.mesos.roles):
            break
        waiting.add(settings.mesos.role_for(state.work.jobs[job_id].spec.queue))
    if _is_booked_soon(turn):
        waiting |= {settings.mesos.role_for(booking.spec.queue) for booking in unfinished(state)}
    if not state.work.queue and not placed:
        waiting = set(settings.mesos.roles)
    for role in waiting:
        state.mesos.roles.until[role] = turn.now + settings.mesos.idle_linger_s
    soon = turn.now + settings.mesos.idle_linger_s  # later times are from before the clock was set back
    return tuple(
        [role for role in settings.mesos.roles if turn.now < state.mesos.roles.until.get(role, 0.0) <= soon]
    )


def _ask_for(turn: Turn, asked: tuple[str, ...]) -> None:
    """Request offers of some roles, and give back those of other roles, which may hold what these need."""
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
    """Yield offers that were held too long. They are in order of arrival, unless the clock was set back.

    With `MANY_OFFERS` or more, which may have come together, each is held up to twice as long: if all were given back
    together, the next jobs would find none.
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
    """Decline offers for some seconds and remove them from the state."""
    if offer_ids:
        turn.effects.append(Decline(offer_ids, refuse_s))
        for offer_id in offer_ids:
            turn.state.cluster.drop_offer(offer_id)
