"""The service that a job has attained: the GPU time of its launches that have ended."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Served:
    """What a queue that orders by attained service keeps of a job.

    Attributes:
        milli_ms: Thousandths of GPUs times milliseconds, of all its launches that have ended.
        waits_since: When it went back to its queue, seconds since the epoch; None: it waits since its submission.
        lifted: It had waited so long that it started anew.
    """

    milli_ms: int = 0
    waits_since: float | None = None
    lifted: bool = False


UNSERVED: Final = Served()
