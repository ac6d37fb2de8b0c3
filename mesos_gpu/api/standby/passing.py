"""Requests that only the leader can answer: a standby forwards each request and returns the answer."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Message, Receive, Scope, Send

from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import Refusal, error_answer
from mesos_gpu.api.http.authenticate import address_of
from mesos_gpu.api.http.door import SAFE
from mesos_gpu.api.http.note import REQUEST_ID
from mesos_gpu.api.http.rate import UnauthenticatedLimit
from mesos_gpu.api.login.who import Who
from mesos_gpu.api.standby.heard import target_of
from mesos_gpu.api.standby.upstream import CONNECT_S, Headers, Upstream, opened
from mesos_gpu.api.standby.word import HEADER, Signer
from mesos_gpu.model.access.caller import Caller

LEADER: Final = b"mesos-gpu-standby"  # header of answers, with the leader's URL
RETRY_S: Final = 2
_HOPS: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)  # RFC 9110, section 7.6.1
#: Headers of requests that are replaced for the connection to the leader, stated in the signed header, or checked here.
_OURS: Final = frozenset(
    [b"host", b"expect", b"origin", b"via", b"forwarded", b"x-real-ip", b"x-request-id", HEADER.encode()]
)
_RELAYED: Final = b"x-forwarded-"
_GONE: Final = "the leader ended the connection"


@dataclass(frozen=True, slots=True)
class Leader:
    """The leading scheduler: its URL, and the id of this run of its process."""

    url: str
    run: str


class Forwarder:
    """ASGI application that forwards requests to the leader."""

    def __init__(
        self,
        leader: Callable[[], Leader | None],
        signer: Signer,
        who: Who | None = None,
        tls: ssl.SSLContext | None = None,
        proved_by: Iterable[str] = (),
    ) -> None:
        """Set how to reach the leader.

        Args:
            leader: Function that returns the leader; None if no scheduler leads.
            signer: Signer of this scheduler's statements.
            who: Identification of callers by their connections; None if authentication is off.
            tls: TLS context by which the leader is verified; None for plain HTTP.
            proved_by: Headers by which trusted proxies prove names; they are checked here, and not forwarded.
        """
        self._leader, self._signer, self._who, self._tls = leader, signer, who, tls
        self._dropped = _OURS | {header.lower().encode("latin-1") for header in proved_by}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, or answer why this is not possible."""
        try:
            leader = self._next(scope)
            await self._pass(leader, scope, receive, send)
        except Refusal as refusal:
            await error_answer(refusal, scope["path"], refusal.headers)(scope, receive, send)

    def _next(self, scope: Scope) -> Leader:
        """Return the leader for a request.

        Raises:
            Refusal: No scheduler leads, or the request was forwarded already.
        """
        if any(name == HEADER.encode() for name, _ in scope["headers"]):
            raise unavailable(
                "this scheduler is a standby; it does not forward a request that was forwarded already"
            )
        leader = self._leader()
        if leader is None:
            raise unavailable("no scheduler leads now, and this one is a standby")
        return leader

    async def _pass(self, leader: Leader, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request to the leader, and its answer to the client."""
        head = await self._head(leader, scope)
        try:
            upstream = await opened(leader.url, self._tls, is_head=scope["method"] == "HEAD")
        except (OSError, TimeoutError) as error:
            why = str(error) or f"no connection within {CONNECT_S:g} s"
            raise unavailable(f"the leader {leader.url} does not answer: {why}") from error
        try:
            sent = asyncio.ensure_future(_forward(upstream, head, _is_chunked(scope), receive))
            got = asyncio.ensure_future(_return_answer(upstream, leader, scope, send))
            try:
                await asyncio.wait((sent, got), return_when=asyncio.FIRST_COMPLETED)
                if not got.done():  # the client has disconnected
                    return
                await got
            finally:
                for task in (sent, got):
                    task.cancel()
                await asyncio.gather(sent, got, return_exceptions=True)
        finally:
            await upstream.close()

    async def _head(self, leader: Leader, scope: Scope) -> bytes:
        """Return the head of the forwarded request, with a signed statement of its origin."""
        client = scope.get("client") or ("", 0)
        address, callers = (client[0], ()) if self._who is None else await self._proved(self._who, scope)
        target = target_of(scope)
        word = self._signer.sign(
            leader.run, scope["method"], target, address, int(client[1] or 0), tuple(callers)
        )
        headers = [
            header
            for header in end_to_end(scope["headers"])
            if header[0] not in self._dropped and not header[0].startswith(_RELAYED)
        ]
        ours = [
            (b"host", urlsplit(leader.url).netloc.encode()),
            (b"connection", b"close"),
            (b"via", b"1.1 mesos-gpu"),
            (REQUEST_ID.lower().encode(), note.request_id().encode()),
            (HEADER.encode(), word.encode()),
            *([(b"transfer-encoding", b"chunked")] if _is_chunked(scope) else []),
        ]
        lines = [b"%s: %s\r\n" % header for header in (*ours, *headers)]
        return f"{scope['method']} {target} HTTP/1.1\r\n".encode("latin-1") + b"".join(lines) + b"\r\n"

    async def _proved(self, who: Who, scope: Scope) -> tuple[str, Sequence[Caller]]:
        """Return the address of a request, and the callers that its connection proves.

        A request without any proof counts for its address, as one that is answered here. Whether a token, a password or
        a session is right only the leader knows, which counts wrong ones.

        Raises:
            Refusal: A proof of the connection is wrong, or the address sends too many requests without a name.
        """
        unnamed: UnauthenticatedLimit = scope["app"].state.unnamed
        try:
            address, callers = await who.of_connection(scope)
        except Refusal as refusal:
            raise unnamed.count(address_of(scope)) or refusal from refusal
        too_much = None if callers or who.shows_more(scope) else unnamed.over_limit(scope, address)
        if too_much is not None:
            raise too_much
        return address, callers


def unavailable(what: str) -> Refusal:
    """Return the refusal (503) for requests that need a leader while no scheduler leads."""
    remedy = f"try again in {RETRY_S} s; if this lasts, see mesos-gpu leader, and docs/high-availability.md"
    return Refusal(503, "unavailable", what, remedy=remedy, headers={"Retry-After": str(RETRY_S)})


def end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers that do not belong to a single connection."""
    named = {
        word.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for word in value.split(b",")
    }
    return [header for header in headers if header[0].lower() not in _HOPS | named]


def _is_chunked(scope: Scope) -> bool:
    return any(name == b"transfer-encoding" for name, _ in scope["headers"])


async def _forward(upstream: Upstream, head: bytes, chunked: bool, receive: Receive) -> None:
    """Forward a request as it comes, then wait until its client disconnects."""
    with contextlib.suppress(OSError):  # the missing answer or its content shows the error
        await upstream.send(head)
    while (message := await receive())["type"] != "http.disconnect":
        piece = message.get("body", b"")
        if chunked and piece:
            piece = b"%x\r\n%s\r\n" % (len(piece), piece)
        if chunked and not message.get("more_body"):
            piece += b"0\r\n\r\n"
        if piece:
            with contextlib.suppress(OSError):
                await upstream.send(piece)


async def _return_answer(upstream: Upstream, leader: Leader, scope: Scope, send: Send) -> None:
    """Return an answer as it comes."""
    try:
        status, headers = await upstream.head()
    except (OSError, TimeoutError) as error:
        raise _no_answer(scope, leader, error) from error
    marked = [*end_to_end(headers), (LEADER, leader.url.encode())]
    start: Message = {"type": "http.response.start", "status": status, "headers": marked}
    await send(start)
    is_stream = any(name == b"content-type" and b"event-stream" in value for name, value in headers)
    try:
        async for piece in upstream.body():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    except (OSError, TimeoutError):
        if not is_stream:
            raise  # the client must not take an incomplete answer for a complete one
    await send({"type": "http.response.body", "body": b""})


def _no_answer(scope: Scope, leader: Leader, error: Exception) -> Refusal:
    """Return the refusal of a request that the leader has not answered: 502 if it may have been carried out."""
    why = f"{leader.url} does not answer: {str(error) or _GONE}"
    if scope["method"] in SAFE:
        return unavailable(f"the leader {why}")
    return Refusal(
        502,
        "unavailable",
        f"the leader {why}; it is not known whether the request was carried out",
        remedy="check whether the change was made before you repeat the request",
    )
