"""What the routes of bookings take and answer, as types."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation, in_query
from mesos_gpu.api.spec.queues import answered, requested
from mesos_gpu.api.spec.schema import declare, one_of, says
from mesos_gpu.api.spec.shapes import Moment
from mesos_gpu.model.bookings.booking import BOOKING_FIELDS, BookingState


class BookingRequest(TypedDict, total=False):
    """What is to be booked. name, queue, gpus, from and for_s are needed; in a change what is left out stays."""


class BookingTime(TypedDict):
    """From when to when a booking is there."""

    begins: Moment
    ends: Moment


class BookingPlace(TypedDict):
    """GPUs of a node that are chosen for a booking."""

    node: str
    gpus: list[str]


class Booking(TypedDict):
    """GPUs that a queue has from one time to another. begins, ends: of its current or next time, or of its last one;
    times: those that touch what was asked for; of one that has ended the last, as long as it lasted."""

    id: str
    name: str
    queue: str
    gpus: int
    nodes: int
    gpu_model: list[str]
    pool: str
    for_s: int
    zone: str
    users: list[str]
    repeat: str
    until: str | None
    overrun: bool
    from_guarantee: bool
    purge_after_s: int
    charge: str
    by: Annotated[str, says(description="the proved name of who made it; empty: nobody was asked")]
    made_at: Moment
    state: Annotated[str, one_of(*BookingState)]
    begins: Moment
    ends: Moment
    last: Annotated[str, says(description="how its time before went")] | None
    message: Annotated[str, says(description="how it stands, in words")]
    places: Annotated[list[BookingPlace], says(description="empty before they are chosen")]
    used_at: Annotated[float, says(description="when a job last held something of it")] | None
    ended_at: float | None
    times: list[BookingTime]


class Bookings(TypedDict):
    """The bookings that one may see, by their begins, and what was asked for."""

    bookings: list[Booking]
    since: Moment
    until: Moment


declare(BookingRequest, requested(BOOKING_FIELDS))
declare(Booking, answered(BOOKING_FIELDS))
_FORM: Final = {
    "name": "exam",
    "queue": "default",
    "gpus": 1,
    "from": "Tue 09:00",
    "for_s": 14400,
    "zone": "UTC",
}
_MOMENT: Final[dict[str, Any]] = {"type": "number", "minimum": 0, "maximum": 1e11}
_WINDOW: Final = (
    in_query("since", _MOMENT, "times that end after this, seconds since the epoch; else now"),
    in_query("until", _MOMENT, "times that begin before this, seconds since the epoch; else 14 days on"),
)
OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/bookings"): Operation(
        "list_bookings",
        "Bookings, and when each is there",
        {200: Bookings},
        query=(*_WINDOW, in_query("past", {"type": "boolean", "default": False}, "ended ones, too")),
    ),
    ("POST", "/v1/bookings"): Operation(
        "make_booking",
        "Book GPUs; 409: it does not fit, and when it would",
        {201: Booking},
        (409,),
        body=BookingRequest,
        example=_FORM,
    ),
    ("GET", "/v1/bookings/{id}"): Operation("show_booking", "A booking", {200: Booking}, query=_WINDOW),
    ("PUT", "/v1/bookings/{id}"): Operation(
        "change_booking",
        "Move a booking, or change it; what is left out stays",
        {200: Booking},
        (409,),
        body=BookingRequest,
        example={"from": "Wed 09:00"},
    ),
    ("DELETE", "/v1/bookings/{id}"): Operation("cancel_booking", "Cancel a booking", {200: Booking}, (409,)),
}
