"""All output to stdout and stderr, except that of jobs: tables, JSON, notes, the status line."""

import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TextIO

import click

from mesos_gpu.model.words import lasting
from mesos_gpu.wire.plain import clean as clean  # the one place that escapes what others wrote
from mesos_gpu.wire.plain import clean_json, clean_lines

if TYPE_CHECKING:
    from rich.table import Table

    from mesos_gpu.cli.fit import Fit

OURS: Final = "mesos-gpu: "  # prefix of this program's lines between those of a job
_MIN_TEXT: Final = 20  # minimum width of text after a prefix
_DAY_S: Final = 86_400
# Colours of words on a terminal.
_STYLES: Final = {
    "running": "green",
    "finished": "green",
    "ok": "green",
    "up": "green",
    "failed": "red",
    "lost": "red",
    "sick": "red",
    "off": "red",
    "over": "red",
    "uncovered": "red",
    "suspect": "yellow",
    "dirty": "yellow",
    "drained": "blue",
    "killed": "yellow",
    "killing": "yellow",
    "unreachable": "yellow",
    "abandoned": "yellow",
    "unknown": "yellow",
    "unmonitored": "yellow",
    "unfit": "red",
    "backed-off": "yellow",
    "preempted": "yellow",
    "evicted": "yellow",
}


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal."""
    return stream is not None and stream.isatty()  # None if it was closed before the start


def width() -> int:
    """Return the terminal's width in columns; 80 if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else 80


def document(value: object) -> None:
    """Print a JSON document; control characters are escaped within JSON, so that the document is unchanged."""
    click.echo(clean_json(json.dumps(value, indent=2, ensure_ascii=False)))


def line(text: str) -> None:
    """Print a line on stdout; on a terminal it is wrapped at words, with its indentation."""
    folded(text[: len(text) - len(text.lstrip(" "))], text.lstrip(" "))


def folded(lead: str, text: str) -> None:
    """Print a line on stdout; on a terminal long text is wrapped to the right of `lead`."""
    click.echo(_wrapped(lead, clean(text), " " * len(lead), sys.stdout))


def remark(text: str) -> None:
    """Print a YAML comment; on a narrow terminal it is wrapped into several lines."""
    click.echo(_wrapped("# ", clean(text), "# ", sys.stdout))


def note(text: str) -> None:
    """Print a line on stderr with this program's prefix, because it may stand between lines of a job."""
    status_line.clear()
    click.echo(_wrapped(OURS, clean(text), "  ", sys.stderr), err=True)


def error(failure: Exception) -> None:
    """Print an error on stderr; control characters in its text are escaped."""
    status_line.clear()
    first, *rest = clean_lines(str(failure)).split("\n")
    lines = [
        _wrapped("Error: ", first, "  ", sys.stderr),
        *(_wrapped("", more, "  ", sys.stderr) for more in rest),
    ]
    click.echo("\n".join(lines), err=True)


def _wrapped(lead: str, text: str, hanging: str, stream: TextIO | None) -> str:
    """Return a line for a stream; on a terminal it is wrapped between words.

    Args:
        lead: Text before the first line.
        text: Line without control characters.
        hanging: Text before each further line.
        stream: Stream that the line goes to.
    """
    columns = max(shutil.get_terminal_size().columns, len(lead) + _MIN_TEXT) if is_terminal(stream) else 0
    if len(lead) + len(text) <= columns or not columns:
        return clean(lead) + text
    lines = textwrap.wrap(
        text, columns - len(lead), break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return clean(lead) + ("\n" + hanging).join(lines)


def verbatim(text: bytes) -> None:
    """Print text of other sources for programs: unchanged, but on a terminal with control characters escaped."""
    click.echo(clean_lines(text.decode(errors="backslashreplace")) if is_terminal(sys.stdout) else text)


def raw(data: bytes, *, to_stderr: bool) -> None:
    """Print a job's output unchanged."""
    if data:
        status_line.clear()
        click.echo(data, nl=False, err=to_stderr)


def ask(question: "str | Callable[[], str]", *, yes: bool, shown: bool = False) -> None:
    """Ask for confirmation on a terminal before a command ends or deletes something; return after a yes.

    Without a terminal the command proceeds, except one that works out itself what changes: that needs --yes.

    Args:
        question: Question, or a function that returns it; "" if nothing would be ended or deleted.
        yes: Whether --yes was given, so that nothing is asked.
        shown: Whether the command worked out the changes itself, and has shown them.

    Raises:
        click.Abort: The answer is no.
        click.UsageError: `shown` without --yes and without a terminal.
    """
    terminal = is_terminal(sys.stdin)
    if yes or not (terminal or shown):
        return
    text = question if isinstance(question, str) else question()
    if not text:
        return
    if not terminal:
        raise click.UsageError(
            f"{text} stdin is not a terminal, so the command cannot ask for confirmation: add --yes"
        )
    status_line.clear()
    click.confirm(clean(text), abort=True, err=True)


def one_place() -> bool:
    """Return whether stdout and stderr go to one terminal, pipe or file."""
    try:
        ours, theirs = os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):  # closed, or not a file
        return False
    return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    empty: str,
    fit: "Fit | None" = None,
    whole: bool = False,
) -> None:
    """Print rows under headers: fitted to a terminal, else as plain columns without colours or truncation.

    Args:
        headers: Header of each column. Numbers are right-aligned, None is shown as `-`.
        rows: Rows of str, int, float or None cells.
        empty: Text printed on a terminal instead of a table without rows.
        fit: Rules for narrow terminals; None for `Fit()`.
        whole: Whether to fit nothing, so that the terminal breaks long lines.
    """
    if not is_terminal(sys.stdout) or (whole and rows):
        for text in aligned(headers, rows)[0]:
            click.echo(text)
    elif rows:
        from rich.console import Console

        shown, least = drawn(headers, rows, fit=fit)
        Console(highlight=False, width=max(shutil.get_terminal_size().columns, least)).print(shown)
    else:
        click.echo(empty)


