"""When a task wrote what: notes of how large its streams were when, for whom reads them later.

A task writes to its files itself, and nothing stands between. So what is known is their size at each look, some times
a second, of which one a second at most is noted.
"""

import os
import time
from collections.abc import Callable
from typing import Final

from isolator.host.sandbox import Sandbox
from mesos_gpu.wire.mesos.cuts import MAX_TIMES, TIMES, thinned, time_line

NOTE_S: Final = 1.0


class LogTimes:
    """The file of the notes."""

    def __init__(self, sandbox: Sandbox, clock: Callable[[], float] = time.time) -> None:
        """Begin the file anew, in place of what has its name. `clock`: seconds since the epoch.

        Raises:
            OSError: It cannot be written.
        """
        self._sandbox, self._clock = sandbox, clock
        self._text, self._noted = bytearray(), dict[str, tuple[int, float]]()
        sandbox.put(TIMES, b"")
        self._fd = sandbox.append(TIMES)

    def note(self, stream: str, size: int, *, last: bool = False) -> None:
        """Note how large a stream is, if it has grown; `last`: however lately that was done.

        Raises:
            OSError: The disk is full.
        """
        before, at = self._noted.get(stream, (0, 0.0))
        now = self._clock()
        if size == before or (now - at < NOTE_S and not last):
            return
        self._noted[stream] = (size, now)
        line = time_line(stream, size, now)
        if len(self._text) + len(line) > MAX_TIMES:
            self._text = bytearray(thinned(bytes(self._text)))
            self._sandbox.put(TIMES, bytes(self._text))
            os.close(self._fd)
            self._fd = self._sandbox.append(TIMES)
        os.write(self._fd, line)
        self._text += line

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)
