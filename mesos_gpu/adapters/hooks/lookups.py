"""Lookups of host names with a deadline: the C library's lookup has none, and cannot be cancelled."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Final, TypeAlias

MAX_AT_ONCE: Final = 32  # including lookups whose callers have given up
#: Returns the addresses of a host at a port; raises OSError if there are none, or the lookup takes too long.
LookUp: TypeAlias = Callable[[str, int], list[str]]


def look_up(host: str, port: int) -> list[str]:
    """Look a host up with the C library, however long that takes.

    Raises:
        OSError: The host does not exist.
    """
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in answers))


class LookUps:
    """Concurrent lookups on threads that end by themselves. Thread-safe."""

    def __init__(self) -> None:
        self._room = threading.BoundedSemaphore(MAX_AT_ONCE)
        self._waited: set[Future[list[str]]] = set()
        self._lock = threading.Lock()

    def until(self, deadline: float) -> LookUp:
        """Return a lookup function that raises TimeoutError at a deadline of the monotonic clock."""
        return lambda host, port: self._look_up_until(host, port, deadline)

    def interrupt(self) -> None:
        """Raise TimeoutError in all callers that wait for a lookup."""
        with self._lock:
            for lookup in self._waited:
                lookup.cancel()

    def _look_up_until(self, host: str, port: int, deadline: float) -> list[str]:
        if not self._room.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            raise TimeoutError(f"{MAX_AT_ONCE} look-ups are under way")
        answer: Future[list[str]] = Future()
        with self._lock:
            self._waited.add(answer)
        try:
            self._start_thread(host, port, answer)
            return answer.result(max(deadline - time.monotonic(), 0.0))
        except (CancelledError, TimeoutError):
            raise TimeoutError(f"{host} is not looked up in time") from None
        finally:
            with self._lock:
                self._waited.discard(answer)

    def _start_thread(self, host: str, port: int, answer: Future[list[str]]) -> None:
        thread = threading.Thread(
            target=self._resolve, args=(host, port, answer), name="look-up", daemon=True
        )
        try:
            thread.start()
        except BaseException:  # e.g. no more threads can be started
            self._room.release()
            raise

    def _resolve(self, host: str, port: int, answer: Future[list[str]]) -> None:
        try:
            with contextlib.suppress(InvalidStateError):  # the caller has given up
                try:
                    answer.set_result(look_up(host, port))
                except (OSError, ValueError) as error:
                    answer.set_exception(error)
        finally:
            self._room.release()
