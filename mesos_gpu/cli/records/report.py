"""`mesos-gpu report`: GPU usage, waiting times, idle GPUs and fairness."""

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.options import Form as ListForm
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.cli.records.budget import budget_id, total_hours
from mesos_gpu.cli.table import Lines
from mesos_gpu.cli.types import PAST
from mesos_gpu.policy.accounts.sums import GROUPS, jain_percent
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from mesos_gpu.api.spec.usage import BudgetStanding, Usage, UsageRow

_F = TypeVar("_F", bound=Callable[..., Any])
_PERIODS: Final = ("day", "week", "month", "quarter", "year")
_FIELDS: Final[Mapping[str, str]] = {**GROUPS, "class": "job_class"}  # fields of a row by column
_USER: Final = "user"  # name of the owner in options
_MILLI: Final = 1000
_NOTHING: Final = "No usage in this time."


@dataclass(frozen=True, slots=True)
class Form:
    """Format of a report that is not printed as a list.

    Attributes:
        as_csv: Whether to print CSV.
        plot: Whether to print a bar chart.
        amount: Function from a row to the length of its bar.
        column: Column printed beside the bar.
    """

    as_csv: bool
    plot: bool
    amount: Callable[["UsageRow"], float]
    column: str


@click.group(cls=Lines)
def report() -> None:
    """Reports of GPU usage, waiting times, idle GPUs and fairness.

    They cover whole days in UTC, by default the last 30.
    """


def _asks(function: _F) -> _F:
    """Add the options of reports to a command."""
    for option in (
        click.option(
            "--depth",
            type=click.IntRange(1, 16),
            metavar="N",
            help="Aggregate queues at this level; 1: top-level queues, each with all below it.",
        ),
        click.option("--csv", "as_csv", is_flag=True, help="Print all columns as CSV."),
        click.option("--plot", is_flag=True, help="Print a bar for each row."),
        click.option("--period", type=click.Choice(_PERIODS), help="Report each period separately."),
        click.option("--until", type=PAST, help="End of the report; default: now."),
        click.option("--since", type=PAST, help="Begin of the report: 90d (ago), or 2027-03-01."),
        click.option(
            "--by",
            multiple=True,
            type=click.Choice((*GROUPS, _USER)),
            help="Group by this; may be repeated.  [default: queue]",
        ),
    ):
        function = option(function)
    return function


def _group(header: str, field: str) -> Col["UsageRow"]:
    return Col(header, lambda row: _of(row, field))


def _hours(header: str, amount: Callable[["UsageRow"], float], *, wide: bool = False) -> Col["UsageRow"]:
    return Col(header, lambda row: output.hours(amount(row)), amount, wide)


def _duration(header: str, field: str) -> Col["UsageRow"]:
    """Return a column for a field that is a time span in seconds."""

    def seconds(row: "UsageRow") -> float | None:
        value: float | None = _of(row, field)
        return value

    return Col(header, lambda row: output.span(seconds(row)), seconds)


_WHOSE: Final[Sequence[Col["UsageRow"]]] = (
    Col("FROM", lambda row: _day(row["period"]), lambda row: row["period"]),
    *(_group(name.upper(), field) for name, field in _FIELDS.items()),
)
_NAMES: Final = tuple(name.upper() for name in _FIELDS if name != "queue")


def _listing(*figures: Col["UsageRow"]) -> Listing["UsageRow", "UsageRow"]:
    return Listing(
        columns=(*_WHOSE, *figures),
        id=lambda row: " ".join(str(cell) for col in _WHOSE if (cell := col.value(row))),
        rows=lambda row: (row,),
        filters={},
        fit=Fit(cut=_NAMES, leave=(), names=_NAMES, paths=("QUEUE",)),
    )


def _paid(row: "UsageRow") -> float:
    return row["charged_hours"] - row["refunded_hours"]


