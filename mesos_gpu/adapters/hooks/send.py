"""Requests to webhooks go to checked addresses alone, are signed, follow no redirects and no proxies, and end in time.

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
    """What came of a request. `error`: why it failed, "": it did not; no word of what a receiver says is in it."""

    error: str = ""
    status: int | None = None
    took_s: float = 0.0


def new_secret() -> bytes:
    """What a hook's requests are signed with."""
    return secrets.token_bytes(SECRET_BYTES)


def text_of(secret: bytes) -> str:
    """A secret as people and libraries have it."""
    return _PREFIX + base64.b64encode(secret).decode()


def signature(secret: bytes, id: str, at: int, body: bytes) -> str:
    """What proves who sent a body. `at`: seconds since the epoch."""
    signed = f"{id}.{at}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


class Sender:
    """Sends to the receivers that the operator allows. For all threads."""

    def __init__(
        self,
        receivers: Receivers,
        context: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`context`: whose certificates are believed; None: those of this host. `clock`: seconds since the epoch."""
        self.receivers, self._clock, self._timeout_s = receivers, clock, timeout_s
        self._context = context or ssl.create_default_context()
        self._live: set[socket.socket] = set()
        # Two, so that names that jobs chose hold up no hook.
        self._of_hooks, self._of_jobs = LookUps(), LookUps()
        self._lock = threading.Lock()

    def interrupt(self) -> None:
        """Break what is being sent, and what is looked up for it: each fails at once."""
        for each in (self._of_hooks, self._of_jobs):
            each.interrupt()
        with self._lock:
            for sock in self._live:
                _break(sock)

    def send(self, url: str, id: str, body: bytes, secret: bytes | None) -> Answer:
        """POST a body, and say what came of it, no later than after the time-out.

        Args:
            url: Where to.
            id: The same for each try of the same thing.
            body: JSON.
            secret: Of the hook; None: nothing is signed.
        """
        begin = time.monotonic()
        deadline, look_ups = begin + self._timeout_s, self._of_jobs if secret is None else self._of_hooks
        try:
            receiver = self.receivers.resolved(url, look_ups.until(deadline))
        except NotAccepted as error:
            return Answer("; ".join(why for _, why in error.faults))
        except TimeoutError:
            return Answer(f"the host's name was not looked up within {self._timeout_s:g} s")
        except OSError as error:
            return Answer(f"the host is not found: {error.strerror or error}")
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
        answer = self._to(receiver, headers, body, deadline)
        return Answer(answer.error, answer.status, time.monotonic() - begin)

    def _to(self, receiver: Receiver, headers: dict[str, str], body: bytes, deadline: float) -> Answer:
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
            what = f"no answer within {self._timeout_s:g} s" if late else _words(error)
            return Answer(what)
        if time.monotonic() >= deadline:  # what came may be half of it
            return Answer(f"no answer within {self._timeout_s:g} s")
        return Answer("" if status in _GOOD else f"the answer was {status}", status)

    @contextlib.contextmanager
    def _ended_at(self, sock: socket.socket, deadline: float) -> Iterator[None]:
        """Break a connection at a deadline, also of a receiver that answers byte by byte."""
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
        """A connection to the first of its addresses that takes one."""
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
            connection.sock, connection.auto_open = plain, 0  # it never looks the name up by itself
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
    with contextlib.suppress(OSError):  # it is broken already
        # Not SSLSocket's own, after which what is sent meanwhile would go unencrypted.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS: {getattr(error, 'verify_message', '') or error.reason or 'it failed'}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return (
        "it did not answer as HTTP does"
        if isinstance(error, http.client.HTTPException)
        else "it does not answer"
    )
