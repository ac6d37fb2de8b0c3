"""Prober for many repeated health checks on one thread, with timers and a selector.

An attempt is anything with a file descriptor; those to a TCP port are in this module. Nothing here blocks.
"""

import contextlib
import errno
import heapq
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from mesos_gpu.model.jobs.healthcheck import HealthCheck
from mesos_gpu.policy.apps.healthcheck import Finding, judge, pause_s, timeout_s, unanswered
from mesos_gpu.wire.mesos.checks import MAX_HEAD, request, status_of

READ, WRITE, NOTHING = selectors.EVENT_READ, selectors.EVENT_WRITE, 0
MAX_AT_ONCE: Final = 512  # concurrent attempts, each an open file; others wait
LOOK_S: Final = 0.05  # between polls of running attempts for their deadline and for silent ends
#: Errors for lack of this process' own resources: they say nothing of a task, and must not kill it.
_OURS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.EAGAIN}
)
_CHUNK: Final = 16384
Prove = Callable[[socket.socket], None]


class Attempt(Protocol):
    """A running attempt of a check."""

    wants: int  # READ, WRITE or NOTHING: readiness of its file to wait for
    looks: bool  # whether `go_on` must also be called every LOOK_S

    def fileno(self) -> int:
        """Return the descriptor of its file, which never changes."""

    def go_on(self) -> Finding | None:
        """Continue without waiting. Return the result, or None if the attempt is not over.

        Raises:
            OSError, ValueError: The attempt has failed.
        """

    def close(self) -> None:
        """End the attempt if it is not over, and free its resources."""


@dataclass(slots=True, eq=False)
class _Job:
    """A check that the prober repeats, with its attempt if one is running."""

    check: HealthCheck
    begin: Callable[[], Attempt]
    report: Callable[[Finding], None]
    attempt: Attempt | None = None
    registered: int = NOTHING  # readiness for which the selector watches the attempt's file
    deadline: float = 0.0  # of the attempt, on the monotonic clock
    gone: bool = False  # whether the check was removed


