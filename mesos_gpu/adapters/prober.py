"""Many small attempts, again and again, on one thread: a timer, a selector, and no thread for each.

An attempt is anything with a file descriptor; those to a TCP port are here. Nothing in it waits.
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
MAX_AT_ONCE: Final = 512  # open files; others wait for their turn
LOOK_S: Final = 0.05  # between looks at what is under way: is it late, has it ended without a word
#: What this process lacks says nothing of a task, and must not kill it.
_OURS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.EAGAIN}
)
_CHUNK: Final = 16384
Prove = Callable[[socket.socket], None]


class Attempt(Protocol):
    """An attempt of a check, under way."""

    wants: int  # READ, WRITE or NOTHING: what to wait for on its file
    looks: bool  # whether it is also to be looked at every LOOK_S

    def fileno(self) -> int:
        """The descriptor of its file, which never changes."""

    def go_on(self) -> Finding | None:
        """Do what can be done without waiting; None: it is not over.

        Raises:
            OSError, ValueError: It has failed.
        """

    def close(self) -> None:
        """End it if it is not over, and free all of it."""


@dataclass(slots=True, eq=False)
class _Job:
    check: HealthCheck
    begin: Callable[[], Attempt]
    report: Callable[[Finding], None]
    attempt: Attempt | None = None
    registered: int = NOTHING
    deadline: float = 0.0  # of the attempt, on the monotonic clock
    gone: bool = False  # it is removed


class Prober:
    """Checks that are made until they are removed. Methods may be called from any thread."""

    def __init__(self, spread: Callable[[], float] | None = None) -> None:
        """Start the thread. `spread`: numbers below 1, to keep checks from marching in step; by chance
        if it is not given."""
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
        self._lock = threading.Lock()  # of `_ended`: nobody rings a bell that is closed
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
        """Make a check from now on; one of the same key is replaced.

        Args:
            key: To remove it by.
            check: How often, and how long an attempt may take.
            first_s: From now to the first attempt; up to a second is added.
            begin: Starts an attempt; it must not wait. OSError: it has failed already.
            report: Is called on the prober's thread with what each attempt found.
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
        """No more of it; one report may be on its way. Harmless if it is not there."""
        self._order(lambda: self._drop(key))

    def stop(self) -> None:
        """End all attempts; there is no report after this."""
        self._stopping = True
        self._order(lambda: None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # --- on the thread

    def _run(self) -> None:
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
                self._look(job, now)
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
        """Nothing waits for a place when it is asked, unless something is under way."""
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

    def _look(self, job: _Job, now: float) -> None:
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
    """`Attempt` to connect to a TCP port; that it can be done is all that is asked."""

    looks = False

    def __init__(self, ip: str, port: int, prove: Prove = lambda _: None) -> None:
        """Begin.

        Args:
            ip: An address, IPv4 or IPv6; no name: looking one up may take for ever.
            port: Of the task.
            prove: Called with the connected socket before anything is sent; raises OSError if another process than the
                task's is at the other end.

        Raises:
            OSError: It is refused at once.
        """
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
        """The descriptor of its socket, as `Attempt.fileno` says."""
        return self._file

    def go_on(self) -> Finding | None:
        """Connect, then judge, as `Attempt.go_on` says."""
        if not self._begun:  # it cannot be told from a connection that is made
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
        """Take note that it is connected."""

    def _talk(self) -> Finding | None:
        return Finding(True)

    def close(self) -> None:
        """Close the socket, as `Attempt.close` says."""
        self._socket.close()


class HttpGet(Dial):
    """`Attempt` to get an answer; its body is not waited for."""

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
        """Begin, as `Dial`. `host`: what it is called to its face. With TLS any certificate will do."""
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
        except OSError as error:  # of TLS; its module costs what an executor without TLS need not pay
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
        data = self._socket.recv(_CHUNK)  # once: what comes without an end must not keep the thread
        self._heard += data
        finding = self._judged(closed=not data)
        if finding is None and len(self._heard) > MAX_HEAD:
            raise ValueError(f"no answer in {MAX_HEAD} bytes")
        self.wants = READ
        return finding

    def _judged(self, *, closed: bool) -> Finding | None:
        """What was heard so far means; `closed`: there is no more. None: more is to be heard."""
        ignore = self._check.ignore_http_1xx
        status, interim = status_of(self._heard)
        if status is not None:
            return judge(status, ignore_1xx=ignore)
        return unanswered("closed without an answer", interim=interim, ignore_1xx=ignore) if closed else None


def dial(check: HealthCheck, ip: str, host: str, port: int, prove: Prove = lambda _: None) -> Attempt:
    """The attempt that a check by HTTP, HTTPS or TCP makes, whoever makes it.

    Raises:
        OSError: As `Dial`.
    """
    if check.protocol.is_http:
        tls = check.protocol.value.endswith("HTTPS")
        return HttpGet(ip, port, check, host=host, tls=tls, prove=prove)
    return Dial(ip, port, prove)


_contexts: Final[list[Any]] = []


def _tls_context() -> Any:
    """Whether it answers is asked, not who it is: as Marathon and Mesos (curl -k)."""
    if not _contexts:
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with contextlib.suppress(ssl.SSLError):  # a libssl without levels needs none
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
        _contexts.append(context)
    return _contexts[0]


def _failed(error: Exception) -> Finding:
    words = (error.strerror if isinstance(error, OSError) else None) or str(error) or repr(error)
    ours = isinstance(error, OSError) and error.errno in _OURS
    return Finding(None if ours else False, words)


def _chance() -> float:
    """A random number below 1, as random.random gives, whose module costs an executor 5 ms to import."""
    return os.urandom(1)[0] / 256
