"""pymesos' scheduler driver with fixes: its dispatch of events is kept, its IO loop is replaced.

pymesos 0.3.15 as shipped sends TEARDOWN when a callback raises, resubscribes thousands of times a second, never notices
a silent master, and drops calls while it is disconnected. Here one thread keeps one subscription alive, and calls are
sent on the caller's thread over a connection of their own: neither waits for the other.
"""

import contextlib
import http.client
import json
import logging
import os
import random
import select
import selectors
import signal
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from mesos_gpu.adapters import http_parser
from mesos_gpu.adapters.master.stream import (
    REMEDIES,
    EventStream,
    Redirected,
    StreamLost,
    of_tls,
    split_address,
)
from mesos_gpu.errors import Unavailable
from mesos_gpu.wire.body import parsed

logger = logging.getLogger(__name__)

DEFAULT_HEARTBEAT_S: Final = 15.0  # DEFAULT_HEARTBEAT_INTERVAL, src/master/constants.hpp
JOIN_S: Final = 5.0
#: ERROR events after which another SUBSCRIBE would evict a successor or be refused for ever (master.cpp).
REMOVED: Final = "framework has been removed"
FATAL_ERRORS: Final = ("framework failed over", REMOVED)


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Undo changes of signal handlers by an import: pymesos takes SIGINT, or fails outside the main thread."""
    real, here = signal.signal, threading.get_ident()

    def keep(signum: int, handler: Any) -> Any:
        return signal.getsignal(signum) if threading.get_ident() == here else real(signum, handler)

    signal.signal = keep  # type: ignore[assignment]
    try:
        yield
    finally:
        signal.signal = real


def _provide_parser() -> None:
    """Replace http_parser.http, which pymesos imports: its C extension does not build on CPython 3.11 or later."""
    package = ModuleType("http_parser", "Stands for http-parser: `mesos_gpu.adapters.http_parser`.")
    package.http = http_parser  # type: ignore[attr-defined]
    sys.modules.update({"http_parser": package, "http_parser.http": http_parser})


@contextlib.contextmanager
def _of_the_release() -> Iterator[None]:
    """Import pymesos from a release's wheel if it has one, whatever other version is installed."""
    brought = str(Path(__file__).parents[1] / "vendored")
    if not os.path.isdir(brought):
        yield
        return
    sys.path.insert(0, brought)
    try:
        yield
    finally:
        sys.path.remove(brought)


_provide_parser()
try:
    with _signals_kept(), _of_the_release():
        import pymesos
        from pymesos import detector
except ModuleNotFoundError as error:
    if error.name != "pymesos":
        raise
    raise Unavailable(
        "pymesos, the scheduler's driver, is not installed",
        remedy="pip install --no-deps pymesos==0.3.15: its dependencies cannot be installed, see docs/adr/0015",
    ) from error

pymesos.logger.removeHandler(pymesos.handler)  # the application decides where logs go, not pymesos
pymesos.logger.setLevel(logging.NOTSET)
Scheduler: Final = pymesos.Scheduler


class _Detector(detector.MasterDetector):  # type: ignore[misc]
    """Detector of the leader that also waits for a first master to register; pymesos would give up for ever."""

    def start(self) -> None:
        """Connect, and watch from now on."""
        detector.adjust_zk_logging_level()
        self.zk.start()
        detector.DataWatch(self.zk, "", self._look)

    def _look(self, _data: bytes | None, status: object) -> bool:
        """Handle a change of the path. Return whether to be called again, which is until the path exists."""
        if status is not None:
            detector.ChildrenWatch(self.zk, "", self.choose)
            return False
        logger.warning("no master has registered at zk://%s yet: waiting for the first one", self.uri)
        self.agent.onNoMasterDetectedMessage()
        return True


detector.MasterDetector = _Detector


class NotConnected(Unavailable):
    """A call failed because there was no subscription, or no answer came.

    `maybe_delivered` is true if the call may have reached the master. It is never sent twice from here: a second ACCEPT
    of the same offers would report its tasks as dropped while they run.
    """

    def __init__(self, what: str, *, maybe_delivered: bool = False) -> None:
        super().__init__(what, remedy="check that the Mesos master is up; the driver reconnects by itself")
        self.maybe_delivered = maybe_delivered


class CallFailed(Unavailable):
    """The master answered a call with an HTTP status other than 2xx."""

    def __init__(self, kind: str, status: int, body: str) -> None:
        super().__init__(
            f"Mesos refused {kind} with HTTP {status}: {body.strip()}",
            remedy=REMEDIES.get(status, "see the master's log; call again after the next registration"),
        )
        self.status, self.body = status, body


