"""Columns and sort order of lists."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from mesos_gpu.cli import output
from mesos_gpu.cli.fit import Fit
from mesos_gpu.wire.listing.filters import By

T = TypeVar("T")  # a record in the scheduler's answer
R = TypeVar("R")  # a row of the table
_DIGITS: Final = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Col(Generic[R]):
    """Column of a list that a command prints.

    Attributes:
        header: Name in capitals.
        value: Function from a row to the displayed value.
        order: Function from a row to its sort key; None to sort by the value.
        wide: Whether only -o wide and --columns show the column.
        telling: Whether the column is omitted if all rows have one value.
        rare: Whether the column is omitted if no row has a value.
        moves: Whether the value changes by time alone, which --watch does not report.
    """

    header: str
    value: Callable[[R], object]
    order: Callable[[R], object] | None = None
    wide: bool = False
    telling: bool = False
    rare: bool = False
    moves: bool = False


def aged(header: str, moment: Callable[[R], float | None], *, wide: bool = False) -> Col[R]:
    """Return a column that shows how long ago a time was; the latest is sorted first."""

    def order(row: R) -> float | None:
        at = moment(row)
        return None if at is None else -at

    return Col(header, lambda row: output.age(moment(row)), order, wide, moves=True)


@dataclass(frozen=True, slots=True)
class Listing(Generic[T, R]):
    """A kind of list.

    Attributes:
        columns: Columns that the list can show.
        id: Function from a record to the ID that commands accept.
        rows: Function from a record to its rows.
        filters: Functions from a record to the values that a filter matches.
        fit: Rules for narrow terminals.
        states: Allowed words of the filter by state; empty for any word.
    """

    columns: Sequence[Col[R]]
    id: Callable[[T], str]
    rows: Callable[[T], Iterable[R]]
    filters: Mapping[By, Callable[[T], Iterable[str]]]
    fit: Fit = field(default_factory=Fit)
    states: Sequence[str] = ()

    def col(self, name: str) -> Col[R]:
        """Return a column by its name, in any case.

        Raises:
            ValueError: There is no such column; the message names the existing ones.
        """
        col = next((col for col in self.columns if col.header == name.upper()), None)
        if col is None:
            names = [col.header for col in self.columns]
            near = difflib.get_close_matches(name.upper(), names, n=2)
            more = (
                f"did you mean {' or '.join(near).lower()}?" if near else f"the columns are {_words(names)}"
            )
            raise ValueError(f"{name!r} is not a column; {more}")
        return col

    def shown(self, names: Sequence[str], records: Sequence[T], *, wide: bool) -> list[Col[R]]:
        """Return the columns given by name; without names all, `wide` ones only on request."""
        if names:
            return [self.col(name) for name in names]
        rows = [row for record in records for row in self.rows(record)]
        return [col for col in self.columns if wide or not (col.wide or _says_nothing(col, rows))]

    def fitted(self, names: Sequence[str], shown: Sequence[Col[R]]) -> Fit:
        """Return the rules for narrow terminals for these columns; columns given by name are not omitted."""
        headers = {col.header for col in shown}
        leave = self.fit.leave
        kept = None if leave is None else [header for header in leave if header in headers]
        cut = [header for header in self.fit.cut if header in headers]
        return replace(self.fit, leave=() if names else kept, cut=cut)

    def ordered(self, records: Sequence[T], by: Sequence[str]) -> list[T]:
        """Sort records by the named columns of their first rows, the most important column first.

        A leading minus sorts the largest first. Records without a value always come last.
        """
        ordered = list(records)
        for name in reversed(by):
            col = self.col(name.removeprefix("-"))
            keys = {id(record): self._key(col, record) for record in ordered}
            with_value = [record for record in ordered if keys[id(record)]]
            with_value.sort(key=lambda record: keys[id(record)], reverse=name.startswith("-"))
            ordered = with_value + [record for record in ordered if not keys[id(record)]]
        return ordered

    def _key(self, col: Col[R], record: T) -> list[tuple[int, float, str]]:
        row = next(iter(self.rows(record)), None)
        return [] if row is None else sort_key((col.order or col.value)(row))


def _says_nothing(col: Col[R], rows: Sequence[R]) -> bool:
    """Return whether the values of a column are not worth its space."""
    if not (col.telling or col.rare):
        return False
    values = {col.value(row) for row in rows}
    return len(values) <= 1 if col.telling else values <= {None}


def sort_key(value: Any) -> list[tuple[int, float, str]]:
    """Return a sort key: numbers before words, numbers in words compare as numbers; empty without a value."""
    if value is None or value == "":
        return []
    if isinstance(value, int | float):
        return [(0, float(value), "")]
    parts = _DIGITS.split(str(value).lower())
    return [(0, float(part[:300]), "") if part.isdecimal() else (1, 0.0, part) for part in parts if part]


def _words(names: Sequence[str]) -> str:
    return ", ".join(names).lower()