_USAGE: Final = _listing(
    _hours("GPU_H", lambda row: row["gpu_hours"]),
    _hours("COST", lambda row: row["cost_hours"]),
    _hours("CHARGED", _paid),
    _hours("BORROWED", lambda row: row["borrowed_hours"]),
    _hours("LOST", lambda row: row["lost_hours"]),
    _hours("UNMET", lambda row: row["unmet_gpu_hours"]),
)


@report.command()
@list_options(_USAGE)
@_asks
@api_command
def usage(app: App, as_csv: bool, plot: bool, asked: "Asked[UsageRow, UsageRow]", **query: Any) -> None:
    """Show the GPU hours that were used, and those that jobs waited for.

    COST is GPU hours weighted by the cost of GPU models, CHARGED the part paid by budgets, BORROWED the part beyond
    guarantees, UNMET the number of GPUs that jobs waited for times their waiting time.

    \b
      mesos-gpu report usage --by user --since 30d
      mesos-gpu report usage --by queue --period month --csv > usage.csv
    """
    _show(app, asked, query, Form(as_csv, plot, lambda row: row["gpu_hours"], "GPU_H"))


_WAIT: Final = _listing(
    Col("STARTED", lambda row: row["started"]),
    _duration("HALF", "wait_p50_s"),
    _duration("90%", "wait_p90_s"),
    _duration("99%", "wait_p99_s"),
    _hours("UNMET", lambda row: row["unmet_gpu_hours"]),
)


@report.command()
@list_options(_WAIT)
@_asks
@api_command
def wait(app: App, as_csv: bool, plot: bool, asked: "Asked[UsageRow, UsageRow]", **query: Any) -> None:
    """Show how long jobs with GPUs waited before they started: median, 90th and 99th percentile.

    Values are accurate to a sixteenth. Jobs that never started are not included.
    """
    form = Form(as_csv, plot, lambda row: row["wait_p90_s"] or 0.0, "90%")
    _show(app, asked, query, form, waits=True)


def _idle_percent(row: "UsageRow") -> float | None:
    return _percent(row["idle_gpu_hours"], row["busy_gpu_hours"] + row["idle_gpu_hours"])


_IDLE: Final = _listing(
    _hours("BUSY", lambda row: row["busy_gpu_hours"]),
    _hours("IDLE", lambda row: row["idle_gpu_hours"]),
    _hours("UNKNOWN", lambda row: row["unknown_gpu_hours"]),
    Col("IDLE%", _idle_percent),
    _hours("WANTED", lambda row: row["wanted_gpu_hours"]),
    Col("BACK", lambda row: row["returned"]),
)


@report.command()
@list_options(_IDLE)
@_asks
@api_command
def idle(app: App, as_csv: bool, plot: bool, asked: "Asked[UsageRow, UsageRow]", **query: Any) -> None:
    """Show the GPU hours that were held while no kernel ran, and the demand meanwhile.

    BUSY, IDLE and UNKNOWN add up to the hours held; IDLE% is a percentage of BUSY and IDLE. WANTED is the part of IDLE
    during which jobs waited for as many GPUs, BACK the number of allocations ended because their GPUs were idle.

    \b
      mesos-gpu report idle --by user --since 30d --sort -idle
      mesos-gpu report idle --by queue --by class --csv > idle.csv
    """
    _show(app, asked, query, Form(as_csv, plot, lambda row: row["idle_gpu_hours"], "IDLE"))


_PART: Final = "part_percent"  # key added to rows of `fairness`


def _wanted(row: "UsageRow") -> float:
    return row["gpu_hours"] + row["unmet_gpu_hours"]


def _served(row: "UsageRow") -> float | None:
    return _percent(row["gpu_hours"], _wanted(row))


_FAIRNESS: Final = _listing(
    _hours("GPU_H", lambda row: row["gpu_hours"]),
    Col("OF_ALL%", lambda row: _of(row, _PART)),
    _hours("UNMET", lambda row: row["unmet_gpu_hours"]),
    Col("MET%", _served),
    _duration("WAIT_90%", "wait_p90_s"),
)


