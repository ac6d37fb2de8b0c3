"""Bookings of GPUs in advance."""

from dataclasses import dataclass, field

from mesos_gpu.engine.indexes.provisional import Provisional
from mesos_gpu.engine.parts.metadata import DERIVED
from mesos_gpu.model.bookings.booking import Booking


@dataclass(slots=True)
class CalendarPart:
    """Bookings of the state.

    Attributes:
        bookings: Bookings by their ids, also those that ended lately.
        provisional: Nodes that bookings would get now; None if they must be chosen again.
    """

    bookings: dict[str, Booking] = field(default_factory=dict)
    provisional: Provisional | None = field(default=None, compare=False, repr=False, metadata=DERIVED)
