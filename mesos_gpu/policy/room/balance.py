"""Whether one who borrows may take what another one has borrowed. Pure, by cross-multiplication.

Between borrowers a transfer is allowed only if the taker has less for what it is due than the giver, before and after.
Then the parts of all, sorted with the largest first, fall with each transfer: without arrivals there is a last one.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Side:
    """What a queue holds, and what it is due; thousandths of cost."""

    held: int
    due: int


def stays_below(taker: Side, more: int, giver: Side, less: int) -> bool:
    """Whether the taker, with so much more, has a smaller part of its due than the giver has now, and than the giver
    keeps with so much less.

    Of a queue that is due nothing whatever it holds is more than any part of another, and of two such ones the amounts
    themselves are compared.
    """
    after = Side(taker.held + more, taker.due)
    return _is_less(after, giver) and _is_less(after, Side(giver.held - less, giver.due))


def _is_less(one: Side, other: Side) -> bool:
    if not one.due or not other.due:
        return one.held < other.held if one.due == other.due else bool(one.due) and other.held > 0
    return one.held * other.due < other.held * one.due
