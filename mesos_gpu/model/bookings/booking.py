"""GPUs that are booked for a queue, from one time to another, once or again and again."""

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
AHEAD_DAYS: Final = (
    366  # so far ahead may something be booked, and is what is repeated held against the others
)
MAX_S: Final = 28 * DAY_S
MAX_BOOKINGS: Final = 500  # that have not ended
USER: Final = re.compile(r"[^\s,/*?]{1,256}")


class Repeat(Enum):
    """How often it is there. In local time, whatever the clocks do."""

    NONE = "none"
    DAILY = "daily"
    WEEKDAYS = "weekdays"  # from Monday to Friday
    WEEKLY = "weekly"


class Charge(Enum):
    """What its queue pays for GPUs that stood ready for it and that nobody used."""

    NONE = "none"
    IDLE = "idle"


class BookingState(Enum):
    """How far it is, in its current or next time."""

    BOOKED = "booked"  # no nodes are chosen yet
    PREPARING = "preparing"  # nodes are chosen, and what is in its way is told to end
    ACTIVE = "active"
    OVER = "over"  # its last time has passed
    RETURNED = "returned"  # nobody used it
    CANCELLED = "cancelled"
    FAILED = "failed"  # there were no nodes for it

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self not in (BookingState.BOOKED, BookingState.PREPARING, BookingState.ACTIVE)

    @property
    def has_nodes(self) -> bool:
        """Whether nodes are chosen, or looked for, now."""
        return self in (BookingState.PREPARING, BookingState.ACTIVE)


@dataclass(frozen=True, slots=True)
class BookingSpec:
    """What is booked.

    Attributes:
        name: Jobs ask for it by that.
        queue: For whose jobs it is, and those of queues below it.
        gpus: On each node.
        begins: When its first time begins: local time of `zone` as 2026-12-01T09:00; with an offset where that hour
            is there twice and the later one is meant.
        lasts_s: How long each time lasts.
        zone: Of IANA's database.
        nodes: How many nodes.
        models: Of the GPUs; empty: any, on each node of one model.
        pool: Of the nodes.
        users: Whose jobs may use it; empty: all that the queue has.
        repeat: How often.
        until: The last local day on which it may begin; "": no last one.
        overrun: Whether preemptible jobs go on after its end, as those that borrow.
        from_guarantee: Whether it is taken out of what its queue is guaranteed.
        purge_after_s: After so long without a job it is given back; 0: never.
        charge: What is paid for GPUs that nobody used.
    """

    name: str = asks("", Text(NAME, NAME_FORM))
    queue: str = asks("", Text(QUEUE, QUEUE_FORM))
    gpus: int = asks(0, Whole(1, 1024), about="on each node")
    begins: str = asks("", Text(re.compile(r"[\x20-\x7e]{1,64}"), "a time"), key="from",
        about="local time of the zone: 2026-12-01T09:00, Tue 09:00, tomorrow 9:00, 14:30; or an offset")  # fmt: skip
    lasts_s: int = asks(0, Whole(60, MAX_S), key="for_s")
    zone: str = asks("UTC", ZONE)
    nodes: int = asks(1, Whole(1, 10_000))
    models: tuple[str, ...] = asks((), Models(), key="gpu_model")
    pool: str = asks(DEFAULT_POOL, Text(NAME, NAME_FORM))
    users: tuple[str, ...] = asks((), Names(USER, "a user's name"), about="whose jobs may use it; none: all")
    repeat: Repeat = asks(Repeat.NONE, OneOf(Repeat))
    until: str = asks("", DAY, about="the last local day on which it may begin")
    overrun: bool = asks(False, Flag(), about="preemptible jobs go on after its end, as those that borrow")
    from_guarantee: bool = asks(False, Flag(), about="it is taken out of what its queue is guaranteed")
    purge_after_s: int = asks(900, Whole(0, MAX_S), about="unused for so long it is given back; 0: never")
    charge: Charge = asks(Charge.NONE, OneOf(Charge), about="for GPUs that stood ready and that nobody used")

    @property
    def gpus_in_all(self) -> int:
        """GPUs of all nodes."""
        return self.gpus * self.nodes

    @property
    def words(self) -> str:
        """How much it is, for people."""
        of = f" {' or '.join(self.models)}" if self.models else ""
        each = f"{self.nodes} x " if self.nodes > 1 else ""
        return f"{each}{self.gpus}{of} {'GPU' if self.gpus == 1 else 'GPUs'}"

    def is_for(self, queue: str, user: str) -> bool:
        """Whether jobs of that queue, which are put down to that user, may use it."""
        below = queue == self.queue or queue.startswith(f"{self.queue}/")
        return below and (not self.users or user in self.users)


BOOKING_FIELDS: Final = declared(BookingSpec, ())


@dataclass(frozen=True, slots=True)
class Place:
    """GPUs of one node that are chosen for a booking."""

    agent_id: AgentId
    hostname: str
    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True)
class Booking:
    """A booking as it is kept. Times are seconds since the epoch.

    Attributes:
        id: Its own.
        spec: What is booked.
        by: The proved name of who made it; "": nobody was asked.
        made_at: When.
        day: The local day of its current or next time, as 2026-12-01.
        begins, ends: That time.
        state: How far it is.
        places: What is chosen for it; empty: nothing yet, or nothing is to be had.
        used_at: When a job last held something of it in this time; None: none did.
        used_gpus: How many of its GPUs jobs hold that may.
        counted_at: Since when.
        idle_gpu_ms: GPUs that stood ready and that nobody used, times milliseconds, up to then.
        last: How its time before this one went; None: this is the first.
        told: Whether its owner was told that nodes are lacking.
        message: How it stands, in words.
        ended_at: When it ended, whatever came after.
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
        """Whether its time has begun, and is not over."""
        return self.state is BookingState.ACTIVE

    def overlaps(self, other: "Booking") -> bool:
        """Whether both are there at some moment of their current or next times."""
        return self.begins < other.ends and other.begins < self.ends

    def is_called(self, name: str) -> bool:
        """Whether a job means it."""
        return name in (self.id, self.spec.name)

    def renewed(self, day: str, begins: int, ends: int) -> "Booking":
        """The booking with another time, for which nothing is chosen yet."""
        return replace(
            self, day=day, begins=begins, ends=ends, state=BookingState.BOOKED, places=(), used_at=None, used_gpus=0,
            counted_at=0.0, idle_gpu_ms=0, told=False,
        )  # fmt: skip

    @property
    def gpus(self) -> tuple[GpuId, ...]:
        """All that are chosen for it."""
        return tuple([gpu for place in self.places for gpu in place.gpus])
