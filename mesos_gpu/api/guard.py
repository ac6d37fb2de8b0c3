"""What a browser must not be led to do: the interface has no passwords of its own.

A page of another origin may send requests here through its visitor's browser. It can neither set
`Content-Type: application/json` without asking first (Fetch standard, CORS), nor hide its Origin; and a name
that is made to resolve to 127.0.0.1 shows in Host.
"""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOCAL: Final = ("localhost", "testserver")
_SECURITY: Final = {
    b"content-security-policy": b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
}


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        """Around the application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on and mark the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = _refusal(scope)
        if refusal is not None:
            from mesos_gpu.api.app import error_response

            status, code, what, remedy = refusal
            await error_response(status, code, what, remedy)(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_SECURITY.items()]
            await send(message)

        await self._app(scope, receive, marked)


def _refusal(scope: Scope) -> tuple[int, str, str, str] | None:
    headers = Headers(scope=scope)
    host = headers.get("host", "")
    if _is_loopback(scope) and not _is_local_name(urlsplit(f"//{host}").hostname or ""):
        return 403, "forbidden", f"Host {host!r} is not this machine", "use http://127.0.0.1:PORT"
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return None
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return (
            403,
            "forbidden",
            f"a page of {origin} may not do that here",
            "use the dashboard, or no browser",
        )
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if has_body and kind != "application/json":
        return 415, "media-type", f"Content-Type {kind!r} is not taken", "send Content-Type: application/json"
    return None


def _is_loopback(scope: Scope) -> bool:
    server = scope.get("server")
    try:
        return server is not None and ipaddress.ip_address(server[0]).is_loopback
    except ValueError:
        return False


def _is_local_name(name: str) -> bool:
    if name in _LOCAL or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
