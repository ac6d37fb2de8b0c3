"""Idleness of a job: its progress from idle GPUs to its end."""

from dataclasses import dataclass
from enum import Enum

from mesos_gpu.model.ids import JobId


class IdleState(Enum):
    """Stage of a job, by what is known of its GPUs."""

    ACTIVE = "active"  # its GPUs work, or their use is unknown
    SUSPECT = "suspect"  # its GPUs are idle
    WARNED = "warned"  # idle, and the job was warned
    NOTICE = "notice"  # the job has notice of its end
    RETURNED = "returned"  # the job is being ended, or has ended


@dataclass(frozen=True, slots=True)
class Idleness:
    """Record of a job that was seen idle, or that a user protects from being ended as idle.

    Attributes:
        job_id: Id of the job.
        launch: Number of the launch to which the record applies; it restarts with the next launch.
        state: Stage of the job.
        since: Begin of the stage, seconds since the epoch.
        idle_ms: Idle time in milliseconds; after a warning, the time before and after it.
        resumed_ms: Time at work since then, less idle time in between, in milliseconds.
        known_at: Time up to which the use of its GPUs is known, seconds since the epoch.
        keep_until: End of the protection, seconds since the epoch; None without protection.
        kept_by: Name of the user who asked for the protection; "" if not known.
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
