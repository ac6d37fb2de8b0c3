"""The history of a card, from two sources that repeat themselves. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from mesos_gpu.model.nodes.drain import Card
from mesos_gpu.model.nodes.gpu import Transition

MAX: Final = 50  # changes kept of each card


def with_changes(card: Card, changes: Iterable[Transition]) -> Card:
    """The card with those changes that it did not have, in the order of their times.

    A report carries the latest changes again and again. What is older than all that is kept was kept
    before, and is not counted again.
    """
    changes = tuple(changes)
    if not changes or card.changes[-len(changes) :] == changes:
        return card  # nearly every report
    known = set(card.changes)
    # Sorting keeps the order of equal times: what was known first, then the new in the order it came.
    merged = sorted(
        (*card.changes, *(c for c in dict.fromkeys(changes) if c not in known)), key=lambda c: c.at
    )
    kept = tuple(merged[-MAX:])
    if kept == card.changes:
        return card
    totals = dict(card.totals)
    for change in kept:
        if change not in known and change.old is not change.new:
            totals[change.new.value] = totals.get(change.new.value, 0) + 1
    return replace(card, changes=kept, totals=totals)