@dataclass(frozen=True, slots=True)
class Timings:
    """Timeouts and pauses of the driver, in seconds.

    Args:
        first_pause_s: Longest pause after the first failure; each further one is `growth` times as long.
        longest_pause_s: Upper bound of all pauses.
        settled_s: Duration of a subscription after which pauses start again from the first; a master that closes each
            stream at once does not reach it.
        answer_s: Timeout for a connection and for the answer to SUBSCRIBE.
        call_s: Timeout for the answer to any other call.
        missed_heartbeats: Number of heartbeat intervals without a byte that end a subscription.
        clock: Function that returns monotonic time.
    """

    first_pause_s: float = 0.2
    growth: float = 1.5
    longest_pause_s: float = 15.0
    settled_s: float = 2.0
    answer_s: float = 10.0
    call_s: float = 10.0
    missed_heartbeats: float = 5.0
    clock: Callable[[], float] = time.monotonic

    def pause_s(self, failures: int) -> float:
        """Return a random pause, between half of the nominal pause and all of it."""
        nominal_s = min(self.longest_pause_s, self.first_pause_s * self.growth ** min(failures, 64))
        return nominal_s * random.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True)
class _Link:
    """Destination of calls while the framework is subscribed."""

    host: str
    port: int
    stream_id: str
    name: str  # name of the master in its certificate


class _TlsConnection(http.client.HTTPConnection):
    """HTTPS connection to an address whose certificate must be for a given name."""

    def __init__(self, link: _Link, tls: ssl.SSLContext, timeout_s: float) -> None:
        super().__init__(link.host, link.port, timeout=timeout_s)
        self._name, self._tls = link.name, tls

    def connect(self) -> None:
        super().connect()
        try:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)
        except OSError:
            self.close()
            raise


def _connection_to(link: _Link, tls: ssl.SSLContext | None, timeout_s: float) -> http.client.HTTPConnection:
    if tls is None:
        return http.client.HTTPConnection(link.host, link.port, timeout=timeout_s)
    return _TlsConnection(link, tls, timeout_s)


def _tell(callback: Callable[..., None], *arguments: Any) -> None:
    try:
        callback(*arguments)
    except Exception:
        logger.exception("a callback of the Mesos driver failed")


