"""Requests to an issuer: verified, limited in size and time, and never redirected."""

import contextlib
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import requests

from mesos_gpu.adapters.tls.session import verify_by
from mesos_gpu.adapters.tls.trust import Trust, client_context
from mesos_gpu.errors import BadConfiguration, Unavailable
from mesos_gpu.model.addresses import is_loopback_host

MAX_BYTES: Final = 1 << 20  # of an answer
CONNECT_S: Final = 3.0
READ_S: Final = 5.0  # longest time without a byte
WHOLE_S: Final = 10.0
_CHUNK: Final = 16_384


class IssuerError(Unavailable):
    """An issuer does not answer, or not properly."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of an issuer."""

    status: int
    body: bytes


class Fetcher:
    """Sender of requests to an issuer. Thread-safe.

    Args:
        cacert: File of authorities for the issuer's certificate; None for those of this host.

    Raises:
        BadConfiguration: The file cannot be used.
    """

    def __init__(self, cacert: Path | None = None) -> None:
        self._context = client_context(Trust(cacert))

    def get(self, url: str) -> Answer:
        """Send a GET request.

        Raises:
            IssuerError: No valid answer came.
        """
        return self._send("GET", url, None)

    def post(self, url: str, form: Mapping[str, str], authorization: tuple[str, str] | None = None) -> Answer:
        """Post a form; `authorization`: a client's id and secret for HTTP basic.

        Raises:
            IssuerError: No valid answer came.
        """
        return self._send("POST", url, form, authorization)

    def _send(
        self, verb: str, url: str, form: Mapping[str, str] | None, basic: tuple[str, str] | None = None
    ) -> Answer:
        """Send a request, within the limits of time and size."""
        with _Clock(WHOLE_S) as clock, requests.Session() as session:
            session.trust_env = not is_loopback_host(urlsplit(url).hostname or "")  # proxies
            session.auth = _as_it_is  # otherwise requests uses ~/.netrc
            verify_by(session, self._context, clock.watch)
            try:
                with session.request(
                    verb,
                    url,
                    data=form,
                    auth=basic,
                    headers={"Accept": "application/json", "Accept-Encoding": "identity"},
                    timeout=(CONNECT_S, READ_S),
                    allow_redirects=False,
                    stream=True,
                ) as response:
                    answer = _answer(url, response)
            except requests.RequestException as error:
                why = _late() if clock.is_over else type(error).__name__
                raise IssuerError(
                    f"{url} does not answer ({why})",
                    remedy="check that the issuer runs, and that its certificate is from a trusted authority",
                ) from error
        if clock.is_over:  # the answer may be incomplete, because the connection was ended
            raise IssuerError(f"{url} does not answer ({_late()})", remedy="check the issuer")
        return answer


class _Clock:
    """Deadline that ends the connections of a request: `requests` limits each wait for bytes, not their sum."""

    def __init__(self, most_s: float) -> None:
        self._connections: list[socket.socket] = []
        self._over = threading.Event()
        self._timer = threading.Timer(most_s, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        for connection in self._connections:
            connection.close()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def watch(self, connection: socket.socket) -> None:
        """End a connection at the deadline; the duplicate also ends TLS on it."""
        self._connections.append(connection.dup())
        if self.is_over:
            self._end()

    def _end(self) -> None:
        self._over.set()
        for connection in self._connections:
            with contextlib.suppress(OSError):  # it has ended already
                connection.shutdown(socket.SHUT_RDWR)


def _late() -> str:
    return f"it takes longer than {WHOLE_S:g} s"


def _answer(url: str, response: requests.Response) -> Answer:
    """Return status and body of a response, unless it redirects, is encoded or too large."""
    if response.is_redirect or response.is_permanent_redirect:
        raise IssuerError(f"{url} redirects, which is not followed", remedy="give the issuer's own address")
    coding = response.headers.get("Content-Encoding", "identity")
    if coding != "identity":
        raise IssuerError(f"{url} answers with a body encoded as {coding[:40]!r}", remedy="check the issuer")
    body = bytearray()
    for chunk in response.iter_content(_CHUNK):
        body += chunk
        if len(body) > MAX_BYTES:
            raise IssuerError(f"{url} answers with more than {MAX_BYTES} bytes", remedy="check the issuer")
    return Answer(response.status_code, bytes(body))


def check_url(url: str, what: str) -> str:
    """Check an address of an issuer: https, or http on this host. Return it.

    Raises:
        BadConfiguration: The address is invalid or insecure.
    """
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and parts.port != 0 and not parts.fragment and parts.username is None
    except ValueError:
        good, parts = False, urlsplit("")
    if not good or not url.isprintable() or " " in url:
        raise BadConfiguration(f"{what}: {url!r} is not an address", remedy="as https://id.example.org")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback_host(parts.hostname or "")):
        raise BadConfiguration(
            f"{what}: {url} is not encrypted, so answers could be read and changed", remedy="use https://"
        )
    return url


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
