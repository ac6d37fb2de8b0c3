"""History of a card's health, merged from two sources that repeat their entries. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from mesos_gpu.model.nodes.drain import Card
from mesos_gpu.model.nodes.gpu import Transition

MAX: Final = 50  # changes kept of each card


def with_changes(card: Card, changes: Iterable[Transition]) -> Card:
    """Return the card with those changes added that it lacks, in the order of their times.

    A report repeats the latest changes each time. A change older than all that are kept was counted before, and is not
    counted again.
    """
    changes = tuple(changes)
    if not changes or card.changes[-len(changes) :] == changes:
        return card  # fast path for nearly every report
    present = set(card.changes)
    # Sorting is stable: at equal times known changes come first, then new ones in the order of arrival.
    merged = sorted(
        (*card.changes, *(c for c in dict.fromkeys(changes) if c not in present)), key=lambda c: c.at
    )
    latest = tuple(merged[-MAX:])
    if latest == card.changes:
        return card
    totals = dict(card.totals)
    for change in latest:
        if change not in present and change.old is not change.new:
            totals[change.new.value] = totals.get(change.new.value, 0) + 1
    return replace(card, changes=latest, totals=totals)
