"""Restriction of the addresses to which a registry may refer: this process is root, and outside of the task's
fence.

A tenant names the registry, and the registry names further URLs, by the realm of its challenge and by
redirects.
"""

import http.client
import socket
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import IO, Any, Final, TypeAlias
from urllib import request as urls

from isolator.host.control_ports import Denial
from mesos_gpu.errors import NotFound

FAR: Final = ""
_LOOPBACK: Final = "a loopback address"
_LINK_LOCAL: Final = "a link-local address"  # where clouds provide a host's credentials, too
_METADATA: Final = "a link-local or metadata address, which tasks may not reach"
_Address: TypeAlias = IPv4Address | IPv6Address


class Reach:
    """HTTP client for one registry that connects to no control port, and to nothing nearer than the registry
    itself.

    Args:
        registry: Address of the registry, http[s]://HOST[:PORT].
        denied: Destinations that the task must not reach.
        trusted: Whether it is the operator's own, which may use any port of its host.
    """

    def __init__(self, registry: str, denied: Collection[Denial] = (), *, trusted: bool = False) -> None:
        self._registry, self._denied = registry, denied
        self._trusted = _origin(urls.Request(registry)) if trusted else None
        self._kind: str | None = None  # nearness of the registry itself, set by the first request
        self._checked: dict[tuple[str, int], list[str]] = {}
        self._opener = urls.OpenerDirector()  # the usual opener supports ftp: and file:, too
        for handler in (
            urls.ProxyHandler(),
            _Http(self),
            _Https(self),
            urls.HTTPDefaultErrorHandler(),
            _Redirects(),
            urls.HTTPErrorProcessor(),
            urls.UnknownHandler(),
        ):
            self._opener.add_handler(handler)

    def send(self, request: urls.Request, timeout_s: float) -> http.client.HTTPResponse:
        """Send a request, as urllib's urlopen does.

        Raises:
            NotFound: It, or a redirect of it, leads to an address that is not allowed.
            OSError, HTTPException: It, or its answer, fails on the way.
        """
        response: http.client.HTTPResponse = self._opener.open(request, timeout=timeout_s)
        return response

    def check(self, request: urls.Request, host: str, port: int) -> None:
        """Resolve a host, and remember the addresses that may be connected to.

        Raises:
            NotFound: It has addresses, but none of them is allowed.
        """
        try:
            addresses = _resolved(host, port)
        except OSError:  # a proxy may know the name; without a proxy nothing is connected to
            addresses = []
        if self._kind is None:
            kinds = {_nearness(address) for address in addresses}
            self._kind = kinds.pop() if len(kinds) == 1 else FAR
        denied: tuple[Denial, ...] = ()
        if _origin(request) != self._trusted:
            denied = tuple(each for each in self._denied if each.port in (None, port) and not each.exempt)
        if not addresses and any(each.address is None for each in denied):
            raise self._refused(request, _commands(port))
        why = {str(address): self._wrong(address, denied) for address in addresses}
        self._checked[host, port] = [address for address, word in why.items() if not word]
        if addresses and not self._checked[host, port]:
            raise self._refused(request, "; ".join(f"{address}: {word}" for address, word in why.items()))

    def _refused(self, request: urls.Request, why: str) -> NotFound:
        return NotFound(
            f"the registry {self._registry} refers to {request.full_url}: {why}",
            remedy="name an image of another registry",
        )

    def _wrong(self, address: _Address, denied: Collection[Denial]) -> str:
        """Return why an address must not be connected to; "" if it may."""
        for denial in denied:
            if denial.covers(str(address).partition("%")[0]):
                return _commands(denial.port) if denial.port is not None else _METADATA
        kind = _nearness(address)
        return "" if kind in (FAR, self._kind) else f"{kind}, where that registry is not"

    def connect(
        self, address: tuple[str, int], timeout: Any = None, source: tuple[str, int] | None = None
    ) -> socket.socket:
        """Connect as socket.create_connection does, but to a checked host only at the addresses that were checked."""
        if address not in self._checked:  # the operator's proxy, as hosts of URLs were checked
            return socket.create_connection(address, timeout, source)
        last: OSError = socket.gaierror(socket.EAI_NONAME, f"{address[0]}: name not known")
        for checked in self._checked[address]:
            try:
                return socket.create_connection((checked, address[1]), timeout, source)
            except OSError as error:
                last = error
        raise last


def _commands(port: int) -> str:
    return f"port {port} controls the cluster, and tasks may not reach it"


def _origin(request: urls.Request) -> tuple[str, str]:
    return request.type, request.host


def _resolved(host: str, port: int) -> list[_Address]:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(_plain(ip_address(str(each[4][0]))) for each in infos))


def _plain(address: _Address) -> _Address:
    """Return an address, or the IPv4 address that is mapped into it."""
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _nearness(address: _Address) -> str:
    if address.is_loopback or address.is_unspecified:  # a connection to 0.0.0.0 leads to this host
        return _LOOPBACK
    return _LINK_LOCAL if address.is_link_local else FAR


class _Redirects(urls.HTTPRedirectHandler):
    """Follows redirects of HEAD by HEAD, as signed URLs of storage services need it (urllib asks by GET)."""

    def redirect_request(self, req: urls.Request, *args: Any) -> urls.Request | None:
        request = super().redirect_request(req, *args)
        if request is not None and req.get_method() == "HEAD":
            request.method = "HEAD"
        return request

    def http_error_302(
        self, req: urls.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage
    ) -> Any:
        """Follow a redirect; the answer is closed also if what it refers to is no URL."""
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError:
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _Http(urls.HTTPHandler):
    """Checks each URL, also a redirect's, before a proxy takes it over."""

    def __init__(self, reach: Reach) -> None:
        super().__init__()
        self._reach = reach

    def http_request(self, request: urls.Request) -> urls.Request:
        _check(self._reach, request, http.client.HTTPConnection)
        return super().http_request(request)

    def http_open(self, request: urls.Request) -> http.client.HTTPResponse:
        return self.do_open(_through(self._reach, http.client.HTTPConnection), request)


class _Https(urls.HTTPSHandler):
    """HTTPS through a `Reach`, as `_Http` is HTTP through it."""

    def __init__(self, reach: Reach) -> None:
        super().__init__()
        self._reach = reach

    def https_request(self, request: urls.Request) -> urls.Request:
        _check(self._reach, request, http.client.HTTPSConnection)
        return super().https_request(request)

    def https_open(self, request: urls.Request) -> http.client.HTTPResponse:
        return self.do_open(_through(self._reach, http.client.HTTPSConnection), request)


def _check(reach: Reach, request: urls.Request, kind: type[http.client.HTTPConnection]) -> None:
    if not request.host or request.has_proxy():  # with a proxy, it is checked again on its way to the proxy
        return
    target = kind(request.host)  # so that HOST:PORT is parsed as for the later connection
    reach.check(request, target.host, target.port)


def _through(reach: Reach, kind: type[http.client.HTTPConnection]) -> Any:
    def connection(host: str, **options: Any) -> http.client.HTTPConnection:
        made = kind(host, **options)
        made._create_connection = reach.connect  # type: ignore[attr-defined]
        return made

    return connection
