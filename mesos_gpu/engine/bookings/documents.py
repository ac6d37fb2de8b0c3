"""Bookings and trees of queues: the check of a booking against a tree, and of a new tree against bookings."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from mesos_gpu.engine.bookings.ground import booked_items, ground_of
from mesos_gpu.engine.calendar.booked import owner_in, unfinished
from mesos_gpu.engine.state import State
from mesos_gpu.errors import Conflict
from mesos_gpu.model.bookings.booking import BookingSpec
from mesos_gpu.model.tenancy import DEFAULT_POOL, QueueDocument
from mesos_gpu.policy.calendar.book import clash
from mesos_gpu.policy.calendar.local_times import shown
from mesos_gpu.policy.tenancy.checks import Findings
from mesos_gpu.policy.tenancy.tree import Tree

_MAX_NAMED: Final = 5  # bookings in a message


def faults_of(tree: Tree, document: QueueDocument, spec: BookingSpec) -> Iterator[tuple[str, str]]:
    """Yield the faults of a booking that names an unknown queue, pool or guarantee: JSON pointer and reason.

    Args:
        tree: Tree of the queues.
        document: Document of the queues with their hours.
        spec: Request of the booking.
    """
    if tree.is_flat:
        if spec.pool != DEFAULT_POOL:
            yield "/pool", f"there is no pool {spec.pool}: no document of queues was applied"
        if spec.from_guarantee:
            yield "/from_guarantee", "nothing is guaranteed: no document of queues was applied"
        return
    if spec.queue not in tree.queues:
        yield "/queue", f"there is no queue {spec.queue}; list them with: mesos-gpu queue list"
    elif spec.from_guarantee and not owner_in(document, spec):
        yield "/from_guarantee", f"queue {spec.queue} is guaranteed nothing of pool {spec.pool}"
    if spec.pool != DEFAULT_POOL and all(pool.name != spec.pool for pool in tree.document.pools):
        yield "/pool", f"there is no pool {spec.pool}"
    elif spec.queue in tree.queues and spec.pool not in (usable := tree.pools_of(spec.queue)):
        yield "/pool", f"queue {spec.queue} may not use pool {spec.pool}: it uses {', '.join(usable)}"


def refuse_unusable(state: State, document: QueueDocument) -> None:
    """Refuse a document that removes the queue, pool or guarantee of a booking.

    Raises:
        Conflict: The document does so; the error names the bookings and what is removed.
    """
    tree, unusable = Tree(document), list[str]()
    for booking in unfinished(state):
        if not any(faults_of(state.quota.tree, state.quota.queues, booking.spec)):
            whys = [why.partition(";")[0] for _, why in faults_of(tree, document, booking.spec)]
            unusable += [f"{booking.spec.name} ({', '.join(whys)})"] if whys else []
    if unusable:
        more = f", and {len(unusable) - _MAX_NAMED} more" if len(unusable) > _MAX_NAMED else ""
        raise Conflict(
            f"with this document these bookings could not be used: {'; '.join(unusable[:_MAX_NAMED])}{more}",
            remedy="keep these queues and pools, or cancel the bookings first (mesos-gpu reserve cancel)",
        )


def beside_bookings(state: State, document: QueueDocument, of_queues: Findings, now: float) -> Findings:
    """Return the findings of a document, with one if its guarantees or pools leave too little for bookings.

    It is a warning if the document scales guarantees that are too large, and a fault if not.

    Args:
        state: State of the engine with the bookings.
        document: The new document of the queues.
        of_queues: Findings of the document without bookings.
        now: Seconds since the epoch.
    """
    why = _crowded(state, document, now)
    if not why:
        return of_queues
    if document.overbook:
        return replace(of_queues, warnings=(*of_queues.warnings, why))
    why += ": guarantee less, or cancel bookings (mesos-gpu reserve cancel)"
    return replace(of_queues, faults=(*of_queues.faults, ("/queues", why)))


def _crowded(state: State, document: QueueDocument, now: float) -> str:
    """Return which bookings a document leaves too little, in words; "" if none.

    A booking that does not fit without the document either, because nodes were lost, is not listed.
    """
    items = booked_items(state, now)
    then = [replace(item, owner=owner_in(document, item.spec)) for item in items]
    misfit = clash(ground_of(state, document), then)
    if misfit is None or misfit == clash(ground_of(state), items):
        return ""
    crowded = [state.calendar.bookings[item.booking] for item in then if item.begins <= misfit.at < item.ends]
    names = ", ".join(sorted({booking.spec.name for booking in crowded})[:_MAX_NAMED])
    at = shown(misfit.at, crowded[0].spec.zone) if crowded else ""
    return f"it leaves too little for bookings: at {at}, bookings {names}: {misfit.why.partition(';')[0]}"
