"""What a container writes, as the Docker Engine hands it over: frames of both streams, in one connection."""

import os
import threading
import time
from collections.abc import Callable
from typing import Final

from isolator.agent.http import HttpConnection, Response

_PIECE: Final = 1 << 16
_RESTART_S: Final = 2.0  # a container that still runs so long after its stream's end is another engine's now


class Output:
    """An attached container's two streams.

    Frames are as of "Stream format" in the engine's /containers/{id}/attach: one byte that tells the stream (1
    stdout, 2 stderr), three of zero, the length in four (big-endian), and that many bytes.
    """

    def __init__(
        self, connect: Callable[[], tuple[HttpConnection, Response]], running: Callable[[], bool]
    ) -> None:
        """Connect now. `running`: whether the container runs; asked after a stream's end."""
        self._connect, self._running = connect, running
        self._lock = threading.Lock()
        self._copies, self._closed = False, threading.Event()
        self._connection, self._answer = connect()

    def copy(self, stdout_fd: int, stderr_fd: int) -> None:
        """Write both streams to two files until the container ends, or `close`. After a restart of the engine it
        attaches again; what the container wrote meanwhile may be lost, and stderr's file says so.

        Raises:
            OSError: A file cannot be written.
            MesosGpuError: The engine does not come back.
        """
        with self._lock:
            self._copies = not self._closed.is_set()
        files = {1: stdout_fd, 2: stderr_fd}
        while not self._closed.is_set():
            try:
                _copy_frames(self._answer, files)
            finally:
                self._connection.close()
            if not self._runs_on():
                return
            _write(stderr_fd, b"\n[mesos-gpu] the Docker Engine was away: output may be missing here\n")
            connection, self._answer = self._connect()
            with self._lock:
                self._connection = connection
                if self._closed.is_set():
                    connection.close()

    def close(self) -> None:
        """End `copy`, which may be in another thread, or make that it is never needed."""
        with self._lock:
            self._closed.set()
            self._connection.interrupt()
            if not self._copies:
                self._connection.close()

    def _runs_on(self) -> bool:
        deadline = time.monotonic() + _RESTART_S
        while not self._closed.is_set() and self._running():
            if time.monotonic() > deadline:
                return True
            self._closed.wait(0.05)
        return False


def _copy_frames(answer: Response, files: dict[int, int]) -> None:
    while len(head := _read(answer, 8)) == 8:
        left = int.from_bytes(head[4:], "big")
        while left and (data := _read(answer, min(left, _PIECE))):
            _write(files[2 if head[0] == 2 else 1], data)
            left -= len(data)


def _read(answer: Response, most: int) -> bytes:
    try:
        return answer.read(most)
    except ConnectionError:
        return b""  # the engine is gone: as its end of the stream


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
