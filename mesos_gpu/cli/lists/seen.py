"""Answers of the scheduler as columns and rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic

from mesos_gpu.cli.lists.columns import Col, R, T
from mesos_gpu.cli.lists.options import Asked, Form


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """Answer of the scheduler for a list.

    Attributes:
        records: Records that may be listed, before filters.
        empty: Text printed if no record is listed.
        document: Function from the listed records to the document of -o json.
        below: Function that prints what follows a table of the listed records.
        notes: Notes for stderr in every format.
    """

    records: Sequence[T]
    empty: str
    document: Callable[[Sequence[T]], object] = field(default=lambda records: records)
    below: Callable[[Sequence[T]], None] = field(default=lambda _records: None)
    notes: Sequence[str] = ()


def columns_of(asked: Asked[T, R], records: Sequence[T], wide: bool) -> list[Col[R]]:
    """Return the columns of a table, before some are omitted to fit the terminal."""
    return asked.listing.shown(asked.columns, records, wide=wide or asked.form is Form.WIDE)


def cells_of(asked: Asked[T, R], columns: Sequence[Col[R]], records: Sequence[T]) -> list[list[object]]:
    """Return the cells of a table by rows."""
    return [[col.value(row) for col in columns] for record in records for row in asked.listing.rows(record)]