def _cells(
    headers: Sequence[str], rows: Sequence[Sequence[object]]
) -> tuple[list[list[str]], Sequence[bool]]:
    """Return the text of each cell, and whether each column is right-aligned."""
    cells = [[_cell(value) for value in row] for row in rows]
    right = [
        bool(rows) and all(isinstance(v, int | float | None) for v in column)
        for column in zip(*rows, strict=True)
    ]
    return cells, right or [False] * len(headers)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:g}" if isinstance(value, float) else clean(str(value))


def aligned(
    headers: Sequence[str], rows: Sequence[Sequence[object]], widths: Sequence[int] = ()
) -> tuple[list[str], list[int]]:
    """Return the lines of an unfitted table, headers first, and its column widths; `widths` are those of earlier
    lines."""
    cells, right = _cells(headers, rows)
    every = [headers, *cells]
    least = widths or [0] * len(headers)
    wide = [max(least[i], *(len(row[i]) for row in every)) for i in range(len(headers))]
    return ["  ".join(map(_set, row, wide, right)).rstrip() for row in every], wide


def _set(cell: str, width: int, right: bool) -> str:
    return f"{cell:>{width}}" if right else f"{cell:<{width}}"


def drawn(
    headers: Sequence[str], rows: Sequence[Sequence[object]], *, fit: "Fit | None" = None
) -> tuple["Table", int]:
    """Return a table for this terminal, and the minimum number of columns that it needs; arguments as for `table`."""
    from rich.table import Table
    from rich.text import Text

    from mesos_gpu.cli.fit import GAP, Column, Fit, fitted

    fit, width = fit or Fit(), shutil.get_terminal_size().columns
    cells, right = _cells(headers, rows)
    every = zip(headers, zip(*cells, strict=True) if cells else [()] * len(headers), right, strict=True)
    columns = fitted([Column(*column) for column in every], width, fit)
    shown = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column in columns:
        folded = fit.wrap and column is columns[-1]
        shown.add_column(
            column.header,
            justify="right" if column.right else "left",
            no_wrap=not folded,
            overflow="fold" if folded else "ellipsis",
            width=column.width,
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        shown.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    return shown, sum(column.width + GAP for column in columns)


def pairs(rows: Sequence[tuple[str, object]]) -> None:
    """Print names and values, one pair per line; None is shown as `-`."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        text, lead = _cell(value), f"{name:<{width}}  "
        shown = _wrapped(lead, text, " " * len(lead), sys.stdout)
        if is_terminal(sys.stdout):
            shown = click.style(lead, bold=True) + click.style(shown[len(lead) :], fg=_STYLES.get(text))
        click.echo(shown)


def hours(amount: float) -> float:
    """Round a number of hours for tables; below one hour to two significant digits."""
    if abs(amount) >= 1:
        return round(amount, 1 if abs(amount) >= 10 else 2)
    return float(f"{round(amount, 4):.2g}") + 0.0  # not -0.0


def span(seconds: float | None) -> str | None:
    """Return a time span as `lasting` formats it; None for None."""
    return None if seconds is None else lasting(seconds)


def age(moment: float | None) -> str | None:
    """Return how long ago a time (seconds since the epoch) was; None for None."""
    return None if moment is None else span(time.time() - moment)


def expected(moment: float | None) -> str:
    """Return how long it takes until a time; "not known" for None."""
    if moment is None:
        return "not known"
    left_s = moment - time.time()
    return f"in {span(left_s)}" if left_s >= 1 else "now"


def stamp(moment: float | None) -> str | None:
    """Return a time in UTC in the format of all commands and options: 2026-12-01T04:25:09Z.

    Args:
        moment: Seconds since the epoch; None if the time is unknown.
    """
    return None if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def short_stamp(moment: float) -> str:
    """Return a time in UTC without its year, for tables: 12-01T04:25:09Z."""
    return datetime.fromtimestamp(moment, UTC).strftime("%m-%dT%H:%M:%SZ")


def clock(moment: float, now: float) -> str:
    """Return a time in UTC, without the date if it is within the next day: 04:25Z."""
    form = "%H:%MZ" if 0 <= moment - now < _DAY_S else "%Y-%m-%dT%H:%MZ"
    return datetime.fromtimestamp(moment, UTC).strftime(form)


class StatusLine:
    """A line on stderr that is overwritten; nothing is printed if stderr is not a terminal."""

    def __init__(self) -> None:
        self._shown = ""

    @property
    def live(self) -> bool:
        """Whether the line is visible, because stderr is a terminal."""
        return is_terminal(sys.stderr)

    def show(self, text: str) -> None:
        """Replace the line by `text`, cut to the terminal's width."""
        width = shutil.get_terminal_size().columns - 1
        text = clean(text)
        text = text if len(text) <= width else text[: width - 1] + "…"
        if self.live and text != self._shown:
            self._shown = text
            click.echo(f"\r\x1b[K{text}", err=True, nl=False, color=True)

    def clear(self) -> None:
        """Erase the line before other output."""
        if self._shown:
            self._shown = ""
            click.echo("\r\x1b[K", err=True, nl=False, color=True)


status_line: Final = StatusLine()  # the only one; all other output clears it first
