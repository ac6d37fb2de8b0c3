"""Subscription to the events of a Mesos master, over one non-blocking socket."""

import json
import logging
import os
import selectors
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from mesos_gpu.adapters.http_parser import HTTP_RESPONSE, HttpParser
from mesos_gpu.adapters.tls.trust import ENDED, PLAIN

DEFAULT_MASTER_PORT: Final = 5050
MAX_DIGITS: Final = 12  # of a record's length; a longer one is not RecordIO
MAX_RECORD: Final = 256 << 20  # bytes of an event; offers of ten thousand agents need a tenth
T = TypeVar("T")
logger = logging.getLogger(__name__)
REMEDIES: Final[Mapping[int, str]] = {
    401: "check principal and secret against the master's --credentials",
    403: "check the master's --acls, and that no other scheduler uses this framework id",
    404: "check that this is the address of a Mesos master; a master that is starting also answers so for a moment",
    503: "wait: the master is starting, or no leader is elected",
}


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of `host`, `host:port`, `[ipv6]:port` or `http(s)://…`; raises ValueError."""
    parts = urlsplit(text if "//" in text else f"//{text}")
    if parts.scheme not in ("", "http", "https") or not parts.hostname:
        raise ValueError(f"{text!r} is not HOST:PORT of a Mesos master")
    return parts.hostname, DEFAULT_MASTER_PORT if parts.port is None else parts.port


class StreamLost(Exception):
    """The subscription ended, or was refused; the text gives the reason."""


class Redirected(Exception):
    """Another master leads; the text is its HOST:PORT."""


def of_tls(error: ssl.SSLError) -> str:
    """Return why TLS with a master failed, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message} (see --mesos-cacert)"
    if error.reason in PLAIN:
        return "it does not use TLS (see --mesos-tls)"
    if isinstance(error, ENDED):
        return "it ended the TLS handshake: it has no TLS (see --mesos-tls), or wants a certificate (--mesos-cert)"
    return f"TLS failed: {error.reason or error} (it may require a certificate: see --mesos-cert)"


