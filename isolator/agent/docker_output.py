"""Output of a container from the Docker Engine: frames of both streams, in one connection."""

import os
import threading
import time
from collections.abc import Callable
from typing import Final

from isolator.agent.http import HttpConnection, Response

_PIECE: Final = 1 << 16
# time after the end of a stream at which a container that still runs belongs to a restarted engine
_RESTART_S: Final = 2.0


class Output:
    """Output streams of an attached container; connects at once.

    Frames have the format "Stream format" of the engine's /containers/{id}/attach: one byte for the stream (1
    stdout, 2 stderr), three of zero, the length in four (big-endian), and that many bytes.

    Args:
        connect: Function that connects to the stream.
        running: Function that returns whether the container runs; called after a stream's end.
    """

    def __init__(
        self, connect: Callable[[], tuple[HttpConnection, Response]], running: Callable[[], bool]
    ) -> None:
        self._connect, self._running = connect, running
        self._lock = threading.Lock()
        self._copies, self._closed = False, threading.Event()
        self._connection, self._answer = connect()

    def copy(self, stdout_fd: int, stderr_fd: int) -> None:
        """Write both streams to two files until the container ends, or `close`.

        After a restart of the engine it attaches again; output that the container wrote meanwhile may be
        lost, as stderr's file says then.

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
        """End `copy`, which may run in another thread, or keep it from starting."""
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
        return b""  # the engine is gone, which counts as the end of the stream


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
