"""Checks of a request's head, and counts of refusals by reason.

The figures are in docs/reference/rest.md; operators' settings are in `mesos_gpu.api.http.rate`.
"""

import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, Generic, TypeVar

import httptools

from mesos_gpu.api.http.answers import Refusal

MAX_TARGET: Final = 1 << 13  # bytes of path and query
MAX_QUERY: Final = 100  # fields of a query
MAX_HEADERS: Final = 100
MAX_LINE: Final = 1 << 14  # bytes of one header
MAX_HEAD: Final = 1 << 16  # bytes of all of them, with the target
BODY_S: Final = 30.0  # for all of a body
VERSIONS: Final = ("1.0", "1.1")
CHANNELS: Final = "/v1/channels/"  # prefix of paths that are reached by WebSocket
SAFE: Final = ("GET", "HEAD", "OPTIONS")  # methods that change nothing (RFC 9110, section 9.2.1)
K = TypeVar("K", bound=Hashable)
Headers = Sequence[tuple[bytes, bytes]]


class Reason(Enum):
    """Reason for which a request or a connection was refused."""

    MALFORMED = "malformed"  # no HTTP, or ambiguous HTTP
    HEAD = "head"  # its size, or the number of its parts
    HOST = "host"  # name of another machine
    ORIGIN = "origin"  # a page of another origin
    MEDIA_TYPE = "media-type"
    BODY = "body"  # its size
    JSON = "json"  # no JSON, too deep or large, or an incomplete body
    RATE = "rate"
    CONCURRENCY = "concurrency"
    STREAMS = "streams"
    BUSY = "busy"  # operations that wait for another host
    CONNECTIONS = "connections"
    PIPELINE = "pipeline"
    SLOW_HEAD = "slow-head"
    SLOW_BODY = "slow-body"
    SLOW_READER = "slow-reader"


class Counts(Generic[K]):
    """Counters of events by key since the process began. For all threads."""

    def __init__(self, keys: Iterable[K]) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(keys, 0)

    def count(self, key: K) -> None:
        """Increment the counter of a key."""
        with self._lock:
            self._counts[key] += 1

    def read(self) -> Mapping[K, int]:
        """Return the count of every key, including zeros."""
        with self._lock:
            return dict(self._counts)


REFUSED: Final = Counts(Reason)


def too_large(name: str, size: float, most: int, unit: str, *, status: int = 431) -> Refusal:
    """Return the refusal of a head that exceeds a limit."""
    what = f"{name} has {size:g} {unit}, at most {most} are allowed"
    return Refusal(status, "too-large", what, remedy="send less")


def malformed(what: str, *, status: int = 400) -> Refusal:
    """Return the refusal of bytes that are no request, or an ambiguous one."""
    return Refusal(status, "malformed", what, remedy="send an HTTP/1.1 request as RFC 9112 has it")


def shown(text: bytes) -> str:
    """Return the text of received bytes, quoted and cut to 60 characters for messages."""
    plain = text.decode("latin-1")
    return repr(plain if len(plain) <= 60 else plain[:57] + "...")


def head_problem(version: str, target: bytes, headers: Headers) -> Refusal | None:
    """Return the refusal of a head that a proxy in front could interpret differently; None if it is unambiguous."""
    if version not in VERSIONS:
        return malformed(f"HTTP/{version} is not supported", status=505)
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) != 1 and not (version == "1.0" and not hosts):
        return malformed(f"Host must be given once, not {len(hosts)} times")
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if codings and (version == "1.0" or len(codings) > 1 or codings[0].strip().lower() != b"chunked"):
        return malformed(
            f"Transfer-Encoding {shown(codings[0])} is not supported: only chunked is, in HTTP/1.1"
        )
    if b"#" in target:
        return malformed(f"the target {shown(target)} has a fragment, which is not sent to servers")
    return None if target.startswith(b"/") else _not_a_path(target, hosts[0] if hosts else b"")


def _not_a_path(target: bytes, host: bytes) -> Refusal | None:
    """Return the refusal of an absolute target, as sent to proxies, whose host differs from that of the Host header.

    Checks use the Host header, so the two must agree.
    """
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        return malformed(f"the target {shown(target)} is no path")
    port = b":%d" % url.port if url.port else b""
    name = b"[%s]" % url.host if url.host and b":" in url.host else url.host
    same = bool(name) and (name + port).lower() == host.strip().lower()
    if same and url.schema in (b"http", b"https") and not url.userinfo and url.path:
        return None
    return malformed(f"the target {shown(target)} does not match Host {shown(host)}")
