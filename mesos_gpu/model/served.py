"""Attained service of a job: the GPU time of its launches that have ended."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Served:
    """Attained service of one job, for queues that order jobs by it.

    Attributes:
        milli_ms: Thousandths of GPUs times milliseconds, summed over its ended launches.
        waits_since: Time of its last return to the queue, seconds since the epoch; None if it waits since submission.
        lifted: Whether its attained service was reset because it had waited too long.
    """

    milli_ms: int = 0
    waits_since: float | None = None
    lifted: bool = False


UNSERVED: Final = Served()
