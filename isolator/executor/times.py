"""Times of a task's output: notes of how long its streams were at which time, for readers of its logs.

A task writes to its files itself, with no process between. So only the sizes at each look are known, some
times a second, of which at most one a second is noted.
"""

import os
import time
from collections.abc import Callable
from typing import Final

from isolator.host.sandbox import Sandbox
from mesos_gpu.wire.mesos.cuts import MAX_TIMES, TIMES, thinned, time_line

NOTE_S: Final = 1.0


class LogTimes:
    """File of the notes, started empty in place of an older one.

    Args:
        sandbox: Sandbox of the task.
        clock: Clock in seconds since the epoch.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, sandbox: Sandbox, clock: Callable[[], float] = time.time) -> None:
        self._sandbox, self._clock = sandbox, clock
        self._text, self._noted = bytearray(), dict[str, tuple[int, float]]()
        sandbox.put(TIMES, b"")
        self._fd = sandbox.append(TIMES)

    def note(self, stream: str, size: int, *, last: bool = False) -> None:
        """Note the size of a stream if it has grown.

        Args:
            stream: Name of the stream.
            size: Size in bytes.
            last: Whether to note it even if the last note was less than `NOTE_S` ago.

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
        """Close the file."""
        os.close(self._fd)
