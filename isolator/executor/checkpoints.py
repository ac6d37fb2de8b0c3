"""A task tells that it has kept its work: it touches a file in its sandbox, and the executor sees when.

What it tells is believed within bounds: not of the time before its start, not of the future, and not all the time.
"""

import time
from collections.abc import Callable
from typing import Final

from isolator.host.sandbox import CHECKPOINT, Sandbox

AGAIN_S: Final = 30.0  # from one report to the next, at least
SLACK_S: Final = 2.0  # that a file's time may be off: some file systems keep whole seconds


class Checkpoints:
    """Looks for what a task tells of them."""

    def __init__(
        self,
        sandbox: str,
        below: tuple[str, ...],
        say: Callable[[str], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        """The task is about to start.

        Args:
            sandbox: The executor's directory.
            below: Where the task's own is, there.
            say: Takes lines for the executor's log.
            now: Seconds since the epoch.
        """
        self._sandbox, self._below, self._say, self._now = sandbox, below, say, now
        self._seen, self._told_at = now() - SLACK_S, 0.0
        self._complained = False

    def look(self, *, last: bool = False) -> float | None:
        """How long ago it kept its work, seconds, if that is to be told now; None: there is nothing new. `last`: it has
        ended, and is not looked at again."""
        now = self._now()
        if not last and 0 <= now - self._told_at < AGAIN_S:
            return None
        try:
            with Sandbox(self._sandbox) as place, place.enter(*self._below) as own:
                at = own.changed_at(CHECKPOINT)
        except OSError:  # it has told nothing
            return None
        if at is None or at <= self._seen:
            return None
        if at > now + SLACK_S:
            if not self._complained:
                self._say(f"{CHECKPOINT} in the sandbox is of the future: that is not told")
            self._complained = True
            return None
        self._seen, self._told_at = at, now
        return max(now - at, 0.0)
