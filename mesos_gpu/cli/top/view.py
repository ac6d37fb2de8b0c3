"""What a view of `top` shows: rows, their order, and which of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesos_gpu.cli.fit import Fit

if TYPE_CHECKING:
    from mesos_gpu.cli.client import Client

NOTHING: Final[Mapping[str, float | None]] = {}


@dataclass(frozen=True, slots=True)
class Row:
    """A row.

    Attributes:
        id: What tells it from the other rows of its view, also at the next look.
        cells: A value for each header.
        job: Whose end may be asked for on it; None: nobody's.
        amounts: What it is sorted by, by the names of orders; None, or no entry: not known.
    """

    id: str
    cells: Sequence[object]
    job: str | None = None
    amounts: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look has shown.

    Attributes:
        rows: In the order of the view itself.
        summary: All of it in one line.
        document: What --json prints.
    """

    rows: Sequence[Row]
    summary: str
    document: object


@dataclass(frozen=True, slots=True)
class View:
    """A view.

    Attributes:
        name: As the command line calls it.
        headers: Names of columns.
        fit: What gives way in a narrow terminal.
        orders: Names of orders; the first is the rows' own, in the others the most comes first.
        look: Asks the scheduler, of all nodes or of those that are named; raises `MesosGpuError`.
        empty: What is read where there is no row.
        drawn: Columns that are for people alone: bars.
    """

    name: str
    headers: Sequence[str]
    fit: Fit
    orders: Sequence[str]
    look: "Callable[[Client, Sequence[str]], Seen]"
    empty: str
    drawn: Sequence[str] = ()

    def columns(self, *, people: bool) -> list[int]:
        """The places of the columns that are shown."""
        return [i for i, header in enumerate(self.headers) if people or header not in self.drawn]

    def chosen(self, rows: Sequence[Row], order: str, words: str) -> list[Row]:
        """The rows that have the words in one of their cells, in an order; one that the view lacks is its own."""
        wanted = words.lower()
        kept = [row for row in rows if not wanted or any(wanted in str(cell).lower() for cell in row.cells)]
        if order == self.orders[0] or order not in self.orders:
            return kept
        return sorted(kept, key=lambda row: _most_first(row.amounts.get(order)))  # stable


def _most_first(amount: float | None) -> tuple[bool, float]:
    """What is not known comes last."""
    return (amount is None, -(amount or 0))
