"""The time of day."""

import time


class SystemClock:
    """`Clock` of this host."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()
