"""Indexes of a job array, and sets of positions of its tasks; pure functions.

Indexes are written as in "0-99:2%8": runs `FIRST-LAST:STEP` or single indexes, joined by commas, and after % the
number of tasks that run at once. `text_of` writes each set in one form only, with few runs.

Sets of tasks are runs of *positions*, from 0 in the order of the indexes: the set of all of "0-98:7" is one run.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final

MAX: Final = 100_000  # most indexes of one array, whatever the operator allows
HIGHEST: Final = 2**31 - 1  # highest index
MAX_LENGTH: Final = 100_000  # characters of a text
FORM: Final = (
    'indexes as "0-99", "0-98:7", "1,5,9", each with %N behind it for N at once, or a list of integers'
)
_RUN: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?")
TEXT: Final = re.compile(r"([0-9,:-]+)(?:%([0-9]{1,10}))?")
_KNOWN: Final = 256  # number of texts whose parsed form is cached

#: Runs of positions, both ends included; rising, and adjacent runs are merged.
Runs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Indexes:
    """Indexes of an array in rising order. `at_once`: number of tasks that run at once; None for no limit."""

    runs: tuple[range, ...]
    at_once: int | None = None

    @property
    def count(self) -> int:
        """Number of indexes."""
        return sum(map(len, self.runs))

    @property
    def first(self) -> int:
        """Lowest index of the array."""
        return self.runs[0][0]

    @property
    def last(self) -> int:
        """Highest index of the array."""
        return self.runs[-1][-1]

    @property
    def step(self) -> int:
        """Distance between neighbouring indexes; 0 if it varies."""
        if len(self.runs) > 1:
            return 0
        return self.runs[0].step

    @property
    def all(self) -> Runs:
        """Run of all positions."""
        return ((0, self.count - 1),)

    def at(self, position: int) -> int:
        """Return the index at a position."""
        for run in self.runs:
            if position < len(run):
                return run[position]
            position -= len(run)
        raise IndexError(position)

    def position(self, index: int) -> int | None:
        """Return the position of an index; None if it is not in the array."""
        place = bisect_right(self.runs, index, key=lambda run: run[0]) - 1
        if place < 0 or index not in self.runs[place]:
            return None
        return sum(map(len, self.runs[:place])) + self.runs[place].index(index)

    def positions(self, others: "Indexes") -> Runs:
        """Return the positions of those indexes that are also in another set."""
        return merged(
            place for run in others.runs for index in run if (place := self.position(index)) is not None
        )

    def text(self, positions: Runs) -> str:
        """Return the text of the indexes at some positions; "" for no positions."""
        return text_of(tuple(runs_of(map(self._all().__getitem__, each_of(positions)))))

    def _all(self) -> Sequence[int]:
        return self.runs[0] if len(self.runs) == 1 else [index for run in self.runs for index in run]


class Unreadable(ValueError):
    """Error of an invalid text or list of indexes; its message follows "must be"."""


@lru_cache(_KNOWN)
def parsed(text: str) -> Indexes:
    """Parse a text of indexes.

    Raises:
        Unreadable: The text has another form, an index twice, or too many indexes.
    """
    match = TEXT.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if match is None:
        raise Unreadable(FORM)
    runs = [_run(part) for part in match[1].split(",")]
    at_once = None if match[2] is None else int(match[2])
    if at_once is not None and not 1 <= at_once <= HIGHEST:
        raise Unreadable(f"{FORM}; N is 1 at least")
    return Indexes(tuple(_in_order(runs)), at_once)


def listed(indexes: Sequence[int]) -> Indexes:
    """Return the indexes of a list.

    Raises:
        Unreadable: The list has an index twice, one out of range, or too many.
    """
    if len(indexes) > MAX or not all(0 <= index <= HIGHEST for index in indexes):
        raise Unreadable(f"at most {MAX} indexes from 0 to {HIGHEST}")
    return Indexes(tuple(_in_order([range(index, index + 1) for index in indexes])))


def text_of(runs: Sequence[range], at_once: int | None = None) -> str:
    """Return the text of runs of indexes."""
    words = (
        str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" + (f":{run.step}" if run.step > 1 else "")
        for run in runs
    )
    return ",".join(words) + (f"%{at_once}" if at_once is not None else "")


def _run(part: str) -> range:
    match = _RUN.fullmatch(part)
    if match is None:
        raise Unreadable(FORM)
    first = int(match[1])
    last = first if match[2] is None else int(match[2])
    step = 1 if match[3] is None else int(match[3])
    if not first <= last <= HIGHEST or step < 1:
        raise Unreadable(f"{FORM}; from the lower to the higher, at most {HIGHEST}, by steps of 1 or more")
    run = range(first, last + 1, step)
    return run if len(run) > 1 else range(first, first + 1)


def _in_order(runs: Sequence[range]) -> Iterator[range]:
    if any(total > MAX for total in accumulate(map(len, runs))):
        raise Unreadable(f"at most {MAX} indexes")
    if len(runs) == 1:
        return iter(runs)
    indexes = sorted(index for run in runs for index in run)
    twice = next((a for a, b in pairwise(indexes) if a == b), None)
    if twice is not None:
        raise Unreadable(f"indexes each of which is there once, and {twice} is not")
    if not indexes:
        raise Unreadable("one index at least")
    return runs_of(indexes)


def runs_of(indexes: Iterable[int]) -> Iterator[range]:
    """Divide rising indexes into few runs, each of which ends before the next begins. Two indexes form a run only if
    they are adjacent."""
    run: list[int] = []
    for index in indexes:
        if len(run) < 2 or index - run[-1] == run[-1] - run[-2]:
            run.append(index)
            continue
        if len(run) == 2 and run[1] - run[0] > 1:
            yield range(run[0], run[0] + 1)
            run = [run[1], index]
            continue
        yield _as_range(run)
        run = [index]
    if len(run) == 2 and run[1] - run[0] > 1:
        yield from (range(index, index + 1) for index in run)
    elif run:
        yield _as_range(run)


def _as_range(run: Sequence[int]) -> range:
    return range(run[0], run[-1] + 1, run[1] - run[0] if len(run) > 1 else 1)


# --- sets of positions


def count(runs: Runs) -> int:
    """Return the number of positions."""
    return sum(last - first + 1 for first, last in runs)


def has(runs: Runs, position: int) -> bool:
    """Return whether a position is in the set."""
    place = bisect_right(runs, position, key=lambda run: run[0]) - 1
    return place >= 0 and position <= runs[place][1]


def each_of(runs: Runs) -> Iterator[int]:
    """Iterate over the positions in rising order."""
    return (position for first, last in runs for position in range(first, last + 1))


def merged(positions: Iterable[int]) -> Runs:
    """Return rising positions as runs."""
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and runs[-1][1] == position - 1:
            runs[-1] = runs[-1][0], position
        else:
            runs.append((position, position))
    return tuple(runs)


def union(one: Runs, other: Runs) -> Runs:
    """Return the positions that are in either set."""
    runs: list[tuple[int, int]] = []
    for first, last in sorted((*one, *other)):
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = runs[-1][0], max(runs[-1][1], last)
        else:
            runs.append((first, last))
    return tuple(runs)


def without(runs: Runs, others: Runs) -> Runs:
    """Return the positions that are not in the other set."""
    result: list[tuple[int, int]] = []
    at = 0
    for first, last in runs:
        while at < len(others) and others[at][1] < first:
            at += 1
        place = at
        while place < len(others) and others[place][0] <= last:
            if others[place][0] > first:
                result.append((first, others[place][0] - 1))
            first = others[place][1] + 1
            place += 1
        if first <= last:
            result.append((first, last))
    return tuple(result)


def both(one: Runs, other: Runs) -> Runs:
    """Return the positions that are in both sets."""
    return without(one, without(one, other))
