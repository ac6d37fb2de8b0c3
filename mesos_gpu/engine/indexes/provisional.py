"""Provisional nodes of bookings."""

from dataclasses import dataclass, field
from math import inf
from typing import Final

from mesos_gpu.model.bookings.booking import Place

SEEN_AHEAD_S: Final = 10.0  # masters answer within two or three seconds


@dataclass(slots=True)
class Provisional:
    """Provisional nodes: what bookings without nodes would get now, by the bookings and running jobs.

    Attributes:
        places: Places by booking; no job starts there that could not leave in time.
        next_at: Time at which the next booking needs something, in seconds since the epoch.
    """

    places: dict[str, tuple[Place, ...]] = field(default_factory=dict)
    next_at: float = inf

    def is_soon(self, now: float) -> bool:
        """Return whether nodes may have to be chosen soon, so that offers must be requested from the master.

        Args:
            now: Time, in seconds since the epoch.
        """
        return self.next_at - now <= SEEN_AHEAD_S
