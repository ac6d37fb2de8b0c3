"""Limits of time, bytes and connections for each client of the HTTP server.

uvicorn bounds the pause between requests only. Without these a client that sends or reads a byte now and then, or
nothing, holds a connection for ever, and a few thousand of them all descriptors of the process.
"""

import asyncio
import itertools
import logging
import os
import resource
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr

from mesos_gpu.access.proofs import is_listed
from mesos_gpu.access.rate import Limits, Waiters, network_of
from mesos_gpu.adapters.proofs import peers
from mesos_gpu.adapters.proofs.proxies import Proxies
from mesos_gpu.adapters.tls.peer import Peer, extension, peer_of
from mesos_gpu.api.http import door
from mesos_gpu.api.http.answers import Refusal, error_answer
from mesos_gpu.api.http.door import BODY_S, REFUSED, Reason

KEEP_S: Final = 5  # idle time between two requests
HEAD_S: Final = 10.0  # from the connection, or the first byte of a further request, to the end of its head
READ_S: Final = 20.0  # in which a client must read at least `MIN_READ` bytes of an answer
MIN_READ: Final = 1 << 14  # bytes
MAX_BODY: Final = 1 << 22  # bytes, with the frames of its chunks; `requests.MAX_BODY` is smaller
MAX_APPS: Final = 1 << 26  # the same for apps and groups; `requests.MAX_APPS` is smaller
_OF_APPS: Final = (b"/v2/apps", b"/v2/groups")  # path prefixes
MAX_PIPELINED: Final = 16  # requests sent on a connection before the previous one is answered
MAX_CONNECTIONS: Final = 1000
_ONE_READ: Final = 1 << 18  # bytes that asyncio reads at once; they may include more than the head
_KEPT: Final = 128  # descriptors reserved for the state, the master, agents and logs
_AT_ONCE: Final = struct.pack("ii", 1, 0)  # struct linger: on, for no time
_SAY_S: Final = 10.0  # between two equal log lines
logger = logging.getLogger("mesos_gpu.api")


def connections() -> int:
    """Raise the limit of descriptors as far as possible; return how many connections it allows at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or soft < hard):
        soft = min(hard, 1 << 16) if hard != resource.RLIM_INFINITY else 1 << 16
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(min(MAX_CONNECTIONS, soft - _KEPT), 8)


class _Wrong(Exception):
    """Raised within the parser's callbacks to stop parsing a request."""


class _Part(Enum):
    """Part of a request that the server expects from the client."""

    HEAD = "head"
    BODY = "body"
    NOTHING = "nothing"


class Turns:
    """Fair start of requests: in each iteration of the event loop one request of each address begins.

    A client with many connections or many pipelined requests thus delays other clients by one request only.
    """

    def __init__(self) -> None:
        # Waiting requests by key; a key is present if it began a request in this iteration.
        self._lines: dict[str, deque[Callable[[], None]]] = {}

    def take(self, key: str, begin: Callable[[], None]) -> None:
        """Call `begin` now, or in a later iteration if its address has begun a request in this one."""
        line = self._lines.get(key)
        if line is not None:
            line.append(begin)
            return
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._next)
        self._lines[key] = deque()
        begin()

    def _next(self) -> None:
        """Begin the next waiting request of each key, once in each iteration of the event loop."""
        self._lines = {key: line for key, line in self._lines.items() if line}
        if self._lines:
            asyncio.get_running_loop().call_soon(self._next)
        for line in self._lines.values():
            line.popleft()()


