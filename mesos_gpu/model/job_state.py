"""The states of a job, by themselves: the command line reads them in answers without the rest of a job."""

from enum import Enum
from typing import Final


class JobState(Enum):
    """State of a job as a user sees it."""

    PENDING = "pending"  # waits for resources, or for its next attempt
    STARTING = "starting"  # launched; its command does not run yet
    RUNNING = "running"
    UNREACHABLE = "unreachable"  # its agent is cut off; it may still run there
    KILLING = "killing"
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self in _ENDED


_ENDED: Final = (JobState.FINISHED, JobState.FAILED, JobState.KILLED)
