"""Lines of the log that others can cause as often as they like: the first few are written, the others counted."""

import logging
import time
from collections.abc import Callable
from typing import Final

MAX: Final = 20  # in so many seconds:
WITHIN_S: Final = 60.0


class SparseLog:
    """Warnings of one kind. Not for several threads at once."""

    def __init__(
        self, logger: logging.Logger, about: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`about`: what is counted, as "wrong proofs"."""
        self._logger, self._about, self._clock = logger, about, clock
        self._since, self._said, self._held = -WITHIN_S, 0, 0

    def warn(self, text: str, *arguments: object) -> None:
        """Write it, or count it."""
        now = self._clock()
        if now - self._since >= WITHIN_S:
            if self._held:
                self._logger.warning("%d more %s were not written", self._held, self._about)
            self._since, self._said, self._held = now, 0, 0
        if self._said >= MAX:
            self._held += 1
            return
        self._said += 1
        self._logger.warning(text, *arguments)
