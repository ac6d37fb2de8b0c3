"""Transfers of GPUs between queues that borrow. Pure, by cross-multiplication.

A transfer is allowed only if the taker has a smaller part of its due than the giver, before and after. Then the parts
of all queues, sorted with the largest first, fall with each transfer: without arrivals there is a last one.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Side:
    """Amounts of a queue that it holds and is due, in thousandths of cost."""

    held: int
    due: int


def stays_below(taker: Side, more: int, giver: Side, less: int) -> bool:
    """Return whether the taker has a smaller part of its due after a transfer than the giver before and after it.

    What a queue holds that is due nothing is more than any part of another queue. Of two such queues the amounts are
    compared.

    Args:
        taker: Amounts of the queue that gets GPUs.
        more: Amount that the taker gets, in thousandths of cost.
        giver: Amounts of the queue that loses GPUs.
        less: Amount that the giver loses, in thousandths of cost.
    """
    after = Side(taker.held + more, taker.due)
    return _is_less(after, giver) and _is_less(after, Side(giver.held - less, giver.due))


def _is_less(one: Side, other: Side) -> bool:
    if not one.due or not other.due:
        return one.held < other.held if one.due == other.due else bool(one.due) and other.held > 0
    return one.held * other.due < other.held * one.due
