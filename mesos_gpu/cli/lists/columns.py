"""What a list shows of its records: columns by name, and the order of rows."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from mesos_gpu.cli import output
from mesos_gpu.cli.fit import Fit
from mesos_gpu.wire.listing.filters import By

T = TypeVar("T")  # a record, as the scheduler answers it
R = TypeVar("R")  # what a row is about
_DIGITS: Final = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Col(Generic[R]):
    """A column.

    Attributes:
        header: Its name, in capitals.
        value: What a row has in it.
        order: What rows are sorted by; None: the value.
        wide: Whether it is shown by -o wide and --columns alone.
        telling: Whether it is left out where all rows have the same in it.
        rare: Whether it is left out where no row has anything in it.
        moves: Whether it changes by time alone, so that no new value is told of.
    """

    header: str
    value: Callable[[R], object]
    order: Callable[[R], object] | None = None
    wide: bool = False
    telling: bool = False
    rare: bool = False
    moves: bool = False


def aged(header: str, moment: Callable[[R], float | None], *, wide: bool = False) -> Col[R]:
    """A column that says how long ago a moment was; the latest comes first."""

    def order(row: R) -> float | None:
        at = moment(row)
        return None if at is None else -at

    return Col(header, lambda row: output.age(moment(row)), order, wide, moves=True)


@dataclass(frozen=True, slots=True)
class Listing(Generic[T, R]):
    """A kind of list.

    Attributes:
        columns: All that it can show.
        id: What a record is called, by which every command takes it.
        rows: What the rows of a record are about.
        filters: What a record has, by each filter that the list has.
        fit: What gives way in a narrow terminal.
        states: The words of the filter by state; empty: any word.
    """

    columns: Sequence[Col[R]]
    id: Callable[[T], str]
    rows: Callable[[T], Iterable[R]]
    filters: Mapping[By, Callable[[T], Iterable[str]]]
    fit: Fit = field(default_factory=Fit)
    states: Sequence[str] = ()

    def col(self, name: str) -> Col[R]:
        """A column by its name, in capitals or not.

        Raises:
            ValueError: There is none; the message says which there are.
        """
        col = next((col for col in self.columns if col.header == name.upper()), None)
        if col is None:
            names = [col.header for col in self.columns]
            near = difflib.get_close_matches(name.upper(), names, n=2)
            more = f"did you mean {' or '.join(near).lower()}?" if near else f"there are {_words(names)}"
            raise ValueError(f"{name!r} is no column; {more}")
        return col

    def shown(self, names: Sequence[str], records: Sequence[T], *, wide: bool) -> list[Col[R]]:
        """The columns that are asked for by name, else all, `wide`: also those that are not shown otherwise."""
        if names:
            return [self.col(name) for name in names]
        rows = [row for record in records for row in self.rows(record)]
        return [col for col in self.columns if wide or not (col.wide or _says_nothing(col, rows))]

    def fitted(self, names: Sequence[str], shown: Sequence[Col[R]]) -> Fit:
        """What gives way of the columns that are shown: what was asked for by name is not left out."""
        headers = {col.header for col in shown}
        leave = self.fit.leave
        kept = None if leave is None else [each for each in leave if each in headers]
        cut = [each for each in self.fit.cut if each in headers]
        return replace(self.fit, leave=() if names else kept, cut=cut)

    def ordered(self, records: Sequence[T], by: Sequence[str]) -> list[T]:
        """Records by the columns named, the most important first; by the first row of each. A minus in front: the
        largest first. What has no value comes last in any case."""
        ordered = list(records)
        for name in reversed(by):
            col = self.col(name.removeprefix("-"))
            keys = {id(record): self._key(col, record) for record in ordered}
            known = [record for record in ordered if keys[id(record)]]
            known.sort(key=lambda record: keys[id(record)], reverse=name.startswith("-"))
            ordered = known + [record for record in ordered if not keys[id(record)]]
        return ordered

    def _key(self, col: Col[R], record: T) -> list[tuple[int, float, str]]:
        row = next(iter(self.rows(record)), None)
        return [] if row is None else sort_key((col.order or col.value)(row))


def _says_nothing(col: Col[R], rows: Sequence[R]) -> bool:
    """Whether what a column has of all rows is not worth its room."""
    if not (col.telling or col.rare):
        return False
    values = {col.value(row) for row in rows}
    return len(values) <= 1 if col.telling else values <= {None}


def sort_key(value: Any) -> list[tuple[int, float, str]]:
    """What a value is sorted by: numbers before words, numbers in words as numbers; empty: it is none."""
    if value is None or value == "":
        return []
    if isinstance(value, int | float):
        return [(0, float(value), "")]
    parts = _DIGITS.split(str(value).lower())
    return [(0, float(part[:300]), "") if part.isdecimal() else (1, 0.0, part) for part in parts if part]


def _words(names: Sequence[str]) -> str:
    return ", ".join(names).lower()
