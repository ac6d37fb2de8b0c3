"""A server on the loopback interface that is a master for schedulers (v1 scheduler API), controlled by a test.

It shows what a real master does too rarely or too slowly: refusals, redirects, silence and incomplete answers.
"""

import contextlib
import json
import queue
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self, TypeVar

FRAMEWORK_ID: Final = "scripted-framework"
E = TypeVar("E")
_HEARTBEAT: Final = {"type": "HEARTBEAT"}


@dataclass(frozen=True, slots=True)
class Stream:
    """The answer 200 to SUBSCRIBE: an event SUBSCRIBED, then `events`, then those of `send`.

    Args:
        events: Events, or the bytes of a record.
        heartbeat_s: Seconds between heartbeats, as SUBSCRIBED announces.
        then_end: Whether to close the stream after `events`.
    """

    events: tuple[Mapping[str, Any] | bytes, ...] = ()
    heartbeat_s: float = 15.0
    then_end: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with a status.

    The connection is closed without notice after a SUBSCRIBE, and after other calls if `close` is set.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    close: bool = False


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer of raw bytes, after which the connection is closed."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """A received call; `at` is its monotonic time in seconds, and names of headers are in lower case."""

    type: str
    body: dict[str, Any]
    headers: dict[str, str]
    at: float


class Inbox:
    """A receiver that records events and can wait for them; `then` is called with each event, and may raise."""

    def __init__(self, then: Callable[[Any], None] = lambda _: None) -> None:
        self.events: list[Any] = []
        self._then, self._changed = then, threading.Condition()

    def __call__(self, event: Any) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()
        self._then(event)

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of a kind so far."""
        with self._changed:
            return [event for event in self.events if isinstance(event, kind)]

    def wait_for(self, kind: type[E], count: int = 1, timeout_s: float = 30.0) -> E:
        """Wait until there are `count` events of a kind, and return the last of these."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.of(kind)) >= count, timeout_s)
            assert arrived, f"no {count} {kind.__name__} in {timeout_s} s: {self.events}"
            return self.of(kind)[count - 1]


class ScriptedMaster:
    """A master that serves from its construction to `close`; any thread may call its methods.

    Args:
        *answers: Answers to the first SUBSCRIBE calls, in order.
        then: Answer to further SUBSCRIBE calls.
        port: Port to listen on, that of an earlier master for a restart; 0 for any free port.
        version: Status and version in the answer to `GET /version`.
        tls: TLS context of the server, or None for plain HTTP.
    """

    def __init__(
        self,
        *answers: Stream | Reply | Raw,
        then: Stream | Reply | Raw | None = None,
        port: int = 0,
        version: tuple[int, str] = (200, "1.11.0"),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.answers, self.then = deque(answers), then or Stream()
        self.version = version
        self.call_answer = Reply(202)
        self.calls_go_on = threading.Event()  # cleared: answers to calls wait
        self.calls_go_on.set()
        self.calls: list[Call] = []
        self._changed = threading.Condition()
        self._streams: list[queue.SimpleQueue[Mapping[str, Any] | None]] = []
        self._sockets: set[socket.socket] = set()
        self._closing = False
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.master = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="scripted-master"
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        """Port of the server on 127.0.0.1."""
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        """Address of the server as HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """End all streams and connections, and stop to listen."""
        self._closing = True
        self._server.shutdown()
        self._thread.join()
        self.drop()
        self._server.server_close()

    def send(self, event: Mapping[str, Any]) -> None:
        """Send an event on every open stream."""
        with self._changed:
            for stream in self._streams:
                stream.put(event)

    def drop(self) -> None:
        """Cut every connection, as when a master is killed."""
        with self._changed:
            for each in self._sockets:
                with contextlib.suppress(OSError):  # the other side was quicker
                    each.shutdown(socket.SHUT_RDWR)
            for stream in self._streams:
                stream.put(None)
        self.calls_go_on.set()

    def of_type(self, kind: str) -> list[Call]:
        """Return the calls of a type so far."""
        with self._changed:
            return [call for call in self.calls if call.type == kind]

    def wait_for(self, kind: str, count: int = 1, timeout_s: float = 30.0) -> Call:
        """Wait until there are `count` calls of a type, and return the last of these."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.of_type(kind)) >= count, timeout_s)
            assert arrived, f"{len(self.of_type(kind))} of {count} {kind} in {timeout_s} s: {self.calls}"
            return self.of_type(kind)[count - 1]

    # --- for the handler

    def note(self, call: Call) -> int:
        """Record a call; return the number of SUBSCRIBE calls so far."""
        with self._changed:
            self.calls.append(call)
            self._changed.notify_all()
            return len(self.of_type("SUBSCRIBE"))

    def next_answer(self) -> Stream | Reply | Raw:
        """Return the next answer to a SUBSCRIBE call."""
        with self._changed:
            return self.answers.popleft() if self.answers else self.then

    def connected(self, sock: socket.socket) -> None:
        """Record a new connection, which is cut at once while the server closes."""
        with self._changed:
            self._sockets.add(sock)
        if self._closing:
            self.drop()

    def disconnected(self, sock: socket.socket) -> None:
        """Forget a connection that ended."""
        with self._changed:
            self._sockets.discard(sock)

    def pump(self, stream: Stream, write: Callable[[Mapping[str, Any] | bytes], None]) -> None:
        """Write SUBSCRIBED and further events until the stream ends."""
        subscribed = {
            "framework_id": {"value": FRAMEWORK_ID},
            "heartbeat_interval_seconds": stream.heartbeat_s,
        }
        feed: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        with self._changed:
            self._streams.append(feed)  # before SUBSCRIBED, after which a test may `send`
        try:
            for event in ({"type": "SUBSCRIBED", "subscribed": subscribed}, *stream.events):
                write(event)
            while not (self._closing or stream.then_end):
                try:
                    event_or_end = feed.get(timeout=stream.heartbeat_s)
                except queue.Empty:
                    event_or_end = _HEARTBEAT
                if event_or_end is None:
                    return
                write(event_or_end)
        finally:
            with self._changed:
                self._streams.remove(feed)


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that close waits for them
    master: ScriptedMaster


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def master(self) -> ScriptedMaster:
        assert isinstance(self.server, _Server)
        return self.server.master

    def setup(self) -> None:
        super().setup()
        self.master.connected(self.connection)

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True  # the other side left, or `drop`

    def finish(self) -> None:
        self.master.disconnected(self.connection)
        try:
            super().finish()
        except OSError:
            self.rfile.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log."""

    def do_GET(self) -> None:
        status, version = self.master.version
        self._reply(Reply(status, json.dumps({"version": version}).encode()))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        number = self.master.note(Call(body["type"], body, headers, time.monotonic()))
        if body["type"] != "SUBSCRIBE":
            self.master.calls_go_on.wait()
            self._reply(self.master.call_answer)
            self.close_connection = self.master.call_answer.close
            return
        self.close_connection = True
        answer = self.master.next_answer()
        if isinstance(answer, Stream):
            self._stream(answer, number)
        elif isinstance(answer, Raw):
            self.wfile.write(answer.data)
        else:
            self._reply(answer)

    def _reply(self, answer: Reply) -> None:
        self.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def _stream(self, answer: Stream, number: int) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Mesos-Stream-Id", f"stream-{number}")
        self.end_headers()
        self.master.pump(answer, self._event)
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, event: Mapping[str, Any] | bytes) -> None:
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        record = b"%d\n%s" % (len(data), data)
        self.wfile.write(b"%x\r\n%s\r\n" % (len(record), record))
