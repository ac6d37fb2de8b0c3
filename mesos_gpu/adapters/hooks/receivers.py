"""Addresses to which webhooks may be sent: the operator lists them, because users choose the addresses of their hooks.

A request to a hook comes from the scheduler's host, so it must not reach services that only this host can reach.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from mesos_gpu.access.patterns import fits
from mesos_gpu.adapters.hooks.lookups import LookUp, look_up
from mesos_gpu.errors import NotAccepted
from mesos_gpu.policy.apps.outward import Address, Network, innermost, kind_of

MAX_LENGTH: Final = 1000  # characters of a URL
_HTTPS: Final = 443
#: A label of a host name (RFC 1123). A lookup of other names raises UnicodeError.
_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}$)(\*\.)?{_LABEL}(\.{_LABEL})*")
_ENTRY: Final = re.compile(
    r"(?P<host>\[[0-9a-fA-F:.]+\](?:/\d+)?|[^:]+|[0-9a-fA-F:]+(?:/\d+)?)(?::(?P<port>\d+|\*))?"
)
_ANY: Final = -1


@dataclass(frozen=True, slots=True)
class Entry:
    """An allowed receiver: a name (`*.` in front for all names below it) or a network, at one port or at any."""

    name: str
    network: Network | None
    port: int

    def has_port(self, port: int) -> bool:
        """Return whether the entry allows a port."""
        return self.port in (_ANY, port)


def entry(text: str) -> Entry:
    """Parse a word of the operator's list: NAME, *.NAME, ADDRESS or ADDRESS/BITS, then optionally :PORT or :*.

    Raises:
        ValueError: The word has none of these forms.
    """
    parts = _ENTRY.fullmatch(text.strip().lower())
    if parts is None:
        raise ValueError(f"{text!r} is neither HOST nor HOST:PORT nor NETWORK")
    host, port = parts["host"].replace("[", "").replace("]", ""), parts["port"]
    number = _ANY if port == "*" else int(port or _HTTPS)
    if not (number == _ANY or 0 < number < 1 << 16):
        raise ValueError(f"{text!r} has no port, which is 1 to 65535, or * for any")
    try:
        return Entry("", ip_network(host), number)
    except ValueError:
        if "/" in host or not _NAME.fullmatch(host):
            raise ValueError(f"{text!r} is neither the name of a host nor a network") from None
        return Entry(host, None, number)


@dataclass(frozen=True, slots=True)
class Receiver:
    """Destination of a request: a host by its name, and the only addresses to connect to."""

    url: SplitResult
    host: str
    port: int
    addresses: tuple[str, ...]


class Fault(NamedTuple):
    """Reason why a URL is refused. `is_listed`: False if a longer list of the operator would allow it."""

    why: str
    is_listed: bool = True

    @property
    def with_remedy(self) -> str:
        """The reason, with a remedy if the operator can allow the URL."""
        return self.why if self.is_listed else f"{self.why}; {REMEDY}"


@dataclass(frozen=True, slots=True)
class Receivers:
    """Receivers that the operator allows; none if empty."""

    entries: tuple[Entry, ...] = ()

    def wrong(self, url: str) -> Fault | None:
        """Return why a hook may not have a URL; None if it may. A name's addresses are checked at each call."""
        try:
            host, port = _place_of(url)
        except ValueError as error:
            return Fault(str(error))
        if self._is_allowed(host, _literal(host), port):
            return None
        return Fault(f"{host}:{port} is not an allowed receiver", is_listed=False)

    def _is_allowed(self, host: str, literal: Address | None, port: int) -> bool:
        if literal is not None:
            return self._in_network(literal, port)
        return self._named(host, port) or any(
            allowed.network and allowed.has_port(port) for allowed in self.entries
        )

    def _named(self, host: str, port: int) -> bool:
        return any(
            allowed.name and allowed.has_port(port) and fits(allowed.name, host) for allowed in self.entries
        )

    def _in_network(self, address: Address, port: int) -> bool:
        real = innermost(address)
        return any(
            allowed.network is not None
            and allowed.has_port(port)
            and real.version == allowed.network.version
            and real in allowed.network
            for allowed in self.entries
        )

    def resolved(self, url: str, addresses_of: LookUp = look_up) -> Receiver:
        """Look up the host of a URL, and keep the allowed addresses: requests connect to no other ones.

        Args:
            url: URL of the hook.
            addresses_of: Function that looks up a host.

        Raises:
            NotAccepted: The URL, or each of its addresses, is not allowed.
            OSError: The host does not exist, or its lookup took too long.
        """
        if fault := self.wrong(url):
            raise _refused(fault.why)
        parts, (host, port) = urlsplit(url), _place_of(url)
        addresses = addresses_of(host, port)
        reasons = {address: self._wrong_address(host, address, port, parts.scheme) for address in addresses}
        allowed = tuple(address for address in addresses if not reasons[address])
        if not allowed:
            raise _refused("; ".join(reasons.values()))
        return Receiver(parts, host, port, allowed)

    def _wrong_address(self, host: str, address: str, port: int, scheme: str) -> str:
        real = innermost(ip_address(address))
        if scheme == "http" and not real.is_loopback:
            return f"{host} is {address}, and unencrypted requests may go to this host's loopback only"
        if self._in_network(real, port):
            return ""
        if not self._named(host, port):
            return f"{host} is {address}, which is in no network that is allowed"
        kind = kind_of(real)
        return f"{host} is {address}, {kind}, which must be listed by its address" if kind else ""


def _place_of(url: str) -> tuple[str, int]:
    """Return host and port of a URL for a webhook.

    Raises:
        ValueError: A webhook cannot have this URL.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (80 if parts.scheme == "http" else _HTTPS)
    except ValueError as error:
        raise ValueError(f"is not a URL: {error}") from error
    if len(url) > MAX_LENGTH or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"must be a URL of at most {MAX_LENGTH} characters of ASCII, without blanks")
    if parts.scheme not in ("https", "http") or not host:
        raise ValueError("must begin with https://, and name a host")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("must have no user, no password and no fragment")
    literal = _literal(host)
    if literal is None and not _NAME.fullmatch(host):
        raise ValueError(f"{host[:60]!r} is not the name of a host")
    if parts.scheme == "http" and not (host == "localhost" or (literal and literal.is_loopback)):
        raise ValueError("must begin with https://: unencrypted requests may go to this host's loopback only")
    return host, port


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _refused(why: str) -> NotAccepted:
    return NotAccepted([("/url", why)], remedy=REMEDY)


REMEDY: Final = "the operator lists receivers with --webhook-to of the scheduler"


def receivers(words: Sequence[str]) -> Receivers:
    """Return the allowed receivers of a list of words.

    Raises:
        ValueError: A word is invalid.
    """
    return Receivers(tuple(entry(word) for word in words))
