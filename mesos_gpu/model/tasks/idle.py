"""How far a job is on the way from idle GPUs to its end."""

from dataclasses import dataclass
from enum import Enum

from mesos_gpu.model.ids import JobId


class IdleState(Enum):
    """Where a job stands, by what is known of its GPUs."""

    ACTIVE = "active"  # they are at work, or nobody knows
    SUSPECT = "suspect"  # they do nothing
    WARNED = "warned"  # and it was told so
    NOTICE = "notice"  # it is told when it is ended
    RETURNED = "returned"  # it is being ended, or was


@dataclass(frozen=True, slots=True)
class Idleness:
    """What is remembered of a job that was seen idle, or is kept from being ended for it.

    Attributes:
        job_id: Whose.
        launch: The number of its launch that this is of: the next one begins anew.
        state: Where it stands.
        since: Since when, seconds since the epoch.
        idle_ms: How long its GPUs did nothing, milliseconds. Of a job that was warned: up to the warning, and since.
        resumed_ms: How long they have been back at work since, less what they were idle meanwhile.
        known_at: Up to when something is known of them, seconds since the epoch.
        keep_until: Until then it is not ended for it; None: nobody has asked for that.
        kept_by: The name of who has asked; "": it is not known.
    """

    job_id: JobId
    launch: int = 0
    state: IdleState = IdleState.ACTIVE
    since: float = 0.0
    idle_ms: int = 0
    resumed_ms: int = 0
    known_at: float = 0.0
    keep_until: float | None = None
    kept_by: str = ""
