"""What a browser must not be led to do: the interface has no passwords of its own.

A page of another origin may send requests here through its visitor's browser. It can neither set
`Content-Type: application/json` without asking first (Fetch standard, CORS), nor hide its Origin; and a name
that is made to resolve to 127.0.0.1 shows in Host.
"""

import ipaddress
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesos_gpu.api.http.answers import Refusal, error_answer

_SECURITY: Final = {
    b"content-security-policy": b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
}
_HSTS: Final = (
    b"strict-transport-security",
    b"max-age=31536000",
)  # RFC 6797: a browser says https from now on
_TAKEN: Final = ("application/json", "application/merge-patch+json")  # a browser asks before it sends either


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        """Around the application. `names`: by which operators call this host."""
        self._app = app
        self._names = frozenset(map(_plain, names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on; mark the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                sealed = [_HSTS] if scope.get("scheme") == "https" else []
                message["headers"] = [*message["headers"], *_SECURITY.items(), *sealed]
            await send(message)

        refusal = self._other_host(scope) or _refusal(scope)
        await (error_answer(refusal, scope["path"]) if refusal else self._app)(scope, receive, marked)

    def _other_host(self, scope: Scope) -> Refusal | None:
        """A name that somebody else makes resolve to this address. An address is nobody's to make so."""
        host = Headers(scope=scope).get("host", "")
        name = _plain(_name(f"//{host}"))
        own = _is_local_name if _is_loopback(scope) else _is_address
        if name in self._names or own(name):
            return None
        remedy = _HOST_REMEDY.format(name or "NAME")
        return Refusal(403, "forbidden", f"Host {host!r} is not this machine", remedy=remedy)


_HOST_REMEDY: Final = "use http://127.0.0.1:PORT there; or let the scheduler take it, by --allowed-host {}"
RELAYED: Final = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


def may_see_env(request: Request) -> bool:
    """Whether who asks is on this machine, and no proxy stands in between.

    Raises:
        Refusal: He is not.
    """
    near = request.client is not None and is_loopback_address(request.client.host)
    if near and not any(name in request.headers for name in RELAYED):
        return True
    what = "environments are shown on the scheduler's own host only"
    raise Refusal(403, "forbidden", what, remedy="ask there, without a proxy; or leave --show-env out")


def _refusal(scope: Scope) -> Refusal | None:
    headers = Headers(scope=scope)
    host = headers.get("host", "")
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return None
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        what = f"a page of {origin!r} may not do that here"
        return Refusal(403, "forbidden", what, remedy="use the dashboard, or no browser")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if has_body and kind not in _TAKEN:
        what = f"Content-Type {kind!r} is not taken"
        return Refusal(415, "media-type", what, remedy="send Content-Type: application/json")
    return None


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # as in "[::1"
        return ""


def _is_loopback(scope: Scope) -> bool:
    server = scope.get("server")
    return server is not None and is_loopback_address(server[0])


def _is_local_name(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost") or is_loopback_address(name)


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback_address(text: str) -> bool:
    """Whether it is an address, and only this machine has it."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
