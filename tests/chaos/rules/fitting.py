"""Rules for new bookings: they must fit beside other bookings, and leave the guarantees of queues free."""

from collections.abc import Iterator
from typing import Final

from mesos_gpu.model.bookings.booking import Booking, BookingState
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.shares.units import WHOLE
from tests.chaos.account import Account
from tests.chaos.rules import tree
from tests.chaos.times.hours import in_force
from tests.chaos.violation import Violation
from tests.chaos.virtual import Agent

_FITS: Final = "only what fits is booked"


def accepted(account: Account, bookings: list[Booking]) -> None:
    """Check that a booking accepted in this batch fits beside overlapping ones, and leaves guarantees free."""
    asked, account.calendar.asked = account.calendar.asked, set()
    if len(asked) != 1 or not account.calendar.alone:
        return  # other messages of the batch may have come after it
    mine = account.disk.bookings.get(asked.pop())
    if mine is None or mine.state is not BookingState.BOOKED:
        return
    beside = [
        each
        for each in bookings
        if not each.state.ended and each.begins < mine.ends and mine.begins < each.ends
    ]
    beside.sort(key=lambda each: not each.places)
    if not _laid_out(account, beside, {}):
        words = f"{mine.id} is accepted beside {[each.id for each in beside]}, and not all have nodes"
        raise Violation(_FITS, words, *(each.id for each in beside))
    _is_left(account, mine, beside)


def _laid_out(account: Account, left: list[Booking], used_now: dict[str, list[tuple[Booking, int]]]) -> bool:
    """Return whether there are nodes for all bookings, by trying all choices."""
    if not left:
        return True
    booking, rest = left[0], left[1:]
    agents = [
        agent for agent in account.mesos.agents.values() if _has_room(account, agent, booking, used_now)
    ]
    # Nodes that a booking lacks after its begin are not promised.
    nodes = len(booking.places) or booking.spec.nodes
    for chosen in _choices(agents, nodes):
        for agent in chosen:
            used_now.setdefault(agent.id, []).append((booking, booking.spec.gpus))
        if _laid_out(account, rest, used_now):
            return True
        for agent in chosen:
            used_now[agent.id].pop()
    return False


def _choices(agents: list[Agent], count: int) -> Iterator[list[Agent]]:
    if count == 0:
        yield []
    for n, agent in enumerate(agents if count else ()):
        for rest in _choices(agents[n + 1 :], count - 1):
            yield [agent, *rest]


def _has_room(
    account: Account, agent: Agent, booking: Booking, used_now: dict[str, list[tuple[Booking, int]]]
) -> bool:
    if booking.places:
        return agent.id in {place.agent_id for place in booking.places}
    known = account.agents.get(agent.id)
    if known is None or tree.pool_of(account.queues, agent) != booking.spec.pool:
        return False
    sound = [gpu for gpu in agent.gpus if known.health.get(gpu.id) is Health.OK]
    models = {gpu.model for gpu in sound}
    there = [(each, n) for each, n in used_now.get(agent.id, []) if each.begins < booking.ends]
    moments = (booking.begins, *(each.begins for each, _ in there if each.begins > booking.begins))
    most = max(sum(n for each, n in there if each.begins <= at < each.ends) for at in moments)
    able = not booking.spec.models or models <= set(booking.spec.models)
    return able and len(sound) - most >= booking.spec.gpus


def _is_left(account: Account, mine: Booking, beside: list[Booking]) -> None:
    document = in_force(account.written, mine.begins)
    pool = mine.spec.pool
    if document.is_empty or mine.spec.from_guarantee:
        return
    tops = sum(tree.owed(spec, pool) for path, spec in document.queues.items() if "/" not in path)
    free = tree.capacity(account, pool) - tops
    booked = sum(
        each.spec.gpus_in_all * WHOLE
        for each in beside
        if each.spec.pool == pool and each.begins <= mine.begins < each.ends and not each.spec.from_guarantee
    )
    if tops and booked > free:
        words = f"{mine.id} is accepted, with {booked} thousandths booked of {free} without guarantees"
        raise Violation(_FITS, words, mine.id)