@report.command()
@list_options(_FAIRNESS)
@_asks
@api_command
def fairness(app: App, as_csv: bool, plot: bool, asked: "Asked[UsageRow, UsageRow]", **query: Any) -> None:
    """Show how much of the requested GPU hours each group got.

    OF_ALL% is its part of all GPU hours used. MET% is the part of its demand that was met: GPU hours used, of those
    used and waited for; it is empty without any demand. The line below the table is Jain's index of fairness over MET%:
    1.00 if the demand of all groups was met to the same degree.
    """
    form = Form(as_csv, plot, lambda row: _served(row) or 0.0, "MET%")
    _show(app, asked, query, form, waits=True, below=_tell_jain)


def _tell_jain(rows: "Sequence[UsageRow]") -> None:
    even = jain_percent(
        [int(row["gpu_hours"] * _MILLI) for row in rows], [int(_wanted(row) * _MILLI) for row in rows]
    )
    if even is not None:
        output.line(f"Fairness (Jain's index): {even / 100:.2f}")


_BUDGETS: Final[Listing["BudgetStanding", "BudgetStanding"]] = Listing(
    columns=(
        Col("FROM", lambda record: _day(record["begins"]), lambda record: record["begins"]),
        Col("QUEUE", lambda record: record["queue"]),
        Col("USER", lambda record: record["user"]),
        Col("HOURS", lambda record: output.hours(total_hours(record)), total_hours),
        Col("USED", lambda record: output.hours(record["used_hours"]), lambda record: record["used_hours"]),
        Col("USED%", lambda record: record["used_percent"]),
        Col("LEFT", lambda record: output.hours(record["left_hours"]), lambda record: record["left_hours"]),
    ),
    id=lambda record: f"{_day(record['begins'])} {budget_id(record)}",
    rows=lambda record: (record,),
    filters={By.USER: lambda record: (record["user"] or "",), By.QUEUE: lambda record: (record["queue"],)},
    fit=Fit(cut=("USER",), leave=("LEFT",), names=("USER",), paths=("QUEUE",)),
)


@report.command("budget")
@list_options(_BUDGETS)
@click.option("--since", type=PAST, help="Only periods that end after this: 90d (ago), or 2027-03-01.")
@click.option("--until", type=PAST, help="Only periods that begin before this; default: now.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all columns as CSV.")
@api_command
def budget_(
    app: App,
    as_csv: bool,
    since: float | None,
    until: float | None,
    asked: "Asked[BudgetStanding, BudgetStanding]",
) -> None:
    """Show how each budget was used, by period; the latest 14 periods are kept.

    HOURS is the current amount from the tree of queues, with hours carried over, granted and set aside in the period;
    LEFT is negative if more was used.
    """
    from mesos_gpu.api.spec.usage import Budgets, BudgetStanding

    client, first, last = app.client(), since or 0.0, float("inf") if until is None else until
    _refuse_two(asked, as_csv=as_csv, plot=False)

    def load() -> Seen[BudgetStanding]:
        every = client.call("GET", "/v1/budgets", Budgets, {"past": "true"})["budgets"]
        periods = [entry for entry in every if entry["ends"] > first and entry["begins"] < last]
        return Seen(periods, "No budget has a period in this time.", lambda periods: {"budgets": periods})

    if as_csv:
        names = list(BudgetStanding.__annotations__)
        rows = asked.chosen(load().records)
        _print_csv(names, [[dict(row)[name] for name in names] for row in rows])
    else:
        show(asked, load)


def _answer(app: App, query: Mapping[str, Any], *, waits: bool) -> "Callable[[], Usage]":
    """Return a function that requests the report."""
    from mesos_gpu.api.spec.usage import Usage

    given = {name: value for name, value in query.items() if value is not None and name != "by"}
    given["by"] = ",".join(_by(query))
    client, more = app.client(), {"waits": "true"} if waits else {}
    return lambda: client.call("GET", "/v1/usage", Usage, {**given, **more})


