"""`mesos-gpu reserve list`."""

from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.bookings.commands import amount, moment
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show as show_list
from mesos_gpu.model.bookings.booking import BookingState
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from mesos_gpu.api.spec.cluster.bookings import Booking

_BOOKINGS: Final[Listing["Booking", "Booking"]] = Listing(
    columns=(
        Col("ID", lambda each: each["id"], wide=True),
        Col("NAME", lambda each: each["name"]),
        Col("QUEUE", lambda each: each["queue"]),
        Col("GPUS", amount, lambda each: each["gpus"] * each["nodes"]),
        Col("BEGINS", lambda each: moment(each, each["begins"]), lambda each: each["begins"]),
        Col("FOR", lambda each: output.span(each["for_s"]), lambda each: each["for_s"]),
        Col("REPEAT", lambda each: None if each["repeat"] == "none" else each["repeat"], telling=True),
        Col("STATE", lambda each: each["state"]),
        Col("USERS", lambda each: " ".join(each["users"]) or None, telling=True),
        Col("ZONE", lambda each: each["zone"], wide=True),
        Col("POOL", lambda each: each["pool"], wide=True),
        Col("BY", lambda each: each["by"] or None, wide=True),
        Col("NODES", lambda each: " ".join(place["node"] for place in each["places"]) or None, wide=True),
        Col("MESSAGE", lambda each: each["message"], wide=True),
    ),
    id=lambda each: each["name"],
    rows=lambda each: (each,),
    filters={
        By.NAME: lambda each: (each["name"],),
        By.QUEUE: lambda each: (each["queue"],),
        By.USER: lambda each: (each["by"],),
        By.STATE: lambda each: (each["state"],),
        By.NODE: lambda each: tuple(place["node"] for place in each["places"]),
    },
    fit=Fit(
        cut=("USERS", "MESSAGE"), leave=("USERS", "FOR", "REPEAT", "STATE", "GPUS", "QUEUE"), paths=("QUEUE",)
    ),
    states=[state.value for state in BookingState],
)


@click.command("list")
@click.option("--all", "past", is_flag=True, help="Also bookings that ended in the last 30 days.")
@list_options(_BOOKINGS)
@api_command
def list_bookings(app: App, past: bool, asked: "Asked[Booking, Booking]") -> None:
    """List bookings, the next first.

    Times are local to the booking's zone.
    """
    from mesos_gpu.api.spec.cluster.bookings import Bookings

    client = app.client()
    empty = "No such booking." if asked.filtered else "No bookings; create one with: mesos-gpu reserve"

    def look() -> "Seen[Booking]":
        query = "?past=true" if past else ""
        answer = client.call("GET", f"/v1/bookings{query}", Bookings)
        return Seen(answer["bookings"], empty, lambda bookings: {**answer, "bookings": bookings})

    show_list(asked, look)
