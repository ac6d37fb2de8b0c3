"""Limits of operations that wait for other hosts, so that a host that hangs does not delay other requests.

Each kind of operation has a limit for each host, for each caller, and in all; operations beyond a limit are refused.
Requests that block share the 40 threads of anyio, which a host that hangs would occupy one after the other. Operations
that block therefore run on threads of their kind.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from starlette.requests import Request

from mesos_gpu.api.http.answers import Refusal
from mesos_gpu.api.http.door import REFUSED, Reason

RETRY_S: Final = 1
T = TypeVar("T")


class Asking(Protocol):
    """A client of a host that another thread can cancel."""

    def cancel(self) -> None:
        """Abort the request under way on another thread, and refuse every later request."""

    def close(self) -> None:
        """Free all resources. Called when no request is under way."""


class HostPlaces:
    """Places of one kind of operation, and threads for those that block. May be used by several threads at once."""

    def __init__(self, what: str, *, most: int, of_host: int, of_caller: int) -> None:
        """Set the limits; threads start when they are needed.

        Args:
            what: Kind of operation, as a plural noun for error messages.
            most: Largest number of operations at once.
            of_host: Largest number of operations at once for one host.
            of_caller: Largest number of operations at once for one caller.
        """
        self._what, self._most, self._of_host, self._of_caller = what, most, of_host, of_caller
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=what.replace(" ", "-"))
        self._hosts, self._callers = Counter[str](), Counter[str]()
        self._places: set[Place] = set()
        self._lock = threading.Lock()

    def place(self, host: str, caller: str, asking: Asking | None = None) -> "Place":
        """Reserve the place of one more operation, to be used as a context manager.

        Args:
            host: Name of the host.
            caller: Name of the caller.
            asking: Client of the host, which is cancelled when its request was cancelled, and closed when its thread
                has ended; None if the operation always ends soon.

        Raises:
            Refusal: Too many operations are in progress, of this caller, at this host, or in all.
        """
        with self._lock:
            of_caller, of_host, total = self._callers[caller], self._hosts[host], self._hosts.total()
            if of_caller >= self._of_caller:
                raise self._full(
                    f"{of_caller} {self._what} of {caller} are in progress, the maximum for one caller"
                )
            if of_host >= self._of_host:
                raise self._full(
                    f"{of_host} {self._what} at {host} are in progress, the maximum for one host"
                )
            if total >= self._most:
                raise self._full(f"{total} {self._what} are in progress, the maximum for all callers")
            self._callers[caller] += 1
            self._hosts[host] += 1
            place = Place(self, host, caller, asking)
            self._places.add(place)
        return place

    def close(self) -> None:
        """Cancel all operations and shut the threads down, without waiting for them."""
        with self._lock:
            places = list(self._places)
        for place in places:
            place.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _full(self, what: str) -> Refusal:
        """Return the refusal of an operation beyond a limit."""
        remedy = f"try again in {RETRY_S} s, or end some of them; those at a host that hangs end after some seconds"
        REFUSED.count(Reason.BUSY)
        return Refusal(429, Reason.BUSY.value, what, remedy=remedy, headers={"Retry-After": str(RETRY_S)})

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run a function on one of the threads."""
        return self._pool.submit(work)

    def give_back(self, place: "Place") -> None:
        """Free the place of an operation."""
        with self._lock:
            self._places.discard(place)
            for counter, key in ((self._hosts, place.host), (self._callers, place.caller)):
                counter[key] -= 1
                if not counter[key]:
                    del counter[key]


class Place:
    """Reservation for one operation; freed when the operation and its thread, if any, have ended."""

    def __init__(self, of: HostPlaces, host: str, caller: str, asking: Asking | None) -> None:
        """Hold the reservation; for the arguments see `HostPlaces.place`."""
        self._of, self._asking, self.host, self.caller = of, asking, host, caller
        self._holders, self._lock = 1, threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function that waits for the host on a thread; cancel it if the caller's task is cancelled."""
        with self._lock:
            self._holders += 1
        future = self._of.submit(work)
        future.add_done_callback(lambda _: self._let_go())
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Cancel the client of the host. For any thread."""
        if self._asking is not None:
            self._asking.cancel()

    def _let_go(self) -> None:
        """Release one holder; the last one closes the client and frees the place."""
        with self._lock:
            self._holders -= 1
            if self._holders:
                return
        if self._asking is not None:
            self._asking.close()
        self._of.give_back(self)


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Wait for a result, and cancel the work when the client of the request disconnects.

    Args:
        request: Request whose body has been read.
        work: Work for the request.

    Raises:
        Refusal: The client has disconnected.
    """
    under_way, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        both: set[asyncio.Future[Any]] = {under_way, gone}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not under_way.done():
            raise Refusal(
                400, "gone", "the client disconnected before the answer", remedy="wait for the answer"
            )
        return under_way.result()
    finally:
        for task in (under_way, gone):
            task.cancel()


async def _gone(request: Request) -> None:
    """Wait until the client of a request disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
