"""Repeated display of a list: redrawn on a terminal, else a line for each changed row."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.interrupt import terminated
from mesos_gpu.cli.lists.columns import Col, R, T
from mesos_gpu.cli.lists.options import Asked, Form
from mesos_gpu.cli.lists.seen import Seen, cells_of, columns_of
from mesos_gpu.errors import Unavailable
from mesos_gpu.wire.plain import clean_json

if TYPE_CHECKING:
    from rich.console import RenderableType

EVERY_S: Final = 2.0
_OTHER_LINES: Final = 3  # screen lines for the status, headers and the count of hidden rows


def watch(asked: Asked[T, R], look: Callable[[], Seen[T]], *, wide: bool) -> None:
    """Show a list until interrupted. While the scheduler is unreachable, the last answer stays, marked as old.

    Raises:
        MesosGpuError: Raised by the first `look`, and by later ones unless it is `Unavailable`.
    """
    seen = look()
    with terminated():
        if output.is_terminal(sys.stdout) and asked.form in (Form.TABLE, Form.WIDE):
            _draw(asked, look, seen, wide)
        else:
            _tell(asked, look, seen, wide)


def _draw(asked: Asked[T, R], look: Callable[[], Seen[T]], seen: Seen[T], wide: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    at, trouble = time.time(), ""
    with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        while True:
            live.update(_picture(asked, seen, wide, at, trouble), refresh=True)
            time.sleep(EVERY_S)
            try:
                seen, at, trouble = look(), time.time(), ""
            except Unavailable as error:
                trouble = error.what


def _picture(asked: Asked[T, R], seen: Seen[T], wide: bool, at: float, trouble: str) -> "RenderableType":
    """Return the picture of a list for the terminal: status line, rows that fit, and a count of hidden rows."""
    from rich.console import Group
    from rich.text import Text

    records = asked.chosen(seen.records)
    columns = columns_of(asked, records, wide)
    rows = cells_of(asked, columns, records)
    room = max(shutil.get_terminal_size().lines - _OTHER_LINES, 1)
    picture, _ = output.drawn(
        [col.header for col in columns], rows[:room], fit=asked.listing.fitted(asked.columns, columns)
    )
    read_at = time.strftime("%H:%M:%SZ", time.gmtime(at))
    status_text = f"as of {read_at}, every {EVERY_S:g}s; press Ctrl-C to end"
    if trouble:
        status_text = f"outdated ({read_at}): {trouble}"  # with a usual URL within 80 columns
    hidden = len(rows) - room
    more = [Text(f"… and {hidden} more")] if hidden > 0 else []
    head = Text(
        output.clean(status_text), style="bold red" if trouble else "dim", no_wrap=True, overflow="ellipsis"
    )
    return Group(head, picture if rows else Text(seen.empty), *more)


def _tell(asked: Asked[T, R], look: Callable[[], Seen[T]], seen: Seen[T], wide: bool) -> None:
    """Print the list and then its changes; removed records are noted on stderr."""
    records = asked.chosen(seen.records)
    printer = _Printer(asked, columns_of(asked, records, wide))
    printer.print(records)
    while True:
        time.sleep(EVERY_S)
        with suppress(Unavailable):  # the scheduler may be restarted meanwhile
            printer.print(asked.chosen(look().records))


class _Printer:
    """Printer of records that have changed since the last call."""

    def __init__(self, asked: Asked[Any, Any], columns: "Sequence[Col[Any]]") -> None:
        self._asked, self._columns = asked, columns
        self._printed: dict[str, object] = {}
        self._widths: Sequence[int] = ()

    def print(self, records: Sequence[Any]) -> None:
        """Print the records that are new or have changed."""
        now = {self._asked.listing.id(record): record for record in records}
        states = {id: self._told(record) for id, record in now.items()}
        changed = {id: now[id] for id, state in states.items() if self._printed.get(id) != state}
        if self._asked.form is Form.JSON:
            for record in changed.values():
                click.echo(clean_json(json.dumps(record, ensure_ascii=False)))
        elif self._asked.form is Form.NAME:
            for id in changed:
                output.line(id)
        else:
            self._print_rows(changed)
        for id in self._printed.keys() - states.keys():
            output.note(f"{id} is no longer in the list")
        self._printed = dict(states)
        sys.stdout.flush()

    def _told(self, record: Any) -> object:
        """Return the values of a record that are compared to detect changes, but none that change by time alone."""
        if self._asked.form is Form.NAME:
            return True
        if self._asked.form is Form.JSON:
            return record
        return cells_of(self._asked, [col for col in self._columns if not col.moves], [record])

    def _print_rows(self, changed: Mapping[str, Any]) -> None:
        rows = cells_of(self._asked, self._columns, list(changed.values()))
        first = not self._widths
        lines, self._widths = output.aligned([col.header for col in self._columns], rows, self._widths)
        for line in lines if first else lines[1:]:
            click.echo(line)