@dataclass(slots=True)
class ConnectionLimits:
    """All connections of a server.

    Attributes:
        most: Limit of connections of all addresses.
        most_of_address: Limit of connections of one address on which the server waits for the client; 0 for none.
        proxies: Trusted proxies, whose connections are not counted by address because they carry many clients.
    """

    most: int = MAX_CONNECTIONS
    most_of_address: int = Limits().connections
    proxies: Proxies = field(default_factory=Proxies)
    waiting: "Waiters[Bounded]" = field(default_factory=Waiters)
    turns: Turns = field(default_factory=Turns)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def key_of(self, address: str, local: peers.LocalPeer | None = None) -> str:
        """Return the key by which a connection is counted: its network, or its user on this host.

        Root, the user of the scheduler and trusted proxies get a separate key for each connection.
        """
        if local is not None:
            spared = local.uid in (0, os.geteuid(), *self.proxies.users) and not local.refused
            key = f"uid {local.uid}"
        else:
            spared, key = is_listed(address, self.proxies.networks), network_of(address)
        return f"{key} #{next(self._numbers)}" if spared else key

    def key_at(self, transport: asyncio.Transport) -> str:
        """Return the key of the connection of a transport."""
        client = get_remote_addr(transport)
        local = peers.local_peer_of(transport.get_extra_info("socket"))
        return self.key_of(client[0] if client else "", local)