class Prober:
    """Repeats checks until they are removed. Methods may be called from any thread.

    Args:
        spread: Function that returns numbers below 1, which desynchronize checks; by default random ones.
    """

    def __init__(self, spread: Callable[[], float] | None = None) -> None:
        self._spread = spread or _chance
        self._selector = selectors.DefaultSelector()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._bell, READ)
        self._orders: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, _Job]] = []  # of next attempts
        self._counter = 0
        self._jobs: dict[Hashable, _Job] = {}
        self._waiting: deque[_Job] = deque()
        self._under_way: set[_Job] = set()
        self._look_at = 0.0
        self._stopping = self._ended = False
        # Guards `_ended`, so that the eventfd is not written after it was closed.
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)
        self._thread.start()

    def add(
        self,
        key: Hashable,
        check: HealthCheck,
        first_s: float,
        begin: Callable[[], Attempt],
        report: Callable[[Finding], None],
    ) -> None:
        """Add a check; it replaces one with that key.

        Args:
            key: Key for its removal.
            check: Interval, timeout and other settings of the check.
            first_s: Seconds to the first attempt; up to a second is added.
            begin: Function that starts an attempt without waiting; an OSError means that the attempt has failed.
            report: Callback on the prober's thread with the result of each attempt.
        """
        job = _Job(check, begin, report)
        late_s = first_s + self._spread() * min(pause_s(check), 1.0)
        at = time.monotonic() + late_s

        def order() -> None:
            self._drop(key)
            self._jobs[key] = job
            self._at(at, job)

        self._order(order)

    def remove(self, key: Hashable) -> None:
        """Remove a check; one report may still arrive. Harmless for an unknown key."""
        self._order(lambda: self._drop(key))

    def stop(self) -> None:
        """End all attempts and the thread; there are no reports afterwards."""
        self._stopping = True
        self._order(lambda: None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # --- private methods below run on the thread, except `_order`

    def _run(self) -> None:
        """Run the thread's loop: events of attempts, orders of other threads, timers."""
        try:
            while not self._stopping:
                for ready, _ in self._selector.select(self._until_next()):
                    if ready.data is None:
                        os.eventfd_read(self._bell)
                    else:
                        self._go_on(ready.data)
                while self._orders:
                    self._orders.popleft()()
                self._turn(time.monotonic())
        finally:
            with self._lock:
                self._ended = True
                os.close(self._bell)
            for job in list(self._under_way):
                self._end(job)
            self._selector.close()

    def _turn(self, now: float) -> None:
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            for job in list(self._under_way):
                self._check_attempt(job, now)
        while self._timers and self._timers[0][0] <= now:
            self._waiting.append(heapq.heappop(self._timers)[2])
        while self._waiting and len(self._under_way) < MAX_AT_ONCE:
            self._begin(self._waiting.popleft())

    def _order(self, order: Callable[[], None]) -> None:
        with self._lock:
            if not self._ended:
                self._orders.append(order)
                os.eventfd_write(self._bell, 1)

    def _until_next(self) -> float | None:
        """Return the seconds until the next timer or poll; None to wait for events only."""
        at = [self._look_at] if self._under_way else []
        at += [self._timers[0][0]] if self._timers else []
        return max(min(at) - time.monotonic(), 0.0) if at else None

    def _at(self, when: float, job: _Job) -> None:
        self._counter += 1
        heapq.heappush(self._timers, (when, self._counter, job))

    def _drop(self, key: Hashable) -> None:
        job = self._jobs.pop(key, None)
        if job is not None:
            job.gone = True
            self._end(job)

    def _begin(self, job: _Job) -> None:
        if job.gone or self._stopping:
            return
        job.deadline = time.monotonic() + timeout_s(job.check)
        try:
            job.attempt = job.begin()
        except OSError as error:
            self._tell(job, _failed(error))
            return
        self._under_way.add(job)
        self._go_on(job)

    def _check_attempt(self, job: _Job, now: float) -> None:
        if now >= job.deadline:
            self._end(job)
            self._tell(job, Finding(False, f"no answer in {timeout_s(job.check):g} s"))
        elif job.attempt is not None and job.attempt.looks:
            self._go_on(job)

    def _go_on(self, job: _Job) -> None:
        attempt = job.attempt
        if attempt is None:
            return
        try:
            finding = attempt.go_on()
        except (OSError, ValueError) as error:
            finding = _failed(error)
        if finding is None:
            self._listen(job, attempt)
        else:
            self._end(job)
            self._tell(job, finding)

    def _listen(self, job: _Job, attempt: Attempt) -> None:
        if attempt.wants == job.registered:
            return
        if not job.registered:
            self._selector.register(attempt.fileno(), attempt.wants, job)
        elif not attempt.wants:
            self._selector.unregister(attempt.fileno())
        else:
            self._selector.modify(attempt.fileno(), attempt.wants, job)
        job.registered = attempt.wants

    def _tell(self, job: _Job, finding: Finding) -> None:
        wait_s = pause_s(job.check) * (1.0 - 0.05 * self._spread())
        self._at(time.monotonic() + wait_s, job)
        if not self._stopping:
            job.report(finding)

    def _end(self, job: _Job) -> None:
        attempt = job.attempt
        if attempt is None:
            return
        if job.registered:
            self._selector.unregister(attempt.fileno())
        job.attempt, job.registered = None, NOTHING
        self._under_way.discard(job)
        attempt.close()


class Dial:
    """`Attempt` to connect to a TCP port; a connection is all that is checked.

    Args:
        ip: IPv4 or IPv6 address; not a name, as a lookup may take for ever.
        port: Port of the task.
        prove: Called with the connected socket before anything is sent; raises OSError if another process than the
            task's is at the other end.

    Raises:
        OSError: The connection is refused at once.
    """

    looks = False

    def __init__(self, ip: str, port: int, prove: Prove = lambda _: None) -> None:
        self.wants = WRITE
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        number = self._socket.connect_ex((ip, port))
        if number not in (0, errno.EINPROGRESS):
            self._socket.close()
            raise OSError(number, os.strerror(number))
        self._file = self._socket.fileno()
        self._begun, self._connected, self._prove = False, False, prove

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._file

    def go_on(self) -> Finding | None:
        """Connect, then check the answer."""
        if (
            not self._begun
        ):  # before the first event, SO_ERROR cannot tell a pending connection from an established one
            self._begun = True
            return None
        if not self._connected:
            number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                raise OSError(number, os.strerror(number))
            self._connected = True
            self._prove(self._socket)
            self._reached()
        return self._talk()

    def _reached(self) -> None:
        """Handle the established connection; for subclasses."""

    def _talk(self) -> Finding | None:
        return Finding(True)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class HttpGet(Dial):
    """`Attempt` to get the status of an HTTP answer; the body is not read.

    Args:
        ip: IPv4 or IPv6 address.
        port: Port of the task.
        check: Settings of the check.
        host: Value of the Host header.
        tls: Whether to use TLS, with any certificate.
        prove: Check of the peer, as for `Dial`.
    """

    def __init__(
        self,
        ip: str,
        port: int,
        check: HealthCheck,
        *,
        host: str,
        tls: bool,
        prove: Prove = lambda _: None,
    ) -> None:
        super().__init__(ip, port, prove)
        self._check, self._tls = check, tls
        self._unsent = request(host, port, check.path)
        self._heard = b""
        self._greeting = tls

    def _reached(self) -> None:
        if self._tls:
            self._socket = _tls_context().wrap_socket(self._socket, do_handshake_on_connect=False)

    def _talk(self) -> Finding | None:
        try:
            return self._converse()
        except BlockingIOError:
            self.wants = WRITE if self._unsent and not self._greeting else READ
        except OSError as error:  # an error of TLS; executors without TLS need not import its module
            if type(error).__name__ not in ("SSLWantReadError", "SSLWantWriteError"):
                raise
            self.wants = READ if type(error).__name__ == "SSLWantReadError" else WRITE
        return None

    def _converse(self) -> Finding | None:
        if self._greeting:
            self._socket.do_handshake()  # type: ignore[attr-defined]
            self._greeting = False
        while self._unsent:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        data = self._socket.recv(_CHUNK)  # once, so that an endless answer cannot block the thread
        self._heard += data
        finding = self._judged(closed=not data)
        if finding is None and len(self._heard) > MAX_HEAD:
            raise ValueError(f"no answer in {MAX_HEAD} bytes")
        self.wants = READ
        return finding

    def _judged(self, *, closed: bool) -> Finding | None:
        """Return the result for the data received so far; None to receive more. `closed`: whether there is no more."""
        ignore = self._check.ignore_http_1xx
        status, interim = status_of(self._heard)
        if status is not None:
            return judge(status, ignore_1xx=ignore)
        return unanswered("closed without an answer", interim=interim, ignore_1xx=ignore) if closed else None


def dial(check: HealthCheck, ip: str, host: str, port: int, prove: Prove = lambda _: None) -> Attempt:
    """Return an attempt for a check by HTTP, HTTPS or TCP.

    Raises:
        OSError: See `Dial`.
    """
    if check.protocol.is_http:
        tls = check.protocol.value.endswith("HTTPS")
        return HttpGet(ip, port, check, host=host, tls=tls, prove=prove)
    return Dial(ip, port, prove)


_contexts: Final[list[Any]] = []


def _tls_context() -> Any:
    """Return a context that accepts any certificate, as Marathon and Mesos do (curl -k): only the answer is checked."""
    if not _contexts:
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with contextlib.suppress(ssl.SSLError):  # a libssl without security levels needs no change
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
        _contexts.append(context)
    return _contexts[0]


def _failed(error: Exception) -> Finding:
    words = (error.strerror if isinstance(error, OSError) else None) or str(error) or repr(error)
    ours = isinstance(error, OSError) and error.errno in _OURS
    return Finding(None if ours else False, words)


def _chance() -> float:
    """Return a random number below 1 without the module random, whose import costs an executor 5 ms."""
    return os.urandom(1)[0] / 256
