"""`mesos-gpu reserve`: bookings of GPUs for a queue for given times."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from urllib.parse import quote
from zoneinfo import ZoneInfo

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.bookings.zones import local_zone
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.types import DEADLINE, DURATION
from mesos_gpu.model.bookings.booking import Charge, Repeat
from mesos_gpu.model.words import counted

if TYPE_CHECKING:
    from mesos_gpu.api.spec.cluster.bookings import Booking

_F = TypeVar("_F", bound=Callable[..., Any])
_MODULE: Final = "mesos_gpu.cli.bookings.commands"


class _Reserve(Table):
    table: ClassVar = {
        "list": ("mesos_gpu.cli.bookings.listing:list_bookings", "List bookings, the next first."),
        "show": (_MODULE, "Show a booking and its next times."),
        "move": (_MODULE, "Move a booking or change it; options that are not given stay."),
        "cancel": (_MODULE, "Cancel bookings; jobs that run on them are ended with notice."),
    }


_OPTIONS: Final = (
    click.option("--gpus", type=click.IntRange(1, 1024), metavar="N", help="GPUs on each node."),
    click.option("--nodes", type=click.IntRange(1, 10_000), metavar="N", help="Number of nodes; default: 1."),
    click.option("--model", "models", multiple=True, metavar="MODEL",
        help="GPU model; may be repeated to accept several models; default: any."),
    click.option("--from", "begins", metavar="TIME",
        help="Begin: 2026-12-01T09:00, 'Tue 09:00', 'tomorrow 9:00', 14:30 or now; local time of --zone, or with "
        "an offset such as +01:00."),
    click.option("--for", "lasts_s", type=DURATION, metavar="DURATION",
        help="Duration of each occurrence, such as 4h."),
    click.option("--queue", metavar="PATH", help="Queue whose jobs may use the booking, with all queues below it."),
    click.option("--users", metavar="NAME,...",
        help="Users whose jobs may use the booking; default: all users of the queue."),
    click.option("--repeat", type=click.Choice([choice.value for choice in Repeat]), help="Repetition; default: once."),
    click.option("--until", metavar="DAY", help="Last local day on which an occurrence may begin, such as 2027-01-31."),
    click.option("--zone", metavar="ZONE", help="Time zone, such as Europe/Vienna; default: this machine's."),
    click.option("--pool", metavar="NAME", help="Pool of the nodes; default: the pool named default."),
    click.option("--name", metavar="NAME",
        help="Name of the booking, for `run --booking`; default: last part of the queue's path."),
    click.option("--overrun/--no-overrun", default=None,
        help="Let preemptible jobs continue after its end as borrowers; otherwise they are ended with notice."),
    click.option("--from-guarantee/--no-from-guarantee", default=None,
        help="Take the GPUs out of the queue's guarantee."),
    click.option("--purge-after", "purge_after_s", type=DEADLINE, metavar="DURATION",
        help="Return the booking if it is unused for this long; 0: never; default: 15m."),
    click.option("--charge", type=click.Choice([choice.value for choice in Charge]),
        help="Charge the queue's budget for booked GPUs that no job used; default: none."),
)  # fmt: skip


def _booking_options(function: _F) -> _F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.group(cls=_Reserve, invoke_without_command=True)
@_booking_options
@json_option
@api_command
@click.pass_context
def reserve(ctx: click.Context, /, app: App, as_json: bool, **asked: Any) -> None:
    """Book GPUs for a queue for a period of time.

    Before it begins, only work that ends in time by its time limit, or that is preemptible, starts on its nodes. While
    it lasts, jobs of the queue and of the given users run on it; jobs of `run --booking NAME` run nowhere else. If the
    booking does not fit beside other bookings and guarantees, the nearest times that fit are shown.

    \b
      mesos-gpu reserve --gpus 8 --model A100-80GB --from "Tue 09:00" --for 4h --queue exam
      mesos-gpu run --queue exam --booking exam --gpus 1 -- python3 grade.py
    """
    if ctx.invoked_subcommand is not None:
        return
    for key, flag in (("gpus", "--gpus"), ("begins", "--from"), ("lasts_s", "--for"), ("queue", "--queue")):
        if asked[key] is None:
            raise click.UsageError(
                f"Missing option '{flag}': a booking needs --gpus, --from, --for and --queue."
            )
    asked["name"] = asked["name"] or asked["queue"].rpartition("/")[2]
    asked["zone"] = asked["zone"] or local_zone()
    _print(app, "POST", "/v1/bookings", as_json, _request(asked))


@click.command()
@click.argument("name")
@json_option
@api_command
def show(app: App, name: str, as_json: bool) -> None:
    """Show a booking and its next times."""
    _print(app, "GET", path_of(name), as_json)


@click.command()
@click.argument("booking", metavar="NAME")
@_booking_options
@json_option
@api_command
def move(app: App, booking: str, as_json: bool, **asked: Any) -> None:
    """Move a booking or change it; options that are not given stay.

    A booking that has begun can be extended or shortened; it keeps its nodes.
    """
    request = _request(asked)
    if not request:
        raise click.UsageError("Give an option to change, for example --from 'Wed 09:00'.")
    _print(app, "PUT", path_of(booking), as_json, request)


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@yes_option
@json_option
@api_command
def cancel(app: App, names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Cancel bookings; jobs that run on them are ended with notice."""
    from mesos_gpu.api.spec.cluster.bookings import Booking

    output.ask(f"Cancel {', '.join(names)}, and end the jobs that run there, with notice?", yes=yes)
    gone = []
    for name in names:
        gone.append(app.client().call("DELETE", path_of(name), Booking))
        if not as_json:
            output.line(f"booking {gone[-1]['id']} was cancelled")
    if as_json:
        output.document(gone)


