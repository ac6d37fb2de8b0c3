"""Make a story that fails shorter: delta debugging (Zeller, Hildebrandt 2002) with a bound."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(acts: Sequence[T], fails: Callable[[Sequence[T]], bool], most_runs: int) -> tuple[list[T], int]:
    """Leave out what is not needed for the failure.

    Args:
        acts: That fail.
        fails: Plays some of them, in their order.
        most_runs: How often it may play.

    Returns:
        Acts that failed when they were played, or all; and how often it played.
    """
    kept, parts, runs = list(acts), 2, 0
    while len(kept) >= 2 and runs < most_runs:
        size = -(-len(kept) // parts)
        pieces = [kept[begin : begin + size] for begin in range(0, len(kept), size)]
        others = [[act for other in pieces if other is not piece for act in other] for piece in pieces]
        for candidate in (*pieces, *(others if parts > 2 else ())):
            if runs == most_runs:
                return kept, runs
            runs += 1
            if fails(candidate):
                parts = 2 if candidate in pieces else max(parts - 1, 2)
                kept = candidate
                break
        else:
            if parts >= len(kept):
                return kept, runs
            parts = min(2 * parts, len(kept))
    return kept, runs
