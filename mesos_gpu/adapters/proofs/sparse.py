"""Rate-limited logging of events that clients can cause without limit: the first few are logged, others counted."""

import logging
import time
from collections.abc import Callable
from typing import Final

MAX: Final = 20  # lines within WITHIN_S
WITHIN_S: Final = 60.0


class SparseLog:
    """Rate-limited warnings of one kind. Not thread-safe.

    Args:
        logger: Logger for the warnings.
        about: Name of what is counted, such as "wrong proofs".
        clock: Function that returns monotonic time in seconds.
    """

    def __init__(
        self, logger: logging.Logger, about: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger, self._about, self._clock = logger, about, clock
        self._since, self._said, self._held = -WITHIN_S, 0, 0

    def warn(self, text: str, *arguments: object) -> None:
        """Log a warning, or count it."""
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