def _by(query: Mapping[str, Any]) -> list[str]:
    """Return the grouping by the scheduler's names."""
    return ["owner" if name == _USER else name for name in query["by"] or ("queue",)]


def _show(
    app: App,
    asked: "Asked[UsageRow, UsageRow]",
    query: Mapping[str, Any],
    form: Form,
    *,
    waits: bool = False,
    below: "Callable[[Sequence[UsageRow]], None]" = lambda _rows: None,
) -> None:
    """Print a report as a list, as CSV or as a bar chart."""
    _refuse_two(asked, as_csv=form.as_csv, plot=form.plot)
    answer = _answer(app, query, waits=waits)
    groups = (*(("FROM",) if query["period"] else ()), *(name.upper() for name in _by(query)))

    def load() -> "Seen[UsageRow]":
        usage = answer()

        def document(rows: "Sequence[UsageRow]") -> object:
            return {**usage, "rows": [_without_part(row) for row in rows]}

        return Seen(_with_parts(usage["rows"]), _NOTHING, document, below)

    if form.as_csv:
        _csv(_by(query), asked.chosen(load().records))
    elif form.plot:
        _plot(asked, groups, form, asked.chosen(load().records))
    else:
        figures = [col.header for col in asked.listing.columns if col not in _WHOSE]
        show(replace(asked, columns=asked.columns or (*groups, *figures)), load)


def _refuse_two(asked: Asked[Any, Any], *, as_csv: bool, plot: bool) -> None:
    """Refuse options that exclude each other."""
    if as_csv + plot + (asked.form is not ListForm.TABLE) > 1:
        raise click.UsageError("-o, --csv and --plot exclude each other: give one of them")
    if (as_csv or plot) and (asked.columns or asked.watch):
        raise click.UsageError("--columns and --watch cannot be used with --csv or --plot")


def _with_parts(rows: "Sequence[UsageRow]") -> "list[UsageRow]":
    """Add to each row its percentage of all GPU hours."""
    whole = sum(row["gpu_hours"] for row in rows)
    return [cast("UsageRow", {**row, _PART: _percent(row["gpu_hours"], whole)}) for row in rows]


def _without_part(row: "UsageRow") -> dict[str, object]:
    return {name: value for name, value in row.items() if name != _PART}


def _plot(
    asked: "Asked[UsageRow, UsageRow]", groups: Sequence[str], form: Form, rows: "Sequence[UsageRow]"
) -> None:
    """Print the rows of a report as a bar chart."""
    from mesos_gpu.cli.records.plot import bars

    unicode = "utf" in (sys.stdout.encoding or "").lower()
    labels, figure = [asked.listing.col(name) for name in groups], asked.listing.col(form.column)
    bodies = [
        (
            output.clean(" ".join(str(col.value(row) or "-") for col in labels)),
            form.amount(row),
            _words(figure.value(row)),
        )
        for row in rows
    ]
    output.line(form.column if rows else _NOTHING)
    for text in bars(bodies, unicode=unicode):
        output.line(text)


def _words(cell: object) -> str:
    """Return a value as it is shown in tables."""
    return "-" if cell is None else f"{cell:g}" if isinstance(cell, float) else str(cell)


def _csv(by: Sequence[str], rows: "Sequence[UsageRow]") -> None:
    from mesos_gpu.api.spec.usage import UsageRow

    names = [name for name in UsageRow.__annotations__ if name not in _FIELDS.values()]
    names = [*(_FIELDS[name] for name in by), *names]
    _print_csv(names, [[_of(row, name) for name in names] for row in rows])


def _print_csv(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([output.clean(cell) if isinstance(cell, str) else cell for cell in row])


def _of(row: "UsageRow", name: str) -> Any:
    return dict(row)[name]


def _day(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def _percent(part: float, whole: float) -> float | None:
    return round(100 * part / whole, 1) if whole else None
