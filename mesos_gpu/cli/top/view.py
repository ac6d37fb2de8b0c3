"""Views of `top`: rows, their sort orders and filters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mesos_gpu.cli.fit import Fit

if TYPE_CHECKING:
    from mesos_gpu.cli.client import Client

NOTHING: Final[Mapping[str, float | None]] = {}


@dataclass(frozen=True, slots=True)
class Row:
    """Row of a table in `mesos-gpu top`.

    Attributes:
        id: Identity of the row within its view, stable over updates.
        cells: Values in the order of the headers.
        job: Job that may be killed from this row; None if there is no job.
        amounts: Sort values by order; a missing or None value is not known.
    """

    id: str
    cells: Sequence[object]
    job: str | None = None
    amounts: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """Data of one update of a view.

    Attributes:
        rows: Rows in the view's default order.
        summary: Summary in one line.
        document: Document of --json.
    """

    rows: Sequence[Row]
    summary: str
    document: object


@dataclass(frozen=True, slots=True)
class View:
    """A view of `top`.

    Attributes:
        name: Name on the command line.
        headers: Names of the columns.
        fit: Rules for narrow terminals.
        orders: Names of sort orders; the first is the default order of the rows, others sort the largest first.
        look: Function that requests the rows of all or of given nodes; raises `MesosGpuError`.
        empty: Text shown without rows.
        drawn: Columns with bars, shown only on terminals.
    """

    name: str
    headers: Sequence[str]
    fit: Fit
    orders: Sequence[str]
    look: "Callable[[Client, Sequence[str]], Seen]"
    empty: str
    drawn: Sequence[str] = ()

    def columns(self, *, people: bool) -> list[int]:
        """Return the indexes of the shown columns."""
        return [i for i, header in enumerate(self.headers) if people or header not in self.drawn]

    def chosen(self, rows: Sequence[Row], order: str, words: str) -> list[Row]:
        """Return the rows that contain the words in one of their cells, sorted; an unknown order means the default."""
        wanted = words.lower()
        kept = [row for row in rows if not wanted or any(wanted in str(cell).lower() for cell in row.cells)]
        if order == self.orders[0] or order not in self.orders:
            return kept
        return sorted(kept, key=lambda row: _most_first(row.amounts.get(order)))  # stable


def _most_first(amount: float | None) -> tuple[bool, float]:
    """Return a sort key that puts unknown amounts last."""
    return (amount is None, -(amount or 0))
