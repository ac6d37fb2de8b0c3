"""Names of hosts are looked up in bounded time: the C library's look-up has no deadline, and nothing ends it."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Final, TypeAlias

MAX_AT_ONCE: Final = 32  # also such as nobody waits for any more
#: The addresses of a host's name at a port; OSError: there are none, or they were not told in time.
LookUp: TypeAlias = Callable[[str, int], list[str]]


def look_up(host: str, port: int) -> list[str]:
    """Ask the C library, however long that takes.

    Raises:
        OSError: There is no such host.
    """
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in answers))


class LookUps:
    """Look-ups on threads that end by themselves. For all threads."""

    def __init__(self) -> None:
        """None is under way."""
        self._room = threading.BoundedSemaphore(MAX_AT_ONCE)
        self._waited: set[Future[list[str]]] = set()
        self._lock = threading.Lock()

    def until(self, deadline: float) -> LookUp:
        """What looks up until then, by the monotonic clock, and raises TimeoutError after it."""
        return lambda host, port: self._told(host, port, deadline)

    def interrupt(self) -> None:
        """Let go whoever waits: they are told TimeoutError."""
        with self._lock:
            for each in self._waited:
                each.cancel()

    def _told(self, host: str, port: int, deadline: float) -> list[str]:
        if not self._room.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            raise TimeoutError(f"{MAX_AT_ONCE} look-ups are under way")
        told: Future[list[str]] = Future()
        with self._lock:
            self._waited.add(told)
        try:
            self._begin(host, port, told)
            return told.result(max(deadline - time.monotonic(), 0.0))
        except (CancelledError, TimeoutError):
            raise TimeoutError(f"{host} is not looked up in time") from None
        finally:
            with self._lock:
                self._waited.discard(told)

    def _begin(self, host: str, port: int, told: Future[list[str]]) -> None:
        thread = threading.Thread(target=self._ask, args=(host, port, told), name="look-up", daemon=True)
        try:
            thread.start()
        except BaseException:  # there may be no more threads
            self._room.release()
            raise

    def _ask(self, host: str, port: int, told: Future[list[str]]) -> None:
        try:
            with contextlib.suppress(InvalidStateError):  # nobody waits for it any more
                try:
                    told.set_result(look_up(host, port))
                except (OSError, ValueError) as error:
                    told.set_exception(error)
        finally:
            self._room.release()
