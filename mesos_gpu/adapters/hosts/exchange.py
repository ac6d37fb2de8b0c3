"""HTTP requests to one host over one connection, with a common limit of time and bytes, that another thread can cancel.

A host may hang or may be controlled by an attacker, so its responses are untrusted input. All requests of the scheduler
to Mesos agents use this module.
"""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import urlencode

from mesos_gpu.adapters.hooks.lookups import LookUps
from mesos_gpu.adapters.hosts.reply import NotAnswered, Reply, Silent
from mesos_gpu.adapters.tls.trust import ENDED, OTHER_NAME

CONNECT_S: Final = 3.0
_PIECE: Final = 1 << 16  # largest number of bytes of one read
#: Bytes; a read after a smaller one waits first, so that byte-wise sending costs little CPU.
_SMALL: Final = 1 << 10
_PAUSE_S: Final = 0.001
_look_ups: Final = LookUps()
T = TypeVar("T")
Query = Mapping[str, str | int | bytes]


class NotTrusted(NotAnswered):
    """A host whose identity was not proved by TLS."""


@dataclass(frozen=True, slots=True)
class Host:
    """Address of a host, and the headers of each request to it.

    Args:
        address: IP address, or host name to be resolved.
        port: TCP port of the host.
        names: Names for the certificate of the host, which must have one of them; tried in this order.
        tls: Context that verifies the host; None if the host speaks plain HTTP.
        headers: Additional headers of each request.
    """

    address: str
    port: int
    names: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits for all requests of one exchange together.

    Args:
        seconds: Seconds spent waiting for the host.
        max_bytes: Number of bytes received.
    """

    seconds: float
    max_bytes: int


class Exchange:
    """HTTP requests of one operation to one host. For one thread; `cancel` may be called from any thread."""

    def __init__(self, host: Host, bounds: Bounds) -> None:
        """Prepare the exchange; the first request connects."""
        self._host, self._bounds = host, bounds
        self._names = list(host.names) or [host.address]
        self._socket: socket.socket | None = None
        self._reply: Reply | None = None
        self._waited_s, self._received, self._is_small = 0.0, 0, False
        self._is_cancelled, self._lock = False, threading.Lock()

    @property
    def name(self) -> str:
        """The name that the host's certificate was last checked for."""
        return self._names[0]

    def get(self, path: str, query: Query, *, max_bytes: int) -> tuple[int, bytes]:
        """Send a GET request; return the status and the body of the response, b"" if the status is not 200.

        Args:
            path: Path of the URL.
            query: Query parameters of the URL.
            max_bytes: Largest response body that is accepted, in bytes.

        Raises:
            NotAnswered: No acceptable response came within the limits.
        """
        reply = self.ask(path, query, max_bytes=max_bytes)
        return reply.status, reply.body() if reply.status == 200 else b""

    def ask(self, path: str, query: Query, *, max_bytes: int) -> Reply:
        """Send a GET request; return the response when its headers have arrived.

        Args:
            path: Path of the URL.
            query: Query parameters of the URL.
            max_bytes: Largest response body that is accepted, in bytes.

        Raises:
            NotAnswered: No acceptable status and headers came within the limits.
        """
        target = f"{path}?{urlencode(query)}" if query else path
        host = f"[{self._host.address}]" if ":" in self._host.address else self._host.address
        headers = {
            "Host": f"{host}:{self._host.port}",
            "Accept-Encoding": "identity",
            **self._host.headers,
        }
        lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        try:
            if self._socket is None or self._reply is None or not self._reply.keeps_connection:
                self.close()
                self._connect()
            connection, self._is_small = self._open_socket(), False
            self._wait(lambda: connection.sendall("\r\n".join(lines).encode("latin-1")))
            self._reply = Reply(self._receive, max_bytes)
        except NotAnswered:
            self.close()
            raise
        return self._reply

    def cancel(self) -> None:
        """Abort the request under way, and refuse every later request."""
        with self._lock:
            self._is_cancelled = True
            if self._socket is not None:
                with contextlib.suppress(OSError):  # the socket is no longer connected
                    # SSLSocket.shutdown would drop the TLS layer, and a call under way would continue without TLS.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            self._socket = self._reply = None

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise Silent("is not connected")
        return self._socket

    def _receive(self) -> bytes:
        if self._is_small:
            self._waited_s += _PAUSE_S  # else a host that sends a byte in each pause has no deadline
            time.sleep(_PAUSE_S)
        connection = self._open_socket()
        data = self._wait(lambda: connection.recv(_PIECE))
        if not data and self._is_cancelled:
            raise Silent("does not answer (was cancelled)")
        self._received += len(data)
        self._is_small = len(data) < _SMALL
        if self._received > self._bounds.max_bytes:
            raise NotAnswered(f"sends more than {self._bounds.max_bytes} bytes, the most that is accepted")
        return data

    def _wait(self, step: Callable[[], T], max_s: float | None = None) -> T:
        """Run a step that waits for the host, for at most the remaining time and at most `max_s` seconds."""
        left_s = self._left_s() if max_s is None else min(self._left_s(), max_s)
        begin = time.monotonic()
        try:
            if left_s <= 0:
                raise TimeoutError
            self._open_socket().settimeout(left_s)
            return step()
        except TimeoutError as error:
            raise Silent(f"does not answer within {self._bounds.seconds:g} s") from error
        except ssl.SSLError as error:
            raise _tls_problem(error) from error
        except OSError as error:
            why = "was cancelled" if self._is_cancelled else type(error).__name__
            raise Silent(f"does not answer ({why})") from error
        finally:
            self._waited_s += time.monotonic() - begin

    def _left_s(self) -> float:
        return self._bounds.seconds - self._waited_s

    def _connect(self) -> None:
        """Connect; try the names of the host in order until its certificate has one."""
        while True:
            self._dial()
            try:
                self._shake_hands()
                return
            except NotTrusted as error:
                self.close()
                if len(self._names) < 2 or not _is_of_another_name(error.__cause__):
                    raise
                del self._names[0]

    def _dial(self) -> None:
        address = self._address()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with self._lock:
            if self._is_cancelled:
                raise Silent("does not answer (was cancelled)")
            connection = self._socket = socket.socket(family, socket.SOCK_STREAM)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wait(lambda: connection.connect((address, self._host.port)), CONNECT_S)

    def _address(self) -> str:
        begin = time.monotonic()
        try:
            if self._host.address.replace(".", "").isdecimal() or ":" in self._host.address:
                return self._host.address
            until = _look_ups.until(begin + max(min(self._left_s(), CONNECT_S), 0.0))
            return until(self._host.address, self._host.port)[0]
        except OSError as error:
            raise Silent(f"cannot be found by its name {self._host.address}") from error
        finally:
            self._waited_s += time.monotonic() - begin

    def _shake_hands(self) -> None:
        if self._host.tls is None:
            return
        plain = self._open_socket()
        try:
            with self._lock:
                secured = self._host.tls.wrap_socket(
                    plain, server_hostname=self._names[0], do_handshake_on_connect=False
                )
                self._socket = secured
        except OSError as error:  # the host has closed the connection
            raise Silent(f"does not answer ({type(error).__name__})") from error
        self._wait(secured.do_handshake)


def _tls_problem(error: ssl.SSLError) -> NotTrusted:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
    elif isinstance(error, ENDED):
        why = "it ended the handshake, as a server without TLS does"
    else:
        why = error.reason or str(error)
    return NotTrusted(f"is not trusted: {why}")


def _is_of_another_name(error: BaseException | None) -> bool:
    return isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in OTHER_NAME
