"""Detection of checkpoints: a task that has saved its work touches a file in its sandbox, and the executor
reports when.

The file's time is believed within bounds: not before the task's start, not in the future, and not too often.
"""

import time
from collections.abc import Callable
from typing import Final

from isolator.host.sandbox import CHECKPOINT, Sandbox

AGAIN_S: Final = 30.0  # least time between two reports
SLACK_S: Final = 2.0  # tolerance for a file's time: some file systems keep whole seconds


class Checkpoints:
    """Watch of the file by which one task reports checkpoints; to be made right before the task starts.

    Args:
        sandbox: Sandbox directory of the executor.
        below: Path of the task's own sandbox below it.
        say: Function that logs a line.
        now: Clock in seconds since the epoch.
    """

    def __init__(
        self,
        sandbox: str,
        below: tuple[str, ...],
        say: Callable[[str], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._sandbox, self._below, self._say, self._now = sandbox, below, say, now
        self._seen, self._told_at = now() - SLACK_S, 0.0
        self._complained = False

    def look(self, *, last: bool = False) -> float | None:
        """Return how many seconds ago the task saved its work, if that is to be reported now, else None.

        Args:
            last: Whether the task has ended, so that this is the last look.
        """
        now = self._now()
        if not last and 0 <= now - self._told_at < AGAIN_S:
            return None
        try:
            with Sandbox(self._sandbox) as place, place.enter(*self._below) as own:
                at = own.changed_at(CHECKPOINT)
        except OSError:  # the task has not touched the file
            return None
        if at is None or at <= self._seen:
            return None
        if at > now + SLACK_S:
            if not self._complained:
                self._say(f"the time of {CHECKPOINT} in the sandbox is in the future: not reported")
            self._complained = True
            return None
        self._seen, self._told_at = at, now
        return max(now - at, 0.0)