class Bounded(HttpToolsProtocol):
    """A client's connection that belongs to a `ConnectionLimits`."""

    def __init__(self, *arguments: Any, crowd: ConnectionLimits, **more: Any) -> None:
        """Initialize the protocol as uvicorn does."""
        super().__init__(*arguments, **more)
        self._crowd, self._key = crowd, ""
        self.timeout_keep_alive = KEEP_S
        self._part, self._is_over = _Part.HEAD, False
        self._timer: asyncio.TimerHandle | None = None  # limits the time for the expected part
        self._raw = self._head = 0  # received bytes of the part, and of headers in the head
        self._problem: Refusal | None = None  # the reason for which a callback stopped the parser
        self._reader: asyncio.TimerHandle | None = None  # set while the client has data to read
        self._read = False  # whether the client has read since the last check
        # Application to start when the body of the latest request has arrived.
        self._held: ASGI3Application | None = None
        # Request that is being answered, of several pipelined ones.
        self._served: RequestResponseCycle | None = None
        self.url = b""
        self.peer: Peer | None = None  # identity by a client certificate
        self.local: peers.LocalPeer | None = None  # identity of a local process, from the kernel

    # --- connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection, or refuse it if there are too many."""
        super().connection_made(transport)
        self.peer = peer_of(transport.get_extra_info("ssl_object"))
        self.local = peers.local_peer_of(transport.get_extra_info("socket"))
        crowd, address = self._crowd, self.client[0] if self.client else ""
        self._key = crowd.key_of(address, self.local)
        self._expect(_Part.HEAD)
        if crowd.most_of_address and crowd.waiting.count(self._key) > crowd.most_of_address:
            self._end_first(crowd.waiting.oldest(self._key))
        if len(self.connections) <= crowd.most or self._end_first(crowd.waiting.oldest_of_largest()):
            return
        say(f"more than {crowd.most} connections: further ones are refused")
        what = f"there are {crowd.most} connections already"
        refusal = Refusal(503, "unavailable", what, remedy="try again later")
        self._refuse(refusal, Reason.CONNECTIONS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers of a closed connection."""
        self._leave()
        if self._reader is not None:
            self._reader.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        if self._served is not None and not self._served.response_complete:
            self._served.disconnected = True  # uvicorn informs the latest request only
            self._served.message_event.set()

    def retire(self, answer_s: float) -> None:
        """Close the connection when the current answer is sent, or after that time."""
        self.shutdown()
        if not self.transport.is_closing():
            self.loop.call_later(answer_s, self.transport.close)

    def _end_first(self, other: "Bounded | None") -> bool:
        """Close another connection to make room for this one; return False if there is no other one."""
        if other is None or other is self:
            return False
        other._cut_off(Reason.CONNECTIONS)
        return True

    @property
    def waits(self) -> bool:
        """Whether the server waits for the client: to send a request or its rest, to read an answer, or to close."""
        if self._is_over:
            return False
        awaited = self._part is not _Part.NOTHING or not self._answering
        return awaited or self.flow.write_paused or self.transport.is_closing()

    def _note_turn(self) -> None:
        """Update the crowd's list of connections that wait for their clients."""
        waiting = self._crowd.waiting
        (waiting.add if self.waits else waiting.remove)(self._key, self)

    def _leave(self) -> None:
        """Remove this connection from the crowd."""
        self._is_over = True
        self._expect(_Part.NOTHING)

    @property
    def _answering(self) -> bool:
        return not getattr(self.cycle, "response_complete", True)  # no cycle before the first request

    # --- received data

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; refuse the request or cut the connection off if a part is too large."""
        if self.transport.is_closing():
            return
        self._raw += len(data)
        if self._part is _Part.HEAD and self._raw > door.MAX_HEAD + _ONE_READ:
            self._refuse(door.too_large("the head", self._raw, door.MAX_HEAD, "bytes"), Reason.HEAD)
            return
        most = MAX_APPS if self.url.startswith(_OF_APPS) else MAX_BODY
        if self._part is _Part.BODY and self._raw > most + _ONE_READ:
            self._cut_off(Reason.BODY)  # the reader of the body has refused it already
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self._leave()
                self.handle_websocket_upgrade()
                return
            self.cycle.keep_alive = False  # no other upgrade: answer, but read nothing further
        except httptools.HttpParserError as error:
            why = self._problem or door.malformed(f"the request is not HTTP: {str(error)[:80]}")
            reason = Reason.HEAD if why.code == "too-large" else Reason.MALFORMED
            self._refuse(why, Reason.PIPELINE if why.code == "pipeline" else reason)

    def _should_upgrade(self) -> bool:
        """Return whether a request continues as a WebSocket, which is only possible for channels."""
        is_get = self.parser.get_method() == b"GET" and self.url.startswith(door.CHANNELS.encode())
        return is_get and super()._should_upgrade()

    def on_message_begin(self) -> None:
        """Expect a head, and add the identity of the peer to the request's scope."""
        self._unset_keepalive_if_required()
        super().on_message_begin()
        if self.peer is not None:
            self.scope["extensions"] = extension(self.peer)
        if self.local is not None:
            self.scope["extensions"] = peers.extension(self.local)
        self._head, self._problem = 0, None
        if self._part is not _Part.HEAD:
            self._expect(_Part.HEAD)

    def on_url(self, url: bytes) -> None:
        """Add a piece of the target, and check its size."""
        super().on_url(url)
        if len(self.url) > door.MAX_TARGET:
            size = len(self.url)
            self._stop_parsing(
                door.too_large("the target", size, door.MAX_TARGET, "bytes or more", status=414)
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header, and check sizes. Trailers are ignored: a proxy may have treated them differently."""
        if self._part is not _Part.HEAD:
            return
        size = len(name) + len(value)
        self._head += size
        if size > door.MAX_LINE:
            self._stop_parsing(door.too_large(f"header {door.shown(name)}", size, door.MAX_LINE, "bytes"))
        if self._head + len(self.url) > door.MAX_HEAD:
            self._stop_parsing(
                door.too_large("the head", self._head + len(self.url), door.MAX_HEAD, "bytes or more")
            )
        if len(self.headers) >= door.MAX_HEADERS:
            self._stop_parsing(
                door.too_large("the head", len(self.headers) + 1, door.MAX_HEADERS, "headers or more")
            )
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the complete head, and expect the body; a missing one becomes known at once."""
        problem = door.head_problem(self.parser.get_http_version(), self.url, self.headers)
        if problem is not None:
            self._stop_parsing(problem)
        if len(self.pipeline) >= MAX_PIPELINED:
            what = f"more than {MAX_PIPELINED} requests came before an answer"
            self._stop_parsing(Refusal(429, "pipeline", what, remedy="wait for answers"))
        self._expect(_Part.BODY)
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Start the application when the body is complete or too large to be buffered.

        A body that never comes thus costs no more than its head.
        """
        self._served = cycle
        if cycle.more_body and len(cycle.body) <= HIGH_WATER_LIMIT:
            self._held = app
            if cycle.waiting_for_100_continue:
                cycle.waiting_for_100_continue = False
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        self._held = None
        self._crowd.turns.take(self._key, partial(self._start, cycle, app))

    def _start(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if not cycle.disconnected:
            super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        """Add a piece of the body, and start the application if there is too much of it to be buffered."""
        super().on_body(body)
        self._begin()

    def on_message_complete(self) -> None:
        """Expect nothing more of the request, and start the application."""
        self._expect(_Part.NOTHING)
        super().on_message_complete()
        self._begin()

    def _begin(self) -> None:
        if self._held is not None:
            self._start_asgi_task(self.cycle, self._held)

    def on_response_complete(self) -> None:
        """Watch whether the client reads the answer."""
        super().on_response_complete()
        self._note_turn()
        if self.transport.get_write_buffer_size():
            self._watch_reader()

    def _stop_parsing(self, problem: Refusal) -> None:
        """Stop the parser with the refusal of the request."""
        self._problem = problem
        raise _Wrong

    # --- time

    def _expect(self, part: _Part) -> None:
        """Expect a part of a request from the client, within the part's time limit."""
        if self._timer is not None:
            self._timer.cancel()
        self._part, self._raw, self._timer = part, 0, None
        self._note_turn()
        if part is _Part.HEAD:
            self._timer = self.loop.call_later(HEAD_S, self._refuse_slow)
        elif part is _Part.BODY:
            self._timer = self.loop.call_later(BODY_S, self._refuse_slow)

    def _refuse_slow(self) -> None:
        """Refuse a request of which a part has not come in time."""
        what, seconds = self._part.value, HEAD_S if self._part is _Part.HEAD else BODY_S
        refusal = Refusal(
            408, "too-slow", f"the {what} did not come within {seconds:g} s", remedy="send it faster"
        )
        self._refuse(refusal, Reason.SLOW_HEAD if self._part is _Part.HEAD else Reason.SLOW_BODY)

    def pause_writing(self) -> None:
        """Stop writing, and watch whether the client reads."""
        super().pause_writing()
        self._note_turn()
        self._watch_reader()

    def resume_writing(self) -> None:
        """Resume writing, because the client has read most of the buffered data."""
        self._read = True
        super().resume_writing()
        self._note_turn()

    def _watch_reader(self) -> None:
        """Start checking whether the client reads the answer."""
        if self._reader is None:
            self._read = False
            self._reader = self.loop.call_later(
                READ_S, self._check_reader, self.transport.get_write_buffer_size()
            )

    def _check_reader(self, before: int) -> None:
        """Cut the client off if it has read less than `MIN_READ` bytes; else go on checking while data is left."""
        self._reader = None
        left = self.transport.get_write_buffer_size()
        if left and not self._read and left > before - MIN_READ:
            self._cut_off(Reason.SLOW_READER)
        elif left:
            self._watch_reader()

    # --- refusals

    def _refuse(self, refusal: Refusal, reason: Reason) -> None:
        """Send a refusal and close; only close if this would fall into the answer to another request."""
        if self._answering and (self.cycle.response_started or self._part is _Part.HEAD or self.pipeline):
            self._cut_off(reason)
            return
        self._expect(_Part.NOTHING)
        if self.transport.is_closing():
            return
        REFUSED.count(reason)
        answer = error_answer(refusal, self.url.decode("latin-1"), {"Connection": "close"})
        lines = b"".join(b"%s: %s\r\n" % header for header in answer.raw_headers)
        self.transport.write(STATUS_LINE[refusal.http_status] + lines + b"\r\n" + bytes(answer.body))
        self.transport.close()

    def _cut_off(self, reason: Reason) -> None:
        """Close the connection at once with a reset, so that the kernel keeps no unread data for the client."""
        self._leave()
        REFUSED.count(reason)
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()


_said: Final[dict[str, float]] = {}


def say(text: str) -> None:
    """Log a warning, the same text at most once in `_SAY_S` seconds."""
    now = time.monotonic()
    if now - _said.get(text, -_SAY_S) >= _SAY_S:
        _said[text] = now
        logger.warning("%s", text)


def on_trouble(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle errors of asyncio that no task receives; a lack of descriptors is logged in one line without traceback."""
    error = context.get("exception")
    if isinstance(error, OSError) and "accept" in str(context.get("message")):
        say(f"cannot accept connections: {error.strerror}; open ones are still served")
    elif isinstance(error, ValueError) and "_start_serving" in str(context.get("handle")):
        # asyncio tries again 1 s after a lack of descriptors.
        logger.debug("the server stopped before it tried again to take connections")
    else:
        loop.default_exception_handler(context)