class EventStream:
    """A SUBSCRIBE call and the events that answer it: a non-blocking socket with or without TLS, HTTP chunks, RecordIO.

    Raises `OSError` if the connection fails, and `StreamLost` or `Redirected` depending on the master's answer.

    Args:
        address: Address of the master.
        request: HTTP request to send.
        attempt: Number of this attempt; successive attempts use successive addresses of the host.
        tls: Context that verifies the master; None for plain HTTP.
    """

    def __init__(self, address: str, request: bytes, attempt: int, tls: ssl.SSLContext | None = None) -> None:
        self.name: Final = split_address(address)[0]  # name that its certificate must have
        addresses = socket.getaddrinfo(*split_address(address), type=socket.SOCK_STREAM)
        family, kind, protocol, _, peer = addresses[attempt % len(addresses)]
        self.peer: Final = (str(peer[0]), int(peer[1]))  # IP address and port at the other end
        self._unsent: bytes = request
        self._parser = HttpParser(HTTP_RESPONSE)
        self._buffer = bytearray()
        self._connecting = True
        self._tls, self._handshaking = tls, tls is not None
        self._to_skip = 0  # bytes of a record that is too long
        self._waits_for = 0  # selector mask that TLS needs now, in place of our own; 0 for none
        self.stream_id: str | None = None
        self._socket = socket.socket(family, kind, protocol)
        self._socket.setblocking(False)
        try:
            self._socket.connect(peer)
        except BlockingIOError:
            pass  # in progress
        except OSError:
            self._socket.close()
            raise

    @property
    def wanted(self) -> int:
        """Event mask for a selector."""
        if self._waits_for:
            return self._waits_for
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)

    def fileno(self) -> int:
        """Return the descriptor of the socket, for a selector."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection; the master keeps the framework for its failover_timeout."""
        self._socket.close()

    def write(self) -> None:
        """Send more of the request; the socket must be writable."""
        if self._connecting:
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self._connecting = False
            if self._tls is not None:
                self._socket = self._tls.wrap_socket(
                    self._socket, server_hostname=self.name, do_handshake_on_connect=False
                )
        self._try(self._send)

    def _send(self) -> None:
        self._shake_hands()
        if self._unsent:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def _shake_hands(self) -> None:
        if self._handshaking and isinstance(self._socket, ssl.SSLSocket):
            self._socket.do_handshake()
            self._handshaking = False

    def _try(self, what: Callable[[], T]) -> T | None:
        """Call a function of the socket without waiting; None if TLS has to wait for the master."""
        self._waits_for = 0
        try:
            return what()
        except ssl.SSLWantReadError:
            self._waits_for = selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            self._waits_for = selectors.EVENT_WRITE
        return None

    def read(self) -> Iterator[dict[str, Any]]:
        """Receive once. Yield the events that are complete now, then raise `StreamLost` if there will be no more."""
        if self._unsent and not self._connecting and self._tls is not None:
            self.write()  # TLS has waited for this data
            return
        data = self._try(self._received)
        if data is None:
            return
        if data and self._parser.execute(data, len(data)) != len(data):
            raise StreamLost("the answer is not HTTP")
        closed = not data or self._parser.is_message_complete()
        if self.stream_id is None and self._parser.is_headers_complete():
            self._judge_head(closed)
        if self.stream_id is not None:
            self._buffer += self._parser.recv_body()
            yield from self._events()
        if closed:
            silent = self.stream_id is None and self._tls is None
            hint = " without an answer: it may use TLS (see --mesos-tls)" if silent else ""
            raise StreamLost(f"the master closed the connection{hint}")

    def _received(self) -> bytes:
        """Return the available data; for TLS all of a record, as a selector does not see data that TLS has buffered."""
        data = self._socket.recv(1 << 16)
        while data and isinstance(self._socket, ssl.SSLSocket) and (more := self._socket.pending()):
            data += self._socket.recv(more)
        return data

    def _judge_head(self, closed: bool) -> None:
        status = self._parser.get_status_code()
        headers = {name.lower(): value for name, value in self._parser.get_headers().items()}
        if status == HTTPStatus.OK:
            self.stream_id = headers.get("mesos-stream-id", "")
        elif status == HTTPStatus.TEMPORARY_REDIRECT and "location" in headers:
            host, port = split_address(headers["location"])
            raise Redirected(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        elif closed:  # before that, the body, which gives the reason, is incomplete
            text = self._parser.recv_body().decode(errors="replace").strip()
            remedy = REMEDIES.get(status, "see the master's log")
            raise StreamLost(f"SUBSCRIBE was refused with HTTP {status}: {text} ({remedy})")

    def _events(self) -> Iterator[dict[str, Any]]:
        """Yield complete events. RecordIO: repeated length in decimal digits, newline, that many bytes of JSON."""
        while not self._passed_over() and (newline := self._buffer.find(b"\n", 0, MAX_DIGITS)) >= 0:
            if not self._buffer[:newline].isdigit():
                raise StreamLost("the answer is not RecordIO")
            start, length = newline + 1, int(self._buffer[:newline])
            if length > MAX_RECORD:
                logger.error("Mesos sends an event of %d bytes: it is skipped", length)
                self._to_skip = start + length
                continue
            if len(self._buffer) < start + length:
                return
            record = bytes(self._buffer[start : start + length])
            del self._buffer[: start + length]
            if event := _event(record):
                yield event
        if not self._to_skip and len(self._buffer) >= MAX_DIGITS:
            raise StreamLost("the answer is not RecordIO")

    def _passed_over(self) -> bool:
        """Drop buffered data of a record that is too long. Return whether more of it will follow."""
        part = min(self._to_skip, len(self._buffer))
        del self._buffer[:part]
        self._to_skip -= part
        return self._to_skip > 0


def _event(record: bytes) -> dict[str, Any] | None:
    """Decode an event; None if it is invalid.

    An invalid event does not end the stream: it may contain data of an executor or an agent, which the master would
    send again.
    """
    try:
        event = json.loads(record)
    except (ValueError, RecursionError) as error:
        logger.error("an event of Mesos is not JSON, and is skipped: %s: %.500r", error, record[:500])
        return None
    if not isinstance(event, dict):
        logger.error("an event of Mesos is not a JSON object, and is skipped: %.500r", record[:500])
        return None
    return event
