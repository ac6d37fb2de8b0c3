"""`mesos-gpu budget`: remaining GPU hours of queues and users, and when they will be used up."""

import time
from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show as show_list
from mesos_gpu.cli.table import Lines
from mesos_gpu.errors import NotFound
from mesos_gpu.scheduler.options.parse import NumberRange
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from mesos_gpu.api.spec.usage import BudgetStanding
    from mesos_gpu.cli.client import Client

_NEGATIVE: Final = {"ignore_unknown_options": True}  # -5 is an argument, refused with a message about hours
_HOURS: Final = NumberRange(0, 1e9, min_open=True)
_user_option = click.option(
    "--user", metavar="NAME", help="Budget of this user in the queue, instead of the queue's own."
)


@click.group(cls=Lines)
def budget() -> None:
    """Budgets: GPU hours per period, weighted by the cost of GPU models."""


def budget_id(each: "BudgetStanding") -> str:
    """Return the queue of a budget, with its user for a user's budget."""
    return " ".join(filter(None, (each["queue"], each["user"])))


def total_hours(each: "BudgetStanding") -> float:
    """Return the GPU hours of the period, including those carried over, granted and set aside."""
    return each["gpu_hours"] + each["carried_hours"] + each["granted_hours"]


def _empty(each: "BudgetStanding") -> str | None:
    if each["empty"]:
        return "now"
    return None if each["empty_at"] is None else _day(each["empty_at"])


def _empty_at(each: "BudgetStanding") -> float | None:
    return 0.0 if each["empty"] else each["empty_at"]


def _day(at: float) -> str:
    return output.clock(at, time.time())


_BUDGETS: Final[Listing["BudgetStanding", "BudgetStanding"]] = Listing(
    columns=(
        Col("QUEUE", lambda record: record["queue"]),
        Col("USER", lambda record: record["user"]),
        Col("HOURS", lambda record: output.hours(total_hours(record)), total_hours),
        Col("USED", lambda record: output.hours(record["used_hours"]), lambda record: record["used_hours"]),
        Col("LEFT", lambda record: output.hours(record["left_hours"]), lambda record: record["left_hours"]),
        Col("USED%", lambda record: record["used_percent"]),
        Col("NOW", lambda record: record["rate_gpus"], wide=True),
        Col("EMPTY", _empty, _empty_at),
        Col("THEN", lambda record: record["on_empty"], wide=True),
        Col("ENDS", lambda record: _day(record["ends"]), lambda record: record["ends"]),
    ),
    id=budget_id,
    rows=lambda record: (record,),
    filters={By.USER: lambda record: (record["user"] or "",), By.QUEUE: lambda record: (record["queue"],)},
    fit=Fit(cut=("USER",), leave=("HOURS", "ENDS", "LEFT"), paths=("QUEUE",)),
)


@budget.command("list")
@list_options(_BUDGETS)
@api_command
def list_(app: App, asked: "Asked[BudgetStanding, BudgetStanding]") -> None:
    """List budgets with their use, and when they will be used up at the current rate.

    NOW is the number of GPUs, weighted by cost, that are charged to the budget at the moment.
    """
    client, empty = app.client(), "No such budget." if asked.filtered else "No queue has a budget."
    show_list(asked, lambda: Seen(_budgets(client), empty, lambda budgets: {"budgets": budgets}))


@budget.command()
@click.argument("queue")
@_user_option
@json_option
@api_command
def show(app: App, queue: str, user: str | None, as_json: bool) -> None:
    """Show the values of a budget."""
    budgets = _budgets(app.client())
    standing = next(
        (budget for budget in budgets if (budget["queue"], budget["user"]) == (queue, user)), None
    )
    if standing is None:
        whose = f"user {user} in queue {queue}" if user else f"queue {queue}"
        raise NotFound(f"{whose} has no budget", remedy="list budgets with: mesos-gpu budget list")
    _print(standing, as_json)


@budget.command(context_settings=_NEGATIVE)
@click.argument("queue")
@click.argument("gpu_hours", type=_HOURS)
@_user_option
@json_option
@api_command
def grant(app: App, queue: str, gpu_hours: float, user: str | None, as_json: bool) -> None:
    """Add GPU_HOURS to a budget for its current period; `set-aside` removes hours."""
    _grant(app, queue, user, gpu_hours, as_json)


@budget.command("set-aside", context_settings=_NEGATIVE)
@click.argument("queue")
@click.argument("gpu_hours", type=_HOURS)
@_user_option
@json_option
@api_command
def set_aside(app: App, queue: str, gpu_hours: float, user: str | None, as_json: bool) -> None:
    """Remove GPU_HOURS from a budget for its current period; `grant` adds them again."""
    _grant(app, queue, user, -gpu_hours, as_json)


def _budgets(client: "Client") -> "list[BudgetStanding]":
    from mesos_gpu.api.spec.usage import Budgets

    return client.call("GET", "/v1/budgets", Budgets)["budgets"]


def _grant(app: App, queue: str, user: str | None, gpu_hours: float, as_json: bool) -> None:
    from mesos_gpu.api.spec.usage import BudgetStanding

    body = {"queue": queue, "user": user, "gpu_hours": gpu_hours}
    _print(app.client().call("POST", "/v1/budgets/grants", BudgetStanding, body=body), as_json)


def _print(standing: "BudgetStanding", as_json: bool) -> None:
    """Print the values of a budget."""
    if as_json:
        output.document(standing)
        return
    output.pairs(
        [
            ("queue", standing["queue"]),
            ("user", standing["user"]),
            ("period", f"{output.stamp(standing['begins'])} to {output.stamp(standing['ends'])}"),
            ("GPU hours", output.hours(standing["gpu_hours"])),
            ("carried over", output.hours(standing["carried_hours"])),
            ("granted", output.hours(standing["granted_hours"])),
            ("used", f"{output.hours(standing['used_hours'])}, {standing['used_percent']} %"),
            ("left", output.hours(standing["left_hours"])),
            ("now", f"{standing['rate_gpus']:g} {'GPU' if standing['rate_gpus'] == 1 else 'GPUs'}, by cost"),
            ("empty", _empty(standing)),
            ("then", standing["on_empty"]),
            ("next period", output.stamp(standing["next_period"])),
        ]
    )
