"""Protection against requests that other web pages make a browser send, and security headers of answers.

A page of another origin may send requests here through its visitor's browser. It can neither set
`Content-Type: application/json` without a preflight request (Fetch standard, CORS), nor hide its Origin and its
relation to this site (Sec-Fetch-Site); and a name that was made to resolve to 127.0.0.1 shows in Host.
"""

import ipaddress
import re
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesos_gpu.adapters.proofs.peers import local_peer_in
from mesos_gpu.api.http.answers import Refusal, error_answer
from mesos_gpu.api.http.door import MAX_QUERY, REFUSED, SAFE, Reason, malformed, too_large
from mesos_gpu.model.addresses import is_loopback_address, is_loopback_host

_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_SECURITY: Final = {
    b"content-security-policy": _POLICY,
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}
_HSTS: Final = (b"strict-transport-security", b"max-age=31536000")  # RFC 6797: browsers use https from now on
_PRIVATE: Final = {b"cache-control": b"no-store"}  # unless the answer has its own Cache-Control
#: A browser sends a preflight request before either of these.
_TAKEN: Final = ("application/json", "application/merge-patch+json")
#: Refusals by readers of bodies, which do not count them.
_TOLD: Final = {400: Reason.JSON, 408: Reason.SLOW_BODY, 413: Reason.BODY}
_BYTES: Final = (
    "/v1/uploads/",
    "application/octet-stream",
)  # safe: a browser sends a preflight request before it, too
_FORM: Final = (
    "/login",
    "application/x-www-form-urlencoded",
)  # a browser sends the Origin of the page with it
_OTHERS: Final = ("cross-site", "same-site")  # Sec-Fetch-Site of other sites' pages
_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[a-zA-Z0-9._-]{1,253})(:[0-9]{1,5})?")


class Guard:
    """ASGI middleware that refuses forged requests of browsers, and adds security headers to answers.

    Args:
        app: The next ASGI application.
        names: Names by which clients may call this host.
    """

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self._app = app
        self._names = ascii_names(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse or pass on a request; add headers to the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        reason, refusal = self._judge(scope)

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] in _TOLD and not refusal:
                    REFUSED.count(_TOLD[message["status"]])
                present = {name.lower() for name, _ in message["headers"]}
                hsts = [_HSTS] if scope.get("scheme") == "https" else []
                defaults = (*_SECURITY.items(), *_PRIVATE.items(), *hsts)
                added = [header for header in defaults if header[0] not in present]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        if refusal:
            REFUSED.count(reason)
        await (error_answer(refusal, scope["path"]) if refusal else self._app)(scope, receive, marked)

    def _judge(self, scope: Scope) -> tuple[Reason, Refusal | None]:
        """Return the refusal of a request and its reason; no refusal for a request that passes."""
        fields = scope["query_string"].count(b"&") + 1
        if fields > MAX_QUERY:
            return Reason.HEAD, too_large("the query", fields, MAX_QUERY, "fields", status=400)
        if problem := host_problem(scope, self._names):
            return Reason.HOST, problem
        if problem := csrf_problem(scope):
            return Reason.ORIGIN, problem
        return Reason.MEDIA_TYPE, _media_problem(scope)


_HOST_REMEDY: Final = (
    "use an address, as 127.0.0.1, or let the scheduler accept the name, by --webui-url or --allowed-host {}"
)
RELAYED: Final = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


def ascii_names(names: Collection[str]) -> frozenset[str]:
    """Return host names in the form that they have in the Host header."""
    return frozenset(map(_ascii, names))


def host_problem(scope: Scope, names: Collection[str]) -> Refusal | None:
    """Return the refusal of a Host header that is not this machine's; None if it is.

    An attacker may make any name resolve to this address (DNS rebinding), so that unknown names are refused. Addresses
    cannot be forged like this.
    """
    hosts = Headers(scope=scope).getlist("host")
    if len(hosts) > 1:
        return malformed(f"Host must be given once, not {len(hosts)} times")
    host = hosts[0] if hosts else ""
    name = _name_of(host)
    own = _is_local_name if _is_loopback(scope) else _is_address
    if name and (name in names or own(name)):
        return None
    remedy = _HOST_REMEDY.format(name or "NAME")
    return Refusal(403, "forbidden", f"Host {host[:300]!r} is not this machine", remedy=remedy)


