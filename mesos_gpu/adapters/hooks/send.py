"""Signed requests to webhooks, to checked addresses only, without redirects and proxies, and with a deadline.

Headers and signature are those of Standard Webhooks 1.0: HMAC-SHA256 over id, time and body.
"""

import base64
import contextlib
import hashlib
import hmac
import http.client
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from mesos_gpu import __version__
from mesos_gpu.adapters.hooks.lookups import LookUps
from mesos_gpu.adapters.hooks.receivers import Receiver, Receivers
from mesos_gpu.errors import NotAccepted

TIMEOUT_S: Final = 10.0
SECRET_BYTES: Final = 32
_PREFIX: Final = "whsec_"
_GOOD: Final = range(200, 300)


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a request. `error`: reason of a failure, without text from the receiver; "" on success."""

    error: str = ""
    status: int | None = None
    took_s: float = 0.0


def new_secret() -> bytes:
    """Generate a secret to sign a hook's requests with."""
    return secrets.token_bytes(SECRET_BYTES)


def text_of(secret: bytes) -> str:
    """Return a secret in the text form that users and libraries take."""
    return _PREFIX + base64.b64encode(secret).decode()


def signature(secret: bytes, id: str, at: int, body: bytes) -> str:
    """Return the signature that proves the sender of a body. `at`: seconds since the epoch."""
    signed = f"{id}.{at}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


class Sender:
    """Sender to the receivers that the operator allows. Thread-safe.

    Args:
        receivers: Receivers that the operator allows.
        context: TLS context; None to trust the authorities of this host.
        clock: Function that returns seconds since the epoch.
        timeout_s: Seconds after which a request fails.
    """

    def __init__(
        self,
        receivers: Receivers,
        context: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.receivers, self._clock, self._timeout_s = receivers, clock, timeout_s
        self._context = context or ssl.create_default_context()
        self._live: set[socket.socket] = set()
        # Separate lookups, so that host names that jobs chose cannot delay hooks.
        self._of_hooks, self._of_jobs = LookUps(), LookUps()
        self._lock = threading.Lock()

    def interrupt(self) -> None:
        """Abort all requests and lookups in progress; each fails at once."""
        for lookups in (self._of_hooks, self._of_jobs):
            lookups.interrupt()
        with self._lock:
            for sock in self._live:
                _break(sock)

    def send(self, url: str, id: str, body: bytes, secret: bytes | None) -> Answer:
        """Send a body by POST, and return the result, at the latest after the timeout.

        Args:
            url: URL of the hook.
            id: Message id, equal for all attempts to send one message.
            body: JSON document to send.
            secret: Secret of the hook; None to send unsigned.
        """
        begin = time.monotonic()
        deadline, look_ups = begin + self._timeout_s, self._of_jobs if secret is None else self._of_hooks
        try:
            receiver = self.receivers.resolved(url, look_ups.until(deadline))
        except NotAccepted as error:
            return Answer("; ".join(why for _, why in error.faults))
        except TimeoutError:
            return Answer(f"looking up the host's name took longer than {self._timeout_s:g} s")
        except OSError as error:
            return Answer(f"the host cannot be found: {error.strerror or error}")
        at = int(self._clock())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"mesos_gpu/{__version__}",
            "webhook-id": id,
            "webhook-timestamp": str(at),
            "Connection": "close",
        }
        if secret is not None:
            headers["webhook-signature"] = signature(secret, id, at, body)
        answer = self._post(receiver, headers, body, deadline)
        return Answer(answer.error, answer.status, time.monotonic() - begin)

    def _post(self, receiver: Receiver, headers: dict[str, str], body: bytes, deadline: float) -> Answer:
        """Send a request to checked addresses, and read the status of the answer."""
        try:
            with (
                contextlib.closing(self._connected(receiver, deadline)) as connection,
                self._ended_at(connection.sock, deadline),
            ):
                if isinstance(connection.sock, ssl.SSLSocket):
                    connection.sock.do_handshake()
                path = receiver.url.path or "/"
                query = f"?{receiver.url.query}" if receiver.url.query else ""
                connection.request("POST", path + query, body, headers)
                status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            late = time.monotonic() >= deadline
            what = f"no answer within {self._timeout_s:g} s" if late else _describe(error)
            return Answer(what)
        if time.monotonic() >= deadline:  # the answer may be incomplete
            return Answer(f"no answer within {self._timeout_s:g} s")
        return Answer("" if status in _GOOD else f"the answer was {status}", status)

    @contextlib.contextmanager
    def _ended_at(self, sock: socket.socket, deadline: float) -> Iterator[None]:
        """Shut a connection down at a deadline, also if the receiver answers byte by byte."""
        timer = threading.Timer(max(deadline - time.monotonic(), 0.0), _break, [sock])
        timer.daemon = True
        timer.start()
        with self._lock:
            self._live.add(sock)
        try:
            yield
        finally:
            with self._lock:
                self._live.discard(sock)
            timer.cancel()
            timer.join()

    def _connected(self, receiver: Receiver, deadline: float) -> http.client.HTTPConnection:
        """Return a connection to the first address that accepts one."""
        failure: OSError | None = None
        for address in receiver.addresses:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            try:
                plain = socket.create_connection((address, receiver.port), timeout=left_s)
            except OSError as error:
                failure = error
                continue
            connection = http.client.HTTPConnection(receiver.host, receiver.port)
            connection.sock, connection.auto_open = plain, 0  # so that it never looks up the name itself
            if receiver.url.scheme == "https":
                connection.default_port = 443
                try:
                    connection.sock = self._context.wrap_socket(
                        plain, server_hostname=receiver.host, do_handshake_on_connect=False
                    )
                except BaseException:
                    plain.close()
                    raise
            return connection
        raise failure or TimeoutError("timed out")


def _break(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        # SSLSocket.shutdown would drop TLS, and data of another thread would then be sent unencrypted.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _describe(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS: {getattr(error, 'verify_message', '') or error.reason or 'the handshake failed'}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return "the answer is not HTTP" if isinstance(error, http.client.HTTPException) else "it does not answer"
