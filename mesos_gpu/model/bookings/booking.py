"""Bookings of GPUs for a queue, once or repeatedly."""

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.jobs.fields import (
    NAME,
    QUEUE,
    QUEUE_FORM,
    Flag,
    Models,
    OneOf,
    Text,
    Whole,
    asks,
    declared,
)
from mesos_gpu.model.tenancy import DAY, DEFAULT_POOL, NAME_FORM, ZONE, Names

DAY_S: Final = 86_400
AHEAD_DAYS: Final = 366  # how far ahead bookings may begin, and repeated ones are checked for conflicts
MAX_S: Final = 28 * DAY_S
MAX_BOOKINGS: Final = 500  # bookings that have not ended
USER: Final = re.compile(r"[^\s,/*?]{1,256}")


class Repeat(Enum):
    """Interval of a repeated booking, in local time across changes of the clock."""

    NONE = "none"
    DAILY = "daily"
    WEEKDAYS = "weekdays"  # from Monday to Friday
    WEEKLY = "weekly"


class Charge(Enum):
    """Charge to the queue for GPUs that were ready for a booking and unused."""

    NONE = "none"
    IDLE = "idle"


class BookingState(Enum):
    """State of a booking in its current or next occurrence."""

    BOOKED = "booked"  # no nodes chosen yet
    PREPARING = "preparing"  # nodes are chosen, and jobs on them get notice to end
    ACTIVE = "active"
    OVER = "over"  # its last occurrence has passed
    RETURNED = "returned"  # given back, as it was not used
    CANCELLED = "cancelled"
    FAILED = "failed"  # no nodes were free for it

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self not in (BookingState.BOOKED, BookingState.PREPARING, BookingState.ACTIVE)

    @property
    def has_nodes(self) -> bool:
        """Whether nodes are chosen, or are being looked for."""
        return self in (BookingState.PREPARING, BookingState.ACTIVE)


@dataclass(frozen=True, slots=True)
class BookingSpec:
    """A request for a booking.

    Attributes:
        name: Name by which jobs select the booking.
        queue: Queue whose jobs may use it, with all queues below.
        gpus: GPUs per node.
        begins: Begin of the first occurrence: local time of `zone` such as 2026-12-01T09:00, with an offset if that
            hour occurs twice and the later one is meant.
        lasts_s: Length of each occurrence.
        zone: Time zone of the IANA database.
        nodes: Number of nodes.
        models: GPU models; empty for any, but one model per node.
        pool: Pool of the nodes.
        users: Users whose jobs may use it; empty for all users of the queue.
        repeat: Interval of repetition.
        until: Last local day on which an occurrence may begin; "" for no end.
        overrun: Whether preemptible jobs may continue after its end, as borrowers.
        from_guarantee: Whether the GPUs are taken from the guarantee of its queue.
        purge_after_s: Time without a job after which an occurrence is given back; 0 for never.
        charge: Charge for unused GPUs.
    """

    name: str = asks("", Text(NAME, NAME_FORM))
    queue: str = asks("", Text(QUEUE, QUEUE_FORM))
    gpus: int = asks(0, Whole(1, 1024), about="GPUs per node")
    begins: str = asks("", Text(re.compile(r"[\x20-\x7e]{1,64}"), "a time"), key="from",
        about="local time of the zone: 2026-12-01T09:00, Tue 09:00, tomorrow 9:00, 14:30; with offset too")  # fmt: skip
    lasts_s: int = asks(0, Whole(60, MAX_S), key="for_s")
    zone: str = asks("UTC", ZONE)
    nodes: int = asks(1, Whole(1, 10_000))
    models: tuple[str, ...] = asks((), Models(), key="gpu_model")
    pool: str = asks(DEFAULT_POOL, Text(NAME, NAME_FORM))
    users: tuple[str, ...] = asks(
        (), Names(USER, "a user's name"), about="users whose jobs may use it; empty for all"
    )
    repeat: Repeat = asks(Repeat.NONE, OneOf(Repeat))
    until: str = asks("", DAY, about="last local day on which an occurrence may begin")
    overrun: bool = asks(False, Flag(), about="preemptible jobs may continue after its end, as borrowers")
    from_guarantee: bool = asks(False, Flag(), about="the GPUs are taken from the guarantee of its queue")
    purge_after_s: int = asks(
        900, Whole(0, MAX_S), about="time without a job after which it is given back; 0 for never"
    )
    charge: Charge = asks(Charge.NONE, OneOf(Charge), about="charge for GPUs that were ready and unused")

    @property
    def gpus_in_all(self) -> int:
        """Number of GPUs on all nodes."""
        return self.gpus * self.nodes

    @property
    def words(self) -> str:
        """Size of the booking as text for people, such as "2 x 4 A100 GPUs"."""
        models = f" {' or '.join(self.models)}" if self.models else ""
        nodes = f"{self.nodes} x " if self.nodes > 1 else ""
        return f"{nodes}{self.gpus}{models} {'GPU' if self.gpus == 1 else 'GPUs'}"

    def is_for(self, queue: str, user: str) -> bool:
        """Return whether jobs of a queue that are accounted to a user may use the booking."""
        below = queue == self.queue or queue.startswith(f"{self.queue}/")
        return below and (not self.users or user in self.users)


