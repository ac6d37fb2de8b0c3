"""The states of a job, in a module of their own so that the command line can import them without `Job`."""

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
        """Whether the state is final."""
        return self in _ENDED


_ENDED: Final = (JobState.FINISHED, JobState.FAILED, JobState.KILLED)
