"""Whether cells lie on nodes together. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

_MAX_STEPS: Final = 20_000  # of a search that first fit decreasing has not ended


def surely_apart(cells: Iterable[int], bins: Iterable[int]) -> bool:
    """Whether it is certain that cells do not lie on nodes together, each whole on one of them.

    Args:
        cells: What each needs.
        bins: What each node has.

    Returns:
        False also where a long search has found neither a way nor that there is none.
    """
    large, free = sorted(cells, reverse=True), sorted(bins, reverse=True)
    if sum(large) > sum(free):
        return True
    if _first_fit(large, free):
        return False
    return _Search(large).ends(free) is False


def _first_fit(cells: Sequence[int], bins: Sequence[int]) -> bool:
    """Whether each cell, the largest first, fits into the fullest node that still holds it."""
    free = list(bins)
    for size in cells:
        best = min((i for i, room in enumerate(free) if room >= size), key=lambda i: free[i], default=None)
        if best is None:
            return False
        free[best] -= size
    return True


class _Search:
    """A search over all ways, of which a bounded number is tried."""

    def __init__(self, cells: Sequence[int]) -> None:
        self._cells, self._left = cells, _MAX_STEPS

    def ends(self, free: list[int], at: int = 0) -> bool | None:
        """Whether the cells from the `at`th on fit; None: the search was given up."""
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