class FixedDriver(pymesos.MesosSchedulerDriver):  # type: ignore[misc]  # pymesos has no types
    """pymesos' driver with fixes; `call` sends, and the callbacks of `sched` run on the IO thread.

    `sched.error` is called at most once, when the driver has given up for good: it does not subscribe again. Nothing is
    sent before `start`.

    Args:
        sched: Object with pymesos' callbacks.
        framework: FrameworkInfo, sent unchanged.
        master: `HOST:PORT` of any master, or a zk:// URL.
        principal: Principal for basic authentication; None for none.
        secret: Secret of the principal.
        timings: Timeouts and pauses.
        tls: Context that verifies the master; None for plain HTTP.
    """

    # Attributes of pymesos, guarded by its `_lock` except the flag, which is only ever read outside it:
    _started: bool
    _wakeup_fds: tuple[int, int] | None
    _conn: http.client.HTTPConnection | None
    framework_id: str | None

    def __init__(
        self,
        sched: Any,
        framework: dict[str, Any],
        master: str,
        *,
        principal: str | None,
        secret: str | None,
        timings: Timings,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(
            sched,
            framework,
            master,
            implicit_acknowledgements=False,
            principal=principal,
            secret=secret,
            failover=True,
        )
        self._timings, self._tls = timings, tls
        self._link: _Link | None = None  # set and cleared by the IO thread, read by all
        self._call_lock = threading.Lock()  # guards _conn; the IO thread never takes it
        # Used by the IO thread only:
        self._stream: EventStream | None = None
        self._stale: EventStream | None = None  # a stream that has to end; set by any thread
        self._patience_s = timings.answer_s
        self._subscribed_at: float | None = None

    # --- called from any thread

    @property
    def framework(self) -> dict[str, Any]:
        """The FrameworkInfo as given: its capabilities do not depend on the master's version."""
        return dict(self._framework)

    @property
    def connected(self) -> bool:
        """Whether the framework is subscribed, so that a call may succeed."""
        return self._link is not None

    def start(self) -> None:
        """Start the IO thread; with a zk:// address find the leader first, or raise `NotConnected`."""
        try:
            super().start()
        except Exception as error:
            self.stop()
            raise NotConnected(f"the leading master was not found at {self.master_uri}: {error}") from error

    def stop(self, failover: bool = True) -> None:
        """End the IO thread and close all sockets. With `failover` false, send TEARDOWN first, which may raise."""
        try:
            if not failover:
                self.call("TEARDOWN")
        finally:
            super().stop(failover=True)
            thread = self._io_thread
            if thread is not None and thread is not threading.current_thread():
                thread.join(JOIN_S)
                if thread.is_alive():
                    logger.warning("the IO thread is still in a name lookup; it ends when that does")
            with self._call_lock:
                self._close()

    def change_master(self, new_master: str | None) -> None:
        """Follow another master, or none until the next call."""
        with self._lock:
            self._new_master = new_master
        self._notify()

    def resubscribe(self) -> None:
        """End the current stream, if any, so that the IO thread subscribes again."""
        self._stale = self._stream
        self._notify()

    def call(self, kind: str, **payload: Any) -> None:
        """Send a call once, and wait for its answer. Raises `NotConnected` or `CallFailed`."""
        self._send({"type": kind, "framework_id": {"value": self.framework_id}, **payload})

    def _send(
        self,
        body: dict[str, Any],
        path: str = "/api/v1/scheduler",
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a call on the connection for calls, and wait for its answer."""
        kind, data = body["type"], json.dumps(body).encode()
        with self._call_lock:
            link = self._link
            if link is None:
                raise NotConnected(f"{kind} was not sent: not subscribed to a Mesos master")
            connection = self._connection(link, kind)
            try:
                connection.request(method, path, data, self._headers(link, headers))
                response = connection.getresponse()
                answer = response.read()
            except (OSError, http.client.HTTPException) as error:
                self._close()
                raise NotConnected(f"{kind} was not answered: {error!r}", maybe_delivered=True) from error
        if not 200 <= response.status < 300:
            raise CallFailed(kind, response.status, answer.decode(errors="replace"))

    def get(self, path: str) -> Any:
        """Request a JSON document from the master over a separate connection. Raises `NotConnected` or `CallFailed`."""
        link = self._link
        if link is None:
            raise NotConnected(f"GET {path} was not sent: not subscribed to a Mesos master")
        connection = _connection_to(link, self._tls, self._timings.call_s)
        try:
            connection.request("GET", path, headers=self._headers(link, None))
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NotConnected(f"GET {path} was not answered: {error!r}") from error
        finally:
            connection.close()
        if response.status != HTTPStatus.OK:
            raise CallFailed(f"GET {path}", response.status, answer.decode(errors="replace"))
        try:
            return parsed(answer)
        except ValueError as error:
            raise NotConnected(f"GET {path}: the answer is not JSON") from error

    def _headers(self, link: _Link, more: Mapping[str, str] | None) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Mesos-Stream-Id": link.stream_id}
        if self._basic_credential:
            headers["Authorization"] = self._basic_credential
        return {**headers, **(more or {})}

    def _connection(self, link: _Link, kind: str) -> http.client.HTTPConnection:
        """Return the connection for calls; a new one if the master changed or closed it."""
        old = self._conn
        if old is not None and old.sock is not None and (old.host, old.port) == (link.host, link.port):
            poll = select.poll()
            poll.register(old.sock, select.POLLIN)
            if not poll.poll(0):  # readable without a request means closed
                return old
        self._close()
        new = _connection_to(link, self._tls, self._timings.call_s)
        try:
            new.connect()
        except OSError as error:
            raise NotConnected(f"{kind} was not sent: {link.host}:{link.port}: {error}") from error
        self._conn = new
        return new

    # --- called on the IO thread

    def _run(self) -> None:
        try:
            self._keep_subscribed()
        except BaseException as error:  # any failure must be reported to the owner
            logger.exception("the IO thread of the Mesos driver died")
            self._give_up(f"the thread that reads the events of Mesos died: {error!r}")
        finally:
            with self._lock:
                self._started = False
                fds, self._wakeup_fds = self._wakeup_fds, None
            for fd in fds or ():
                os.close(fd)

    def _keep_subscribed(self) -> None:
        """Run subscriptions one after another, with pauses after failures, until the driver stops."""
        failures, leader = 0, None
        while self._goes_on():
            home = self._new_master
            if home is None:
                self._pause(None)
                continue
            master = leader or home
            reason, leader = self._session(master, home, failures)
            if not self._goes_on():
                return
            since = self._subscribed_at
            settled = since is not None and self._timings.clock() - since >= self._timings.settled_s
            failures = 0 if settled else failures + 1
            pause_s = self._timings.pause_s(failures)
            logger.warning("Mesos master %s: %s; trying again in %.1f s", master, reason, pause_s)
            self._pause(pause_s)

    def _goes_on(self) -> bool:
        return self._started

    def _session(self, master: str, home: str, attempt: int) -> tuple[str, str | None]:
        """Run one subscription from connect to end. Return why it ended, and the leader that the master named."""
        self._master, self._patience_s, self._subscribed_at = master, self._timings.answer_s, None
        try:
            self._stream = EventStream(master, self.gen_request(), attempt, self._tls)
            self._follow(self._stream, home)
        except Redirected as redirect:
            return f"{redirect} leads", str(redirect)
        except ssl.SSLError as error:
            return of_tls(error), None
        except (OSError, StreamLost) as error:
            return str(error), None
        except ValueError as error:
            return f"invalid address or answer: {error}", None
        finally:
            self._disconnect()
        return "the leading master changed, or a new subscription was requested", None

    def _follow(self, stream: EventStream, home: str) -> None:
        """Process events until the stream fails, the driver stops, or another master is to be followed."""
        now = self._timings.clock
        heard_at, wakeup = now(), self._wakeup_fd()
        with selectors.PollSelector() as selector:
            selector.register(wakeup, selectors.EVENT_READ)
            selector.register(stream, stream.wanted)
            while self._started and self._new_master == home and self._stale is not stream:
                left_s = heard_at + self._patience_s - now()
                ready = {key.fileobj: mask for key, mask in selector.select(max(left_s, 0))}
                if wakeup in ready:
                    os.read(wakeup, 4096)
                mask = ready.get(stream, 0)
                if not mask and left_s <= 0:
                    raise StreamLost(f"no data for {self._patience_s:g} s")
                if mask & selectors.EVENT_WRITE:
                    stream.write()
                    selector.modify(stream, stream.wanted)
                if mask & selectors.EVENT_READ:
                    heard_at = now()
                    for event in stream.read():
                        self.process_event(event)
                    selector.modify(stream, stream.wanted)

    def _pause(self, pause_s: float | None) -> None:
        """Sleep, unless `stop` or `change_master` wakes this thread."""
        wakeup = self._wakeup_fd()
        with selectors.PollSelector() as selector:
            selector.register(wakeup, selectors.EVENT_READ)
            if selector.select(pause_s):
                os.read(wakeup, 4096)

    def _wakeup_fd(self) -> int:
        assert self._wakeup_fds is not None, "it is there while the IO thread runs"
        return self._wakeup_fds[0]

    def _disconnect(self) -> None:
        was_linked, self._link = self._link is not None, None
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if was_linked and self._started:
            _tell(self.sched.disconnected, self)

    def _give_up(self, message: str) -> None:
        self._link, self._started = None, False
        _tell(self.sched.error, self, message)

    def process_event(self, event: dict[str, Any]) -> None:
        """Dispatch an event. An event that cannot be handled ends the stream: the next subscription repeats it."""
        try:
            super().process_event(event)
        except StreamLost:
            raise
        except Exception as error:
            logger.exception("an event of Mesos could not be handled")
            raise StreamLost(f"the event {event.get('type')} could not be handled: {error!r}") from error

    def on_subscribed(self, info: dict[str, Any]) -> None:
        """Enable calls, then report the subscription; the heartbeat's interval sets the longest accepted silence."""
        assert self._stream is not None
        reregistered = self.framework_id is not None
        self.framework_id = info["framework_id"]["value"]
        interval_s = float(info.get("heartbeat_interval_seconds", DEFAULT_HEARTBEAT_S))
        self._patience_s = interval_s * self._timings.missed_heartbeats
        self._subscribed_at = self._timings.clock()
        self._link = _Link(*self._stream.peer, self._stream.stream_id or "", self._stream.name)
        hostname, port = split_address(self._master)
        master_info = {"hostname": hostname, "port": port, "scheme": "http" if self._tls is None else "https"}
        if reregistered:
            self.sched.reregistered(self, master_info)
        else:
            self.sched.registered(self, {"value": self.framework_id}, master_info)

    def on_failure(self, failure: dict[str, Any]) -> None:
        """Report that an agent or an executor ended; `status` is optional in the protocol (-1 if not given)."""
        if "executor_id" in failure:
            status = failure.get("status", -1)
            self.sched.executorLost(self, failure["executor_id"], failure.get("agent_id", {}), status)
        else:
            self.sched.slaveLost(self, failure["agent_id"])

    def on_error(self, event: dict[str, Any]) -> None:
        """End the subscription after an ERROR event; after some errors the driver must not subscribe again."""
        message = str(event["message"])
        if any(fatal in message.lower() for fatal in FATAL_ERRORS):
            logger.error("Mesos: %s; not subscribing again", message)
            self._give_up(message)
        raise StreamLost(f"ERROR: {message}")
