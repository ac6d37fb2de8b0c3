"""The error that says why a task's command cannot run on this host."""

from mesos_gpu.model.tasks.assignment import Outcome


class NotStarted(Exception):
    """The command cannot run; `outcome` says whose fault that is."""

    def __init__(self, why: str, outcome: Outcome | None = None) -> None:
        """`why` is for the user."""
        super().__init__(why)
        self.outcome = outcome or Outcome()
