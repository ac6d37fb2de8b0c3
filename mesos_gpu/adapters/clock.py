"""The system clock."""

import time


class SystemClock:
    """`Clock` that returns this host's time."""

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return time.time()
