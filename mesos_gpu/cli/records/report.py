"""`mesos-gpu report`: what was used, who waited, and how evenly all were served."""

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.table import Lines
from mesos_gpu.cli.types import PAST
from mesos_gpu.policy.accounts.sums import GROUPS, jain_percent

if TYPE_CHECKING:
    from mesos_gpu.api.spec.usage import BudgetStanding, Usage, UsageRow

_F = TypeVar("_F", bound=Callable[..., Any])
_PERIODS: Final = ("day", "week", "month", "quarter", "year")
_FIELDS: Final[Mapping[str, str]] = {**GROUPS, "class": "job_class"}  # of a row
_USER: Final = "user"  # as other lists call the owner
_MILLI: Final = 1000
_NOTHING: Final = "Nothing was used then."


@dataclass(frozen=True, slots=True)
class Form:
    """How a report is printed.

    Attributes:
        as_json, as_csv, plot: Whether it is in that form; none of them: as a table.
        amount: What the bar of a row is as long as.
        column: Of the table's figures, which one stands beside it.
    """

    as_json: bool
    as_csv: bool
    plot: bool
    amount: Callable[["UsageRow"], float]
    column: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be done at once."""
        if self.as_json + self.as_csv + self.plot > 1:
            raise click.UsageError("only one of --json, --csv and --plot can be printed")


@click.group(cls=Lines)
def report() -> None:
    """Reports of what was used, who waited, and who was served.

    They are of whole days of UTC, and of the last 30 if nothing else is said.
    """


def _asks(function: _F) -> _F:
    for option in (
        click.option(
            "--depth",
            type=click.IntRange(1, 16),
            help="Sum queues up from this level on; 1: the top ones, each with all below it.",
        ),
        click.option("--csv", "as_csv", is_flag=True, help="Print all columns as CSV."),
        click.option("--plot", is_flag=True, help="Print a bar for each row."),
        click.option("--period", type=click.Choice(_PERIODS), help="Rows of each such time by itself."),
        click.option("--until", type=PAST, help="Before that; default: now."),
        click.option("--since", type=PAST, help="From then on: 90d (ago), or 2027-03-01."),
        click.option(
            "--by",
            multiple=True,
            type=click.Choice((*GROUPS, _USER)),
            help="What is summed up; may be repeated.  [default: queue]",
        ),
    ):
        function = option(function)
    return function


@report.command()
@_asks
@json_option
@api_command
def usage(app: App, as_json: bool, as_csv: bool, plot: bool, **asked: Any) -> None:
    """GPU hours that were used, and those that jobs waited for.

    COST is GPU hours by what each GPU costs, CHARGED what budgets pay of it, BORROWED what was beyond guarantees, UNMET
    the GPUs that were waited for times how long.
    """
    answer = _answer(app, asked)
    columns = ("gpu_hours", "cost_hours", "charged_hours", "borrowed_hours", "lost_hours", "unmet_gpu_hours")
    headers = ("GPU_H", "COST", "CHARGED", "BORROWED", "LOST", "UNMET")

    def cells(row: "UsageRow") -> tuple[object, ...]:
        paid = row["charged_hours"] - row["refunded_hours"]
        return tuple(output.hours(paid if name == "charged_hours" else _of(row, name)) for name in columns)

    _show(answer, headers, cells, Form(as_json, as_csv, plot, lambda row: row["gpu_hours"]))


@report.command()
@_asks
@json_option
@api_command
def wait(app: App, as_json: bool, as_csv: bool, plot: bool, **asked: Any) -> None:
    """How long jobs with GPUs waited before they started: half of them, nine of ten, and 99 of 100 no longer than so.

    Each wait is right to a sixteenth. Jobs that never started are not among them.
    """
    answer = _answer(app, asked, waits=True)

    def cells(row: "UsageRow") -> tuple[object, ...]:
        spans = (row["wait_p50_s"], row["wait_p90_s"], row["wait_p99_s"])
        return row["started"], *map(output.span, spans), output.hours(row["unmet_gpu_hours"])

    form = Form(as_json, as_csv, plot, lambda row: row["wait_p90_s"] or 0.0, 2)
    _show(answer, ("STARTED", "HALF", "90%", "99%", "UNMET"), cells, form)


@report.command()
@_asks
@json_option
@api_command
def idle(app: App, as_json: bool, as_csv: bool, plot: bool, **asked: Any) -> None:
    """GPU hours, by cost, that were held and did nothing, and those whose work was lost."""
    answer = _answer(app, asked)

    def cells(row: "UsageRow") -> tuple[object, ...]:
        cost = row["cost_hours"]
        amounts = row["idle_hours"], row["lost_hours"]
        return output.hours(cost), *(
            cell for each in amounts for cell in (output.hours(each), _percent(each, cost))
        )

    form = Form(as_json, as_csv, plot, lambda row: row["idle_hours"], 1)
    _show(answer, ("COST", "IDLE", "IDLE%", "LOST", "LOST%"), cells, form)


@report.command()
@_asks
@json_option
@api_command
def fairness(app: App, as_json: bool, as_csv: bool, plot: bool, **asked: Any) -> None:
    """How much each got of what it asked for.

    SERVED is what was used, of that and what was waited for: who asked for nothing was not served well, and has none.
    Below the table, Jain's index of SERVED: 100 % if all were served alike.
    """
    answer = _answer(app, asked, waits=True)
    whole = sum(row["gpu_hours"] for row in answer["rows"])

    def cells(row: "UsageRow") -> tuple[object, ...]:
        used, wanted = row["gpu_hours"], row["gpu_hours"] + row["unmet_gpu_hours"]
        served, part = _percent(used, wanted), _percent(used, whole)
        return (
            output.hours(used),
            part,
            output.hours(row["unmet_gpu_hours"]),
            served,
            output.span(row["wait_p90_s"]),
        )

    form = Form(as_json, as_csv, plot, _served, 3)
    _show(answer, ("GPU_H", "PART%", "UNMET", "SERVED%", "WAIT_90%"), cells, form)
    if not (as_json or as_csv or plot) and (even := _jain(answer)) is not None:
        output.line(f"Jain's index: {even} %")


@report.command("budget")
@click.option("--since", type=PAST, help="Periods that end after that: 90d (ago), or 2027-03-01.")
@click.option("--until", type=PAST, help="Periods that begin before that; default: now.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all columns as CSV.")
@json_option
@api_command
def budget_(app: App, as_json: bool, as_csv: bool, since: float | None, until: float | None) -> None:
    """How each budget was used, period by period; the latest 14 of each are kept.

    HOURS is the amount that the queues' document gives now, with what was carried over, granted and set aside in the
    period; LEFT is less than 0 where more was used.
    """
    from mesos_gpu.api.spec.usage import Budgets, BudgetStanding

    every = app.client().call("GET", "/v1/budgets", Budgets, {"past": "true"})["budgets"]
    first, last = since or 0.0, float("inf") if until is None else until
    periods = [each for each in every if each["ends"] > first and each["begins"] < last]
    if as_json:
        output.document({"budgets": periods})
    elif as_csv:
        names = list(BudgetStanding.__annotations__)
        _print_csv(names, [[dict(each)[name] for name in names] for each in periods])
    else:
        heads = ("FROM", "QUEUE", "USER", "HOURS", "USED", "USED%", "LEFT")
        rows = [_period(each) for each in periods]
        fit = Fit(cut=("USER",), leave=(), names=("USER",), paths=("QUEUE",))
        output.table(heads, rows, empty="No budget has a period then.", fit=fit)


def _period(each: "BudgetStanding") -> tuple[object, ...]:
    total = each["gpu_hours"] + each["carried_hours"] + each["granted_hours"]
    used = output.hours(each["used_hours"]), each["used_percent"], output.hours(each["left_hours"])
    return _day(each["begins"]), each["queue"], each["user"], output.hours(total), *used


def _jain(answer: "Usage") -> int | None:
    used = [int(row["gpu_hours"] * _MILLI) for row in answer["rows"]]
    wanted = [int((row["gpu_hours"] + row["unmet_gpu_hours"]) * _MILLI) for row in answer["rows"]]
    return jain_percent(used, wanted)


def _answer(app: App, asked: Mapping[str, Any], *, waits: bool = False) -> "Usage":
    from mesos_gpu.api.spec.usage import Usage

    query = {name: value for name, value in asked.items() if value is not None and name != "by"}
    query["by"] = ",".join("owner" if name == _USER else name for name in asked["by"] or ("queue",))
    return app.client().call("GET", "/v1/usage", Usage, {**query, **({"waits": "true"} if waits else {})})


def _show(
    answer: "Usage",
    headers: Sequence[str],
    cells: Callable[["UsageRow"], tuple[object, ...]],
    form: Form,
) -> None:
    if form.as_json:
        output.document(answer)
        return
    if form.as_csv:
        _csv(answer)
        return
    if form.plot:
        _plot(answer, headers[form.column], cells, form)
        return
    by_time = any(row["period"] is not None for row in answer["rows"])
    heads = (*(("FROM",) if by_time else ()), *(name.upper() for name in answer["by"]), *headers)
    body = [(*_whose(answer, row), *cells(row)) for row in answer["rows"]]
    groups = {name.upper() for name in answer["by"]}
    cut, paths = tuple(groups - {"QUEUE"}) or ("FROM",), tuple(groups & {"QUEUE"})
    output.table(heads, body, empty=_NOTHING, fit=Fit(cut=cut, leave=(), names=cut, paths=paths))


def _whose(answer: "Usage", row: "UsageRow") -> tuple[object, ...]:
    """What a row is of: the period that it is of, if it is of one, and what it is grouped by."""
    when = () if row["period"] is None else (_day(row["period"]),)
    return (*when, *(_of(row, _FIELDS[name]) for name in answer["by"]))


def _plot(
    answer: "Usage", header: str, cells: Callable[["UsageRow"], tuple[object, ...]], form: Form
) -> None:
    from mesos_gpu.cli.records.plot import bars

    unicode = "utf" in (sys.stdout.encoding or "").lower()
    rows = [
        (
            output.clean(" ".join(str(each or "-") for each in _whose(answer, row))),
            form.amount(row),
            _words(cells(row)[form.column]),
        )
        for row in answer["rows"]
    ]
    output.line(header if rows else _NOTHING)
    for text in bars(rows, unicode=unicode):
        output.line(text)


def _words(cell: object) -> str:
    """A figure as a table has it."""
    return "-" if cell is None else f"{cell:g}" if isinstance(cell, float) else str(cell)


def _served(row: "UsageRow") -> float:
    return _percent(row["gpu_hours"], row["gpu_hours"] + row["unmet_gpu_hours"]) or 0.0


def _csv(answer: "Usage") -> None:
    from mesos_gpu.api.spec.usage import UsageRow

    names = [name for name in UsageRow.__annotations__ if name not in _FIELDS.values()]
    names = [*(_FIELDS[name] for name in answer["by"]), *names]
    _print_csv(names, [[_of(row, name) for name in names] for row in answer["rows"]])


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
