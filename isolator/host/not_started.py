"""The error that says why a task's command cannot run on this host."""

from collections.abc import Mapping
from typing import Final

from mesos_gpu.model.tasks.assignment import Outcome

#: Variable of executors of `mesos-gpu up`, whose refusals name the options of that command. Other agents have none.
TRIAL: Final = "MESOS_GPU_TRIAL"


class NotStarted(Exception):
    """The command cannot run; `outcome` says whose fault that is."""

    def __init__(self, why: str, outcome: Outcome | None = None) -> None:
        """`why` is for the user."""
        super().__init__(why)
        self.outcome = outcome or Outcome()


def is_trial(own: Mapping[str, str]) -> bool:
    """Return whether an executor is of a trial cluster, by its environment."""
    return own.get(TRIAL) == "1"