def may_see_env(request: Request) -> bool:
    """Return True if the caller is on this machine and no proxy stands in between.

    Raises:
        Refusal: The caller is elsewhere.
    """
    local = local_peer_in(request.scope.get("extensions") or {}) is not None
    near = local or (request.client is not None and is_loopback_address(request.client.host))
    if near and not any(name in request.headers for name in RELAYED):
        return True
    what = "environments are shown on the scheduler's own host only"
    raise Refusal(
        403, "forbidden", what, remedy="send the request there, without a proxy; or leave --show-env out"
    )


def csrf_problem(scope: Scope) -> Refusal | None:
    """Return the refusal of a request that a page of another origin makes a browser send; None for other requests.

    Programs send neither Origin nor Sec-Fetch-Site. A user may follow a link to a page of this server.
    """
    headers = Headers(scope=scope)
    safe, origin, site = scope["method"] in SAFE, headers.get("origin"), headers.get("sec-fetch-site")
    if site in _OTHERS and not (safe and headers.get("sec-fetch-mode") == "navigate"):
        what = f"a page that is {site} (Sec-Fetch-Site) may not send this request"
        return Refusal(403, "forbidden", what, remedy="use the dashboard, or no browser")
    if safe or origin is None or _is_origin(origin, scope.get("scheme", "http"), headers.get("host", "")):
        return None
    what = f"a page of {origin[:300]!r} may not send this request"
    return Refusal(403, "forbidden", what, remedy="use the dashboard, or no browser")


def _is_origin(origin: str, scheme: str, host: str) -> bool:
    """Return whether an origin is this server's: scheme (https also if a proxy adds TLS), host and port."""
    page, slashes, place = origin.partition("://")
    if not slashes or page not in _PORTS or (page != scheme and (page, scheme) != ("https", "http")):
        return False
    name = _name_of(place)
    return bool(name) and (name, _port_of(place, page)) == (_name_of(host), _port_of(host, page))


def _port_of(place: str, scheme: str) -> int:
    port = place.rpartition("]")[2].partition(":")[2]
    return int(port) if port else _PORTS[scheme]


def _media_problem(scope: Scope) -> Refusal | None:
    """Return the refusal of a body whose Content-Type a browser could send without a preflight request."""
    headers = Headers(scope=scope)
    if scope["method"] in SAFE:
        return None
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if scope["path"].startswith(_BYTES[0]) and kind == _BYTES[1]:
        return None
    if has_body and kind not in _TAKEN and (scope["path"], kind) != _FORM:
        what = f"Content-Type {kind[:300]!r} is not accepted here"
        return Refusal(415, "media-type", what, remedy="send Content-Type: application/json")
    return None


def _name_of(host: str) -> str:
    """Return the name or address in a Host header or an origin; "" if it is malformed, as in "me@there" or "[::1"."""
    match = _HOST.fullmatch(host)
    if match is None or int((match[2] or ":0")[1:]) > 65535:
        return ""
    return _normalized(match[1].strip("[]"))


def _ascii(name: str) -> str:
    """Return the form in which browsers send a name with other than ASCII letters."""
    try:
        return _normalized(name.encode("idna").decode("ascii"))
    except UnicodeError:  # a label that is empty or too long: no browser sends it
        return _normalized(name)


def _is_loopback(scope: Scope) -> bool:
    """Return whether a request came to a loopback address or a Unix socket."""
    if local_peer_in(scope.get("extensions") or {}) is not None:
        return True  # a Unix socket: a browser cannot be led to it
    server = scope.get("server")
    if server is None:
        return False
    return server[1] is None or is_loopback_address(
        server[0]
    )  # without a port it is a Unix socket, too (ASGI)


def _is_local_name(name: str) -> bool:
    return name.endswith(".localhost") or is_loopback_host(name)


def _normalized(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
