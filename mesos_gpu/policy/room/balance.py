"""Transfers of GPUs between borrowing queues. Pure; quotients are compared by cross-multiplication.

A transfer is allowed only if the receiving queue has a smaller part of its fair share than the giving one, before and
after. Then the parts of all queues, sorted with the largest first, fall with each transfer, so that without new jobs
the transfers end.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Side:
    """Amount that a queue holds, and its fair share, in thousandths of cost."""

    held: int
    due: int


def stays_below(taker: Side, more: int, giver: Side, less: int) -> bool:
    """Return whether a queue may take GPUs from another one: its part of its fair share stays below the giver's.

    The receiving queue's part after the transfer is compared with the giver's before and after it. A queue with a fair
    share of 0 counts as above all others if it holds anything; two such queues are compared by amount.

    Args:
        taker: Amounts of the queue that gets GPUs.
        more: Amount that the taker gets, in thousandths of cost.
        giver: Amounts of the queue that loses GPUs.
        less: Amount that the giver loses, in thousandths of cost.
    """
    after = Side(taker.held + more, taker.due)
    return _is_less(after, giver) and _is_less(after, Side(giver.held - less, giver.due))


def _is_less(side: Side, other: Side) -> bool:
    """Return whether a queue's part of its fair share is below another's."""
    if not side.due or not other.due:
        return side.held < other.held if side.due == other.due else bool(side.due) and other.held > 0
    return side.held * other.due < other.held * side.due
