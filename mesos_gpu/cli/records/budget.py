"""`mesos-gpu budget`: what queues and users may use still, and when it will be empty."""

from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.table import Lines
from mesos_gpu.errors import NotFound
from mesos_gpu.scheduler.options.parse import NumberRange

if TYPE_CHECKING:
    from mesos_gpu.api.spec.usage import BudgetStanding

_HEADERS: Final = ("QUEUE", "USER", "HOURS", "USED", "LEFT", "USED%", "EMPTY", "ENDS")
_FIT: Final = Fit(cut=("USER",), leave=("HOURS", "ENDS"), paths=("QUEUE",))
_NEGATIVE: Final = {"ignore_unknown_options": True}  # -5 is no option, but hours that are refused as such
_HOURS: Final = NumberRange(0, 1e9, min_open=True)
_user_option = click.option("--user", metavar="NAME", help="The budget of this user in it, not that of all.")


@click.group(cls=Lines)
def budget() -> None:
    """Budgets: GPU hours of a period, by what each GPU costs."""


@budget.command("list")
@json_option
@api_command
def list_(app: App, as_json: bool) -> None:
    """List budgets, what is used of each, and when it will be empty at this rate."""
    budgets = _budgets(app)
    if as_json:
        output.document({"budgets": budgets})
        return
    output.table(_HEADERS, [_row(each) for each in budgets], empty="No queue has a budget.", fit=_FIT)


@budget.command()
@click.argument("queue")
@_user_option
@json_option
@api_command
def show(app: App, queue: str, user: str | None, as_json: bool) -> None:
    """Show a budget with its numbers."""
    budgets = _budgets(app)
    standing = next((each for each in budgets if (each["queue"], each["user"]) == (queue, user)), None)
    if standing is None:
        whose = f"user {user} in queue {queue}" if user else f"queue {queue}"
        raise NotFound(f"{whose} has no budget", remedy="see which there are with: mesos-gpu budget list")
    _print(standing, as_json)


@budget.command(context_settings=_NEGATIVE)
@click.argument("queue")
@click.argument("gpu_hours", type=_HOURS)
@_user_option
@json_option
@api_command
def grant(app: App, queue: str, gpu_hours: float, user: str | None, as_json: bool) -> None:
    """Give a budget GPU_HOURS more in its current period; `set-aside` takes hours out."""
    _grant(app, queue, user, gpu_hours, as_json)


@budget.command("set-aside", context_settings=_NEGATIVE)
@click.argument("queue")
@click.argument("gpu_hours", type=_HOURS)
@_user_option
@json_option
@api_command
def set_aside(app: App, queue: str, gpu_hours: float, user: str | None, as_json: bool) -> None:
    """Take GPU_HOURS out of a budget in its current period; a grant gives them back."""
    _grant(app, queue, user, -gpu_hours, as_json)


def _budgets(app: App) -> "list[BudgetStanding]":
    from mesos_gpu.api.spec.usage import Budgets

    return app.client().call("GET", "/v1/budgets", Budgets)["budgets"]


def _grant(app: App, queue: str, user: str | None, gpu_hours: float, as_json: bool) -> None:
    from mesos_gpu.api.spec.usage import BudgetStanding

    body = {"queue": queue, "user": user, "gpu_hours": gpu_hours}
    _print(app.client().call("POST", "/v1/budgets/grants", BudgetStanding, body=body), as_json)


def _print(standing: "BudgetStanding", as_json: bool) -> None:
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


def _row(each: "BudgetStanding") -> tuple[object, ...]:
    total = each["gpu_hours"] + each["carried_hours"] + each["granted_hours"]
    hours = (output.hours(total), output.hours(each["used_hours"]), output.hours(each["left_hours"]))
    return each["queue"], each["user"], *hours, each["used_percent"], _empty(each), _day(each["ends"])


def _empty(each: "BudgetStanding") -> str | None:
    if each["empty"]:
        return "now"
    return None if each["empty_at"] is None else _day(each["empty_at"])


def _day(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%m-%d %H:%M")
