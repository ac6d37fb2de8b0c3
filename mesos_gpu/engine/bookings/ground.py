"""What may be booked: GPUs that are sound, beside what queues are guaranteed; and the times of what is booked."""

from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from mesos_gpu.engine.calendar.booked import owner_of
from mesos_gpu.engine.charges import pool_of_node
from mesos_gpu.engine.gpus.gpu_status import is_closed, sound_of
from mesos_gpu.engine.state import State
from mesos_gpu.model.bookings.booking import DAY_S, Booking, BookingSpec
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import DEFAULT_POOL, QueueDocument
from mesos_gpu.policy.calendar.book import Bin, Chosen, Ground, Guaranteed, Item, horizon, items_of
from mesos_gpu.policy.tenancy.cells import cells_of, whole_cells
from mesos_gpu.policy.tenancy.tree import Tree
from mesos_gpu.policy.times.hours import Spans

_SPAN_S: Final = 30 * DAY_S  # times are worked out to the end of one, so that those of many matches are alike


def ground_of(state: State, document: QueueDocument | None = None) -> Ground:
    """What there is now. What is drained or not sound is not there: unknown is not healthy. `document`: with that tree
    of queues; None: with the one that there is."""
    tree, bins = state.quota.tree if document is None else Tree(document), list[Bin]()
    for node in state.cluster.nodes.values():
        if node.lost_at is not None or is_closed(state, node):
            continue
        models = Counter(gpu.model for gpu in sound_of(state, node, node.gpus))
        pool = pool_of_node(tree, node)
        bins += [
            Bin(node.id, model, pool, count, tree.cost_milli(model, 1)) for model, count in models.items()
        ]
    return (
        Ground(bins) if tree.is_flat else Ground(bins, _Guarantees(document or state.quota.queues, bins).at)
    )


class _Guarantees:
    """What is guaranteed at any time, by the hours of queues then."""

    def __init__(self, written: QueueDocument, bins: list[Bin]) -> None:
        """Look at no time yet."""
        self._spans, self._bins = Spans(written), bins
        self._known: list[tuple[float, Guaranteed]] = []  # of times that were asked for, with their begins
        self._of_document: dict[int, Guaranteed] = {}  # by the id of a document, which the spans keep

    def at(self, moment: float) -> Guaranteed:
        """What is at a moment, seconds since the epoch."""
        place = bisect(self._known, moment, key=lambda each: each[0])
        if place and moment < self._known[place - 1][1].until:
            return self._known[place - 1][1]
        span = self._spans.at(moment)
        made = replace(self._by(span.document), until=span.until)
        self._known.insert(place, (span.since, made))
        return made

    def _by(self, document: QueueDocument) -> Guaranteed:
        made = self._of_document.get(id(document))
        if made is None:
            tree = Tree(document)
            made = self._of_document[id(document)] = Guaranteed(_free(tree, self._bins), _owed(tree))
        return made


def _free(tree: Tree, bins: list[Bin]) -> dict[str, int]:
    """By pool, what nobody is guaranteed: a booking is not given back early, so it takes nothing that others are
    owed."""
    free = {pool.name: 0 for pool in tree.document.pools} | {DEFAULT_POOL: 0}
    for each in bins:
        free[each.pool] += each.gpus * each.cost * WHOLE
    cells = cells_of(tree, free) if tree.document.overbook else whole_cells(tree)
    for (_, pool), sizes in cells.items():
        free[pool] = max(free.get(pool, 0) - sum(sizes), 0)
    return free


def _owed(tree: Tree) -> dict[tuple[str, str], int]:
    return {
        (path, pool): guarantee.milli
        for path, queue in tree.queues.items()
        for pool, guarantee in queue.spec.guarantee_gpus.items()
    }


def booked_items(state: State, now: float, without: str = "", until: float | None = None) -> list[Item]:
    """The times of all bookings that have not ended, but of one. `until`: those that begin before; None: all."""
    bookings = (
        each for each in state.calendar.bookings.values() if not each.state.ended and each.id != without
    )
    return [item for booking in bookings for item in _items(state, booking, now, until or horizon(now))]


def _items(state: State, booking: Booking, now: float, until: float) -> Iterator[Item]:
    owner = owner_of(state, booking.spec)
    yield Item(booking.id, booking.spec, booking.begins, booking.ends, chosen_of(state, booking), owner)
    since, ahead = int(now // DAY_S), int(-(-until // _SPAN_S))
    for item in _later(booking.id, booking.spec, since * DAY_S, ahead * _SPAN_S, owner, booking.day):
        if item.begins >= until:
            return
        if item.ends > now:
            yield item


@lru_cache(maxsize=512)
def _later(booking: str, spec: BookingSpec, since: int, until: int, owner: str, after: str) -> Sequence[Item]:
    """The times of a booking on later days. They are asked for in each match: it takes longer to work them out than to
    do anything with them."""
    return tuple(items_of(booking, spec, since, until, owner=owner, after=after))


def chosen_of(state: State, booking: Booking) -> tuple[Chosen, ...]:
    """What is chosen for a booking, by node and model."""
    counts = Counter[tuple[str, str]]()
    for place in booking.places:
        for gpu_id in place.gpus:
            known = state.cluster.place_of(gpu_id)
            if known is not None:
                counts[place.agent_id, known[1].model] += 1
    return tuple(Chosen(node, model, count) for (node, model), count in counts.items())