def path_of(name: str) -> str:
    """Return the API path of a booking."""
    return f"/v1/bookings/{quote(name, safe='')}"


def moment(each: "Booking", at: float) -> str:
    """Return a time in the booking's zone, for example Tue 2026-12-01 09:00."""
    return datetime.fromtimestamp(at, ZoneInfo(each["zone"])).strftime("%a %Y-%m-%d %H:%M")


def amount(each: "Booking") -> str:
    """Return the booked GPUs as text, for example 2x8 A100."""
    nodes = f"{each['nodes']}x" if each["nodes"] > 1 else ""
    return f"{nodes}{each['gpus']} {' '.join(each['gpu_model'])}".rstrip()


def _request(asked: dict[str, Any]) -> dict[str, Any]:
    keys = {"begins": "from", "lasts_s": "for_s", "models": "gpu_model"}
    request = {keys.get(name, name): value for name, value in asked.items() if value not in (None, ())}
    if "users" in request:
        request["users"] = [name for name in request["users"].split(",") if name]
    return {key: list(value) if isinstance(value, tuple) else value for key, value in request.items()}


def _print(app: App, verb: str, path: str, as_json: bool, body: dict[str, Any] | None = None) -> None:
    """Send a request about a booking, and print the booking in the answer."""
    from mesos_gpu.api.spec.cluster.bookings import Booking

    booking = app.client().call(verb, path, Booking, body=body)
    if as_json:
        output.document(booking)
        return
    output.pairs(
        [
            ("booking", booking["id"]),
            ("name", booking["name"]),
            ("queue", booking["queue"]),
            ("users", " ".join(booking["users"]) or "all of the queue"),
            ("GPUs", amount(booking)),
            ("pool", booking["pool"]),
            ("begins", f"{moment(booking, booking['begins'])} ({booking['zone']})"),
            ("ends", f"{moment(booking, booking['ends'])}, after {output.span(booking['for_s'])}"),
            ("repeat", booking["repeat"] + (f" until {booking['until']}" if booking["until"] else "")),
            ("then", "preemptible jobs continue" if booking["overrun"] else "jobs are ended with notice"),
            (
                "out of",
                "its queue's guarantee" if booking["from_guarantee"] else "GPUs beyond all guarantees",
            ),
            ("unused", _unused(booking)),
            ("state", booking["state"]),
            ("message", booking["message"]),
            ("nodes", "; ".join(_place(place) for place in booking["places"]) or None),
            ("made", f"{output.stamp(booking['made_at'])}{booking['by'] and ' by ' + booking['by']}"),
            ("times", _times(booking)),
        ]
    )


def _times(each: Any) -> str | None:
    """Return the next times of a booking; None if it is over, or has none within the listed days."""
    coming = () if each["ended_at"] is not None else each["times"][:6]
    return "; ".join(moment(each, time["begins"]) for time in coming) or None


def _place(place: Any) -> str:
    return f"{place['node']} ({counted(len(place['gpus']), 'GPU')})"


def _unused(each: "Booking") -> str:
    after = each["purge_after_s"]
    return f"{f'given back after {output.span(after)}' if after else 'kept'}, charge: {each['charge']}"
