"""Bookable capacity: sound GPUs beyond guarantees of queues; and the times of bookings."""

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
from mesos_gpu.policy.calendar.book import Chosen, Ground, Guaranteed, Item, NodeGpus, horizon, items_of
from mesos_gpu.policy.tenancy.cells import cells_of, whole_cells
from mesos_gpu.policy.tenancy.tree import Tree
from mesos_gpu.policy.times.hours import DocumentVariants

_SPAN_S: Final = 30 * DAY_S  # times are computed up to a multiple of this, to serve many matches


def ground_of(state: State, document: QueueDocument | None = None) -> Ground:
    """Return the GPUs that may be booked, without drained nodes and GPUs of unknown health.

    Args:
        state: State of the engine.
        document: Document with guarantees and pools; the one of the state if None.
    """
    tree, bins = state.quota.tree if document is None else Tree(document), list[NodeGpus]()
    for node in state.cluster.nodes.values():
        if node.lost_at is not None or is_closed(state, node):
            continue
        models = Counter(gpu.model for gpu in sound_of(state, node, node.gpus))
        pool = pool_of_node(tree, node)
        bins += [
            NodeGpus(node.id, model, pool, count, tree.cost_milli(model, 1))
            for model, count in models.items()
        ]
    known_models = state.cluster.agents.models
    if tree.is_flat:
        return Ground(bins, models=known_models)
    return Ground(bins, _Guarantees(document or state.quota.queues, bins).at, known_models)


class _Guarantees:
    """Guarantees at any time, by the hours of queues.

    Args:
        written: Document of the queues.
        bins: Sound GPUs by node and model.
    """

    def __init__(self, written: QueueDocument, bins: list[NodeGpus]) -> None:
        self._spans, self._bins = DocumentVariants(written), bins
        self._known: list[tuple[float, Guaranteed]] = []  # guarantees by the begin of their hours
        self._of_document: dict[int, Guaranteed] = {}  # by the id of a document, which the spans keep

    def at(self, moment: float) -> Guaranteed:
        """Return the guarantees at a moment, in seconds since the epoch."""
        place = bisect(self._known, moment, key=lambda each: each[0])
        if place and moment < self._known[place - 1][1].until:
            return self._known[place - 1][1]
        span = self._spans.at(moment)
        guaranteed = replace(self._by(span.document), until=span.until)
        self._known.insert(place, (span.since, guaranteed))
        return guaranteed

    def _by(self, document: QueueDocument) -> Guaranteed:
        """Return the guarantees by a document without hours, computed on first use."""
        guaranteed = self._of_document.get(id(document))
        if guaranteed is None:
            tree = Tree(document)
            guaranteed = self._of_document[id(document)] = Guaranteed(_free(tree, self._bins), _owed(tree))
        return guaranteed


def _free(tree: Tree, bins: list[NodeGpus]) -> dict[str, int]:
    """Return the capacity of each pool beyond all guarantees, in thousandths of cost.

    A booking takes nothing of the guarantees of others, because it does not give GPUs back before its end.
    """
    free = {pool.name: 0 for pool in tree.document.pools} | {DEFAULT_POOL: 0}
    for gpus in bins:
        free[gpus.pool] += gpus.gpus * gpus.cost * WHOLE
    cells = cells_of(tree, free) if tree.document.overbook else whole_cells(tree)
    for (_, pool), sizes in cells.items():
        free[pool] = max(free.get(pool, 0) - sum(sizes), 0)
    return free


def _owed(tree: Tree) -> dict[tuple[str, str], int]:
    """Return the guarantee of each queue in each pool, in thousandths of cost."""
    return {
        (path, pool): guarantee.milli
        for path, queue in tree.queues.items()
        for pool, guarantee in queue.spec.guarantee_gpus.items()
    }


def booked_items(state: State, now: float, without: str = "", until: float | None = None) -> list[Item]:
    """Return the times of bookings that have not ended.

    Args:
        state: State of the engine.
        now: Time, in seconds since the epoch.
        without: Id of a booking that is left out; "" for none.
        until: Moment before which times begin, in seconds since the epoch; None for the horizon of bookings.
    """
    bookings = (
        booking
        for booking in state.calendar.bookings.values()
        if not booking.state.ended and booking.id != without
    )
    return [item for booking in bookings for item in _items(state, booking, now, until or horizon(now))]


def _items(state: State, booking: Booking, now: float, until: float) -> Iterator[Item]:
    """Yield the present and later times of a booking that begin before a moment."""
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
    """Return the times of a booking on later days, cached as each match needs them."""
    return tuple(items_of(booking, spec, since, until, owner=owner, after=after))


def chosen_of(state: State, booking: Booking) -> tuple[Chosen, ...]:
    """Return the number of GPUs of a booking by node and model."""
    counts = Counter[tuple[str, str]]()
    for place in booking.places:
        for gpu_id in place.gpus:
            gpu_place = state.cluster.place_of(gpu_id)
            if gpu_place is not None:
                counts[place.agent_id, gpu_place[1].model] += 1
    return tuple(Chosen(node, model, count) for (node, model), count in counts.items())
