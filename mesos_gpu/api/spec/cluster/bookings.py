"""Types of requests and answers about bookings, and their operations."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation, in_query
from mesos_gpu.api.spec.queues import answered, requested
from mesos_gpu.api.spec.schema import declare, one_of, says
from mesos_gpu.api.spec.shapes import Moment
from mesos_gpu.model.bookings.booking import BOOKING_FIELDS, BookingState


class BookingRequest(TypedDict, total=False):
    """A booking to create or change. A new one needs name, queue, gpus, from and for_s; in a change, fields that are
    left out stay.
    """


class BookingTime(TypedDict):
    """Beginning and end of one occurrence of a booking."""

    begins: Moment
    ends: Moment


class BookingPlace(TypedDict):
    """GPUs of a node that are chosen for a booking."""

    node: str
    gpus: list[str]


class Booking(TypedDict):
    """GPUs that are booked for a queue. begins, ends: of the current or next occurrence, else of the last one;
    times: occurrences that overlap the requested period, for an ended booking only the last one, until its end.
    """

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
    by: Annotated[str, says(description="authenticated name of its creator; empty: authentication was off")]
    made_at: Moment
    state: Annotated[str, one_of(*BookingState)]
    begins: Moment
    ends: Moment
    last: Annotated[str, says(description="outcome of the previous occurrence")] | None
    message: Annotated[str, says(description="its state in words")]
    places: Annotated[list[BookingPlace], says(description="chosen GPUs; empty before the choice")]
    used_at: Annotated[float, says(description="when a job last used it")] | None
    ended_at: float | None
    times: list[BookingTime]


class Bookings(TypedDict):
    """The visible bookings, by their beginnings, and the requested period."""

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
    in_query("since", _MOMENT, "occurrences that end after this, seconds since the epoch; default: now"),
    in_query(
        "until", _MOMENT, "occurrences that begin before this, seconds since the epoch; default: in 14 days"
    ),
)
OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/bookings"): Operation(
        "list_bookings",
        "List bookings and their occurrences",
        {200: Bookings},
        query=(*_WINDOW, in_query("past", {"type": "boolean", "default": False}, "include ended bookings")),
    ),
    ("POST", "/v1/bookings"): Operation(
        "make_booking",
        "Book GPUs; 409: the booking does not fit; the message says when it would",
        {201: Booking},
        (409,),
        body=BookingRequest,
        example=_FORM,
    ),
    ("GET", "/v1/bookings/{id}"): Operation("show_booking", "Show a booking", {200: Booking}, query=_WINDOW),
    ("PUT", "/v1/bookings/{id}"): Operation(
        "change_booking",
        "Move or change a booking; fields that are left out stay",
        {200: Booking},
        (409,),
        body=BookingRequest,
        example={"from": "Wed 09:00"},
    ),
    ("DELETE", "/v1/bookings/{id}"): Operation("cancel_booking", "Cancel a booking", {200: Booking}, (409,)),
}
