"""Error for a task whose command cannot run on this host."""

from collections.abc import Mapping
from typing import Final

from mesos_gpu.model.tasks.assignment import Outcome

#: Variable of executors of `mesos-gpu up`, in which refusals name options of that command; other agents do
#: not set it.
TRIAL: Final = "MESOS_GPU_TRIAL"
#: Reason of a start that was given up because the task was killed.
KILLED_BEFORE_START: Final = "killed before it was started"


class NotStarted(Exception):
    """Error: the command cannot run.

    Args:
        why: Reason for the user.
        outcome: Outcome, with the side at fault.
    """

    def __init__(self, why: str, outcome: Outcome | None = None) -> None:
        super().__init__(why)
        self.outcome = outcome or Outcome()


def is_trial(own: Mapping[str, str]) -> bool:
    """Return whether an executor belongs to a trial cluster, by its environment."""
    return own.get(TRIAL) == "1"
