"""Authentication: determines the caller of a request before anything else is done with it."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesos_gpu.access.decide import Rights
from mesos_gpu.api.http import rights
from mesos_gpu.api.http.answers import Refusal, error_answer
from mesos_gpu.api.http.rate import UnauthenticatedLimit
from mesos_gpu.api.http.standing import ENDED, Standing
from mesos_gpu.model.access.caller import ANYBODY, NOBODY, Caller
from mesos_gpu.model.access.document import AccessDocument

Identify = Callable[[Scope], Awaitable[Caller]]
Stands = Callable[[Caller], bool]
Challenges = Callable[[Scope], Sequence[str]]
_ADDRESS: Final = "address"  # key in scope["state"]


async def nobody_is_asked(_scope: Scope) -> Caller:
    """Accept every request, as a scheduler without authentication does."""
    return ANYBODY


def is_not_over(caller: Caller) -> bool:
    """Return whether a proof has not expired."""
    return caller.until is None or time.time() < caller.until


def no_challenge(_scope: Scope) -> Sequence[str]:
    """Return no challenge."""
    return ()


class Authenticate:
    """ASGI middleware that determines the caller of each request, or refuses it.

    Args:
        app: The next ASGI application.
        document: Function that returns the current access document.
        identify: Function that returns the caller of a request; may raise `Refusal`.
        stands: Function that returns whether a caller's proof is still valid; called repeatedly during long requests.
        challenges: Function that returns the values of `WWW-Authenticate` for a 401.
        unnamed: Limit of requests without a proved name; None if names are not required.
    """

    def __init__(
        self,
        app: ASGIApp,
        document: Callable[[], AccessDocument],
        identify: Identify = nobody_is_asked,
        stands: Stands = is_not_over,
        challenges: Challenges = no_challenge,
        unnamed: UnauthenticatedLimit | None = None,
    ) -> None:
        self._unnamed = unnamed
        self._app, self._document, self._identify = app, document, identify
        self._stands, self._challenges = stands, challenges
        self._open = Rights(AccessDocument(), ANYBODY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Determine the caller, store its rights in the scope, and pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send_challenged = self._with_challenges(scope, send)
        try:
            caller = await self._identify(scope)
        except Refusal as refusal:
            too_much = self._unnamed.count(address_of(scope)) if self._unnamed is not None else None
            await self._refuse(too_much or refusal, scope, receive, send_challenged)
            return
        if self._unnamed is not None and not caller.is_proved:
            problem = self._unnamed.refusal(scope, address_of(scope), is_open=caller is ANYBODY)
            if problem is not None:
                await self._refuse(problem, scope, receive, send_challenged)
                return
        if caller is ANYBODY:
            rights.put(scope, lambda: self._open)
            await self._app(scope, receive, send)
            return
        self._put(scope, caller)
        standing = Standing(lambda: self._stands(caller), receive, send_challenged)
        if not await standing.run(self._app(scope, standing.receive, standing.send)):
            await error_answer(ENDED, scope["path"])(scope, receive, send_challenged)

    async def _refuse(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a refusal, as to an unknown caller."""
        self._put(scope, NOBODY)
        await error_answer(refusal, scope["path"], refusal.headers)(scope, receive, send)

    def _put(self, scope: Scope, caller: Caller) -> None:
        """Store the caller's rights in the scope, computed from the current document each time."""
        rights.put(scope, lambda: rights_by(self._document(), caller))

    def _with_challenges(self, scope: Scope, send: Send) -> Send:
        """Return a `send` that adds challenges to each 401: how a name may be proved (RFC 9110, section 11.6.1)."""

        async def challenged(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                headers = [
                    (b"www-authenticate", challenge.encode("latin-1"))
                    for challenge in self._challenges(scope)
                ]
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        return challenged


def note_address(scope: Scope, address: str) -> None:
    """Store the client address of a request, which trusted proxies may have forwarded."""
    scope.setdefault("state", {})[_ADDRESS] = address


def address_of(scope: Scope) -> str:
    """Return the client address of a request: the stored one, else the peer's; "" for a Unix socket."""
    client = scope.get("client")
    address = scope.get("state", {}).get(_ADDRESS, client[0] if client else "")
    return str(address)


class _Kept:
    """Access document as a cache key, compared by identity: a document never changes, another one is another object."""

    __slots__ = ("document",)

    def __init__(self, document: AccessDocument) -> None:
        self.document = document

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kept) and other.document is self.document

    def __hash__(self) -> int:
        return id(self.document)


def rights_by(document: AccessDocument, caller: Caller) -> Rights:
    """Return the rights of a caller under a document; recent results are cached."""
    return _rights(_Kept(document), caller)


@lru_cache(1024)
def _rights(kept: _Kept, caller: Caller) -> Rights:
    return Rights(kept.document, caller)
