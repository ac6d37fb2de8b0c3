"""Test whether the cells of guarantees fit on nodes together. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

_MAX_STEPS: Final = 20_000  # of the search that follows if first-fit-decreasing finds no packing


def surely_apart(cells: Iterable[int], bins: Iterable[int]) -> bool:
    """Return whether it is certain that cells of guarantees cannot all be placed on nodes, each whole on one node.

    Args:
        cells: Sizes of the cells.
        bins: Sizes of the nodes.

    Returns:
        False also if a long search was given up without a result.
    """
    large, free = sorted(cells, reverse=True), sorted(bins, reverse=True)
    if sum(large) > sum(free):
        return True
    if _first_fit(large, free):
        return False
    return _Search(large).ends(free) is False


def _first_fit(cells: Sequence[int], bins: Sequence[int]) -> bool:
    """Return whether each cell, the largest first, fits into the fullest node that still has room for it."""
    free = list(bins)
    for size in cells:
        best = min((i for i, room in enumerate(free) if room >= size), key=lambda i: free[i], default=None)
        if best is None:
            return False
        free[best] -= size
    return True


class _Search:
    """Exhaustive search for a packing, limited to `_MAX_STEPS` steps."""

    def __init__(self, cells: Sequence[int]) -> None:
        self._cells, self._left = cells, _MAX_STEPS

    def ends(self, free: list[int], at: int = 0) -> bool | None:
        """Return whether the cells from index `at` on fit; None if the search was given up."""
        if at == len(self._cells):
            return True
        self._left -= 1
        if self._left < 0:
            return None
        size = self._cells[at]
        for room in sorted({room for room in free if room >= size}):
            free.remove(room)
            free.append(room - size)
            fits = self.ends(free, at + 1)
            free.remove(room - size)
            free.append(room)
            if fits is not False:
                return fits
        return False
