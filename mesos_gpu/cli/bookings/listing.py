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
        Col("ID", lambda booking: booking["id"], wide=True),
        Col("NAME", lambda booking: booking["name"]),
        Col("QUEUE", lambda booking: booking["queue"]),
        Col("GPUS", amount, lambda booking: booking["gpus"] * booking["nodes"]),
        Col("BEGINS", lambda booking: moment(booking, booking["begins"]), lambda booking: booking["begins"]),
        Col("FOR", lambda booking: output.span(booking["for_s"]), lambda booking: booking["for_s"]),
        Col(
            "REPEAT", lambda booking: None if booking["repeat"] == "none" else booking["repeat"], telling=True
        ),
        Col("STATE", lambda booking: booking["state"]),
        Col("USERS", lambda booking: " ".join(booking["users"]) or None, telling=True),
        Col("ZONE", lambda booking: booking["zone"], wide=True),
        Col("POOL", lambda booking: booking["pool"], wide=True),
        Col("BY", lambda booking: booking["by"] or None, wide=True),
        Col(
            "NODES", lambda booking: " ".join(place["node"] for place in booking["places"]) or None, wide=True
        ),
        Col("MESSAGE", lambda booking: booking["message"], wide=True),
    ),
    id=lambda booking: booking["name"],
    rows=lambda booking: (booking,),
    filters={
        By.NAME: lambda booking: (booking["name"],),
        By.QUEUE: lambda booking: (booking["queue"],),
        By.USER: lambda booking: (booking["by"],),
        By.STATE: lambda booking: (booking["state"],),
        By.NODE: lambda booking: tuple(place["node"] for place in booking["places"]),
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

    def load() -> "Seen[Booking]":
        query = "?past=true" if past else ""
        answer = client.call("GET", f"/v1/bookings{query}", Bookings)
        return Seen(answer["bookings"], empty, lambda bookings: {**answer, "bookings": bookings})

    show_list(asked, load)
