"""The indexes of a job array, and sets of them. Pure.

A text as "0-99:2%8" says them: runs `FIRST-LAST:STEP` or single indexes, joined by commas, and after % how many run at
once. `text_of` writes each set in one way only, as few runs as that are.

Sets of an array's tasks are runs of *positions*, from 0 in the order of the indexes: of "0-98:7" all are one run.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final

MAX: Final = 100_000  # indexes of one array, whatever the operator allows
HIGHEST: Final = 2**31 - 1  # index
MAX_LENGTH: Final = 100_000  # characters of a text
FORM: Final = (
    'indexes as "0-99", "0-98:7", "1,5,9", each with %N behind it for N at once, or a list of integers'
)
_RUN: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?")
TEXT: Final = re.compile(r"([0-9,:-]+)(?:%([0-9]{1,10}))?")
_KNOWN: Final = 256  # texts of which it is remembered what they say

Runs = tuple[
    tuple[int, int], ...
]  # of positions, the last one included; rising, and none begins where another ends


@dataclass(frozen=True, slots=True)
class Indexes:
    """The indexes of an array, rising, and how many of its tasks run at once; None: as many as there is room for."""

    runs: tuple[range, ...]
    at_once: int | None = None

    @property
    def count(self) -> int:
        """So many there are."""
        return sum(map(len, self.runs))

    @property
    def first(self) -> int:
        """The lowest."""
        return self.runs[0][0]

    @property
    def last(self) -> int:
        """The highest."""
        return self.runs[-1][-1]

    @property
    def step(self) -> int:
        """From each to the next; 0: that is not the same everywhere."""
        if len(self.runs) > 1:
            return 0
        return self.runs[0].step

    @property
    def all(self) -> Runs:
        """All positions."""
        return ((0, self.count - 1),)

    def at(self, position: int) -> int:
        """The index at a position."""
        for run in self.runs:
            if position < len(run):
                return run[position]
            position -= len(run)
        raise IndexError(position)

    def position(self, index: int) -> int | None:
        """Where an index stands; None: it is none of these."""
        place = bisect_right(self.runs, index, key=lambda run: run[0]) - 1
        if place < 0 or index not in self.runs[place]:
            return None
        return sum(map(len, self.runs[:place])) + self.runs[place].index(index)

    def positions(self, others: "Indexes") -> Runs:
        """Where those of others stand that are of these, too."""
        return merged(
            place for run in others.runs for index in run if (place := self.position(index)) is not None
        )

    def text(self, positions: Runs) -> str:
        """The indexes at some positions; "": there are none."""
        return text_of(tuple(runs_of(map(self._all().__getitem__, each_of(positions)))))

    def _all(self) -> Sequence[int]:
        return self.runs[0] if len(self.runs) == 1 else [index for run in self.runs for index in run]


class Unreadable(ValueError):
    """A text, or a list, is not what it should be; its words say why, after "must be"."""


@lru_cache(_KNOWN)
def parsed(text: str) -> Indexes:
    """What a text says.

    Raises:
        Unreadable: It is not in the form of one, has an index twice, or more than there may be.
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
    """What a list of indexes says.

    Raises:
        Unreadable: As of `parsed`.
    """
    if len(indexes) > MAX or not all(0 <= index <= HIGHEST for index in indexes):
        raise Unreadable(f"at most {MAX} indexes from 0 to {HIGHEST}")
    return Indexes(tuple(_in_order([range(index, index + 1) for index in indexes])))


def text_of(runs: Sequence[range], at_once: int | None = None) -> str:
    """A text that says these."""
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
    """Rising indexes as few runs, none of which begins before another has ended. Two that are not neighbours are no
    run."""
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
    """How many there are."""
    return sum(last - first + 1 for first, last in runs)


def has(runs: Runs, position: int) -> bool:
    """Whether a position is one of them."""
    place = bisect_right(runs, position, key=lambda run: run[0]) - 1
    return place >= 0 and position <= runs[place][1]


def each_of(runs: Runs) -> Iterator[int]:
    """Each position, from the first."""
    return (position for first, last in runs for position in range(first, last + 1))


def merged(positions: Iterable[int]) -> Runs:
    """Rising positions as runs."""
    made: list[tuple[int, int]] = []
    for position in positions:
        if made and made[-1][1] == position - 1:
            made[-1] = made[-1][0], position
        else:
            made.append((position, position))
    return tuple(made)


def union(one: Runs, other: Runs) -> Runs:
    """All that are in either."""
    made: list[tuple[int, int]] = []
    for first, last in sorted((*one, *other)):
        if made and first <= made[-1][1] + 1:
            made[-1] = made[-1][0], max(made[-1][1], last)
        else:
            made.append((first, last))
    return tuple(made)


def without(runs: Runs, others: Runs) -> Runs:
    """All that are not in the others."""
    made: list[tuple[int, int]] = []
    at = 0
    for first, last in runs:
        while at < len(others) and others[at][1] < first:
            at += 1
        place = at
        while place < len(others) and others[place][0] <= last:
            if others[place][0] > first:
                made.append((first, others[place][0] - 1))
            first = others[place][1] + 1
            place += 1
        if first <= last:
            made.append((first, last))
    return tuple(made)


def both(one: Runs, other: Runs) -> Runs:
    """All that are in each of two."""
    return without(one, without(one, other))
