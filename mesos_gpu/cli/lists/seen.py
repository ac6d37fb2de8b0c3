"""What the scheduler said, as columns and rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic

from mesos_gpu.cli.lists.columns import Col, R, T
from mesos_gpu.cli.lists.options import Asked, Form


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """What the scheduler said.

    Attributes:
        records: All that may be listed.
        empty: What a person reads if none is.
        document: What -o json prints of those that are listed.
        below: What follows a table of those that are listed.
        notes: What is told on stderr, however the list is printed.
    """

    records: Sequence[T]
    empty: str
    document: Callable[[Sequence[T]], object] = field(default=lambda records: records)
    below: Callable[[Sequence[T]], None] = field(default=lambda _records: None)
    notes: Sequence[str] = ()


def columns_of(asked: Asked[T, R], records: Sequence[T], wide: bool) -> list[Col[R]]:
    """The columns that a table has, before some are left out for want of room."""
    return asked.listing.shown(asked.columns, records, wide=wide or asked.form is Form.WIDE)


def cells_of(asked: Asked[T, R], columns: Sequence[Col[R]], records: Sequence[T]) -> list[list[object]]:
    """The rows of a table."""
    return [[col.value(row) for col in columns] for record in records for row in asked.listing.rows(record)]
