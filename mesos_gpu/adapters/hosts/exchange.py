"""Requests to one host over one connection, bounded as a whole: in time, in bytes, and cancelled from outside.

A host may hang or may have been taken over, so what it sends is input like that of any client. Everything that asks
agents of Mesos goes through here.
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
_PIECE: Final = 1 << 16  # bytes of one read
_SMALL: Final = 1 << 10  # bytes: after a smaller read the next one waits, so that a drip costs little CPU
_PAUSE_S: Final = 0.001
_look_ups: Final = LookUps()
T = TypeVar("T")
Query = Mapping[str, str | int | bytes]


class NotBelieved(NotAnswered):
    """The host did not prove by TLS who it is."""


@dataclass(frozen=True, slots=True)
class Host:
    """Where a host is reached, and what is sent with each request to it.

    Args:
        address: An IP address, or a name that is looked up.
        port: TCP port.
        names: Names of which its certificate must have one, tried in this order.
        tls: Verifies the host; None if it speaks plain HTTP.
        headers: Further headers of each request.
    """

    address: str
    port: int
    names: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What all requests of one exchange may take together.

    Args:
        seconds: Time spent waiting for the host.
        max_bytes: Bytes received.
    """

    seconds: float
    max_bytes: int


class Exchange:
    """Requests of one operation to one host. For one thread; `cancel` may be called from any."""

    def __init__(self, host: Host, bounds: Bounds) -> None:
        """Connect at the first request."""
        self._host, self._bounds = host, bounds
        self._names = list(host.names) or [host.address]
        self._socket: socket.socket | None = None
        self._reply: Reply | None = None
        self._waited_s, self._received, self._is_small = 0.0, 0, False
        self._is_cancelled, self._lock = False, threading.Lock()

    @property
    def name(self) -> str:
        """The name by which the host was verified last."""
        return self._names[0]

    def get(self, path: str, query: Query, *, max_bytes: int) -> tuple[int, bytes]:
        """Return status and body of an answer; no body if the status is not 200.

        Raises:
            NotAnswered: No acceptable answer came within the bounds.
        """
        reply = self.ask(path, query, max_bytes=max_bytes)
        return reply.status, reply.body() if reply.status == 200 else b""

    def ask(self, path: str, query: Query, *, max_bytes: int) -> Reply:
        """Send GET, and return the answer when its headers have arrived.

        Args:
            path: Path of the URL.
            query: Its query.
            max_bytes: Size of the longest body that is accepted.

        Raises:
            NotAnswered: As `get`.
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
        """End what is under way, and refuse every later request."""
        with self._lock:
            self._is_cancelled = True
            if self._socket is not None:
                with contextlib.suppress(OSError):  # it is not connected any more
                    # Not the method of SSLSocket, after which a running call would go on without TLS.
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
        """Do something that waits for the host, as long as there is time for it."""
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
            raise _of_tls(error) from error
        except OSError as error:
            why = "was cancelled" if self._is_cancelled else type(error).__name__
            raise Silent(f"does not answer ({why})") from error
        finally:
            self._waited_s += time.monotonic() - begin

    def _left_s(self) -> float:
        return self._bounds.seconds - self._waited_s

    def _connect(self) -> None:
        """Connect, by the first name that the host's certificate has."""
        while True:
            self._dial()
            try:
                self._shake_hands()
                return
            except NotBelieved as error:
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
            made = self._socket = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wait(lambda: made.connect((address, self._host.port)), CONNECT_S)

    def _address(self) -> str:
        begin = time.monotonic()
        try:
            if self._host.address.replace(".", "").isdecimal() or ":" in self._host.address:
                return self._host.address
            until = _look_ups.until(begin + max(min(self._left_s(), CONNECT_S), 0.0))
            return until(self._host.address, self._host.port)[0]
        except OSError as error:
            raise Silent(f"is not found by its name {self._host.address}") from error
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
        except OSError as error:  # it was closed by the host meanwhile
            raise Silent(f"does not answer ({type(error).__name__})") from error
        self._wait(secured.do_handshake)


def _of_tls(error: ssl.SSLError) -> NotBelieved:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
    elif isinstance(error, ENDED):
        why = "it ended the handshake, as who speaks no TLS does"
    else:
        why = error.reason or str(error)
    return NotBelieved(f"is not believed: {why}")


def _is_of_another_name(error: BaseException | None) -> bool:
    return isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in OTHER_NAME
