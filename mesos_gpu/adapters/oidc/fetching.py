"""Requests to an issuer: verified, bounded in bytes and time, and never redirected."""

import ipaddress
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import requests

from mesos_gpu.adapters.tls.session import verify_by
from mesos_gpu.adapters.tls.trust import Trust, client_context
from mesos_gpu.errors import BadConfiguration, Unavailable

MOST_BYTES: Final = 1 << 20  # of an answer
CONNECT_S: Final = 3.0
READ_S: Final = 5.0  # without a byte
WHOLE_S: Final = 10.0
_CHUNK: Final = 16_384


class IssuerError(Unavailable):
    """An issuer does not answer, or not as it should."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came."""

    status: int
    body: bytes


class Fetcher:
    """Sends requests; of several threads, if need be."""

    def __init__(self, cacert: Path | None = None) -> None:
        """`cacert`: authorities that the issuer's certificate may come from; None: those of this host.

        Raises:
            BadConfiguration: The file cannot be used.
        """
        self._context = client_context(Trust(cacert))

    def get(self, url: str) -> Answer:
        """Ask.

        Raises:
            IssuerError: No answer came.
        """
        return self._send("GET", url, None)

    def post(self, url: str, form: Mapping[str, str], authorization: tuple[str, str] | None = None) -> Answer:
        """Send a form; `authorization`: a client's id and secret, by HTTP basic.

        Raises:
            IssuerError: No answer came.
        """
        return self._send("POST", url, form, authorization)

    def _send(
        self, verb: str, url: str, form: Mapping[str, str] | None, basic: tuple[str, str] | None = None
    ) -> Answer:
        deadline = time.monotonic() + WHOLE_S
        try:
            with requests.Session() as session:
                session.trust_env = not is_loopback(url)  # proxies
                session.auth = _as_it_is  # else ~/.netrc is looked at
                verify_by(session, self._context)
                with session.request(
                    verb,
                    url,
                    data=form,
                    auth=basic,
                    headers={"Accept": "application/json"},
                    timeout=(CONNECT_S, READ_S),
                    allow_redirects=False,
                    stream=True,
                ) as response:
                    return _answer(url, response, deadline)
        except requests.RequestException as error:
            raise IssuerError(
                f"{url} does not answer ({type(error).__name__})",
                remedy="see that the issuer runs, and that its certificate is of an authority that is believed",
            ) from error


def _answer(url: str, response: requests.Response, deadline: float) -> Answer:
    if response.is_redirect or response.is_permanent_redirect:
        raise IssuerError(
            f"{url} redirects to elsewhere: not followed", remedy="name the issuer's own address"
        )
    body = bytearray()
    for chunk in response.iter_content(_CHUNK):
        body += chunk
        if len(body) > MOST_BYTES:
            raise IssuerError(f"{url} answers with more than {MOST_BYTES} bytes", remedy="look at the issuer")
        if time.monotonic() > deadline:
            raise IssuerError(f"{url} takes longer than {WHOLE_S:g} s", remedy="look at the issuer")
    return Answer(response.status_code, bytes(body))


def is_loopback(url: str) -> bool:
    """Whether an address is of this host alone: written as a number, or `localhost`."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_url(url: str, what: str) -> str:
    """Take an address of an issuer: by https, or on this host.

    Raises:
        BadConfiguration: It is something else.
    """
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and parts.port != 0 and not parts.fragment and parts.username is None
    except ValueError:
        good, parts = False, urlsplit("")
    if not good or not url.isprintable() or " " in url:
        raise BadConfiguration(f"{what}: {url!r} is not an address", remedy="as https://id.example.org")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(url)):
        raise BadConfiguration(f"{what}: {url} could be read and changed on the way", remedy="use https://")
    return url


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