BOOKING_FIELDS: Final = declared(BookingSpec, ())


@dataclass(frozen=True, slots=True)
class Place:
    """GPUs of one node that are reserved for a booking."""

    agent_id: AgentId
    hostname: str
    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True)
class Booking:
    """A booking with its current or next occurrence. Times are seconds since the epoch.

    Attributes:
        id: Id of the booking.
        spec: Request of the booking.
        by: Proved name of its creator; "" if the scheduler did not authenticate.
        made_at: Time of creation.
        day: Local day of the current or next occurrence, such as 2026-12-01.
        begins, ends: Bounds of that occurrence.
        state: State of that occurrence.
        places: Reserved GPUs; empty if none are chosen yet or none are free.
        used_at: Last time in this occurrence at which a job held some of the GPUs; None if no job did.
        used_gpus: Number of its GPUs that entitled jobs hold.
        counted_at: Time since which `used_gpus` holds.
        idle_gpu_ms: Unused GPUs times milliseconds, up to `counted_at`.
        last: Outcome of the previous occurrence; None for the first.
        told: Whether its owner was notified that nodes are lacking.
        message: State as text for people.
        ended_at: Time at which the booking ended; None if it has not.
    """

    id: str
    spec: BookingSpec
    by: str
    made_at: float
    day: str
    begins: int
    ends: int
    state: BookingState = BookingState.BOOKED
    places: tuple[Place, ...] = ()
    used_at: float | None = None
    used_gpus: int = 0
    counted_at: float = 0.0
    idle_gpu_ms: int = 0
    last: BookingState | None = None
    told: bool = False
    message: str = ""
    ended_at: float | None = None

    @property
    def is_active(self) -> bool:
        """Whether its current occurrence is running."""
        return self.state is BookingState.ACTIVE

    def overlaps(self, other: "Booking") -> bool:
        """Return whether the current or next occurrences of two bookings overlap in time."""
        return self.begins < other.ends and other.begins < self.ends

    def is_called(self, name: str) -> bool:
        """Return whether a job selects this booking by a name or id."""
        return name in (self.id, self.spec.name)

    def renewed(self, day: str, begins: int, ends: int) -> "Booking":
        """Return the booking with another occurrence, for which no nodes are chosen yet."""
        return replace(
            self, day=day, begins=begins, ends=ends, state=BookingState.BOOKED, places=(), used_at=None, used_gpus=0,
            counted_at=0.0, idle_gpu_ms=0, told=False,
        )  # fmt: skip

    @property
    def gpus(self) -> tuple[GpuId, ...]:
        """All GPUs that are reserved for it."""
        return tuple([gpu for place in self.places for gpu in place.gpus])
