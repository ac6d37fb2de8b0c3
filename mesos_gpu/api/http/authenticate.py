"""Who calls: worked out before anything else is done with a request."""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesos_gpu.access.decide import Rights
from mesos_gpu.api.http import rights
from mesos_gpu.api.http.answers import Refusal, error_answer
from mesos_gpu.api.http.rate import Unnamed
from mesos_gpu.api.http.standing import ENDED, Standing
from mesos_gpu.model.access.caller import ANYBODY, NOBODY, Caller
from mesos_gpu.model.access.document import AccessDocument

Identify = Callable[[Scope], Awaitable[Caller]]
Stands = Callable[[Caller], bool]
Challenges = Callable[[Scope], Sequence[str]]
_ADDRESS: Final = "address"  # of scope["state"]


async def nobody_is_asked(_scope: Scope) -> Caller:
    """Let everybody in, as a scheduler on loopback does that no proof is set up for."""
    return ANYBODY


def is_not_over(caller: Caller) -> bool:
    """Whether a proof has not ended by itself."""
    return caller.until is None or time.time() < caller.until


def no_challenge(_scope: Scope) -> Sequence[str]:
    """Name no proof to who has shown none."""
    return ()


class Authenticate:
    """ASGI middleware."""

    def __init__(
        self,
        app: ASGIApp,
        document: Callable[[], AccessDocument],
        identify: Identify = nobody_is_asked,
        stands: Stands = is_not_over,
        challenges: Challenges = no_challenge,
        unnamed: Unnamed | None = None,
    ) -> None:
        """Around the application.

        Args:
            app: What to pass requests to.
            document: Who may do what, as it is now.
            identify: Says who calls; may raise `Refusal`.
            stands: Whether a proof still proves its name: asked while a request lasts.
            challenges: Values of `WWW-Authenticate` for a 401.
            unnamed: Limit of requests without a proved name; None if names are not required.
        """
        self._unnamed = unnamed
        self._app, self._document, self._identify = app, document, identify
        self._stands, self._challenges = stands, challenges
        self._open = Rights(AccessDocument(), ANYBODY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Say who calls, and pass on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = self._telling(scope, send)
        try:
            caller = await self._identify(scope)
        except Refusal as refusal:
            too_much = self._unnamed.count(address_of(scope)) if self._unnamed is not None else None
            await self._refuse(too_much or refusal, scope, receive, told)
            return
        if self._unnamed is not None and not caller.is_proved:
            problem = self._unnamed.refusal(scope, address_of(scope), is_open=caller is ANYBODY)
            if problem is not None:
                await self._refuse(problem, scope, receive, told)
                return
        if caller is ANYBODY:
            rights.put(scope, lambda: self._open)
            await self._app(scope, receive, send)
            return
        self._put(scope, caller)
        standing = Standing(lambda: self._stands(caller), receive, told)
        if not await standing.run(self._app(scope, standing.receive, standing.send)):
            await error_answer(ENDED, scope["path"])(scope, receive, told)

    async def _refuse(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        self._put(scope, NOBODY)
        await error_answer(refusal, scope["path"], refusal.headers)(scope, receive, send)

    def _put(self, scope: Scope, caller: Caller) -> None:
        rights.put(scope, lambda: rights_by(self._document(), caller))

    def _telling(self, scope: Scope, send: Send) -> Send:
        """Say with each 401 how a name may be proved (RFC 9110, section 11.6.1)."""

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                headers = [(b"www-authenticate", each.encode("latin-1")) for each in self._challenges(scope)]
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        return told


def note_address(scope: Scope, address: str) -> None:
    """Store the client address of a request, which trusted proxies may have forwarded."""
    scope.setdefault("state", {})[_ADDRESS] = address


def address_of(scope: Scope) -> str:
    """Return the client address of a request: the stored one, else the peer's; "" for a Unix socket."""
    client = scope.get("client")
    address = scope.get("state", {}).get(_ADDRESS, client[0] if client else "")
    return str(address)


class _Kept:
    """A document by its identity: it is not changed, and another one is another object."""

    __slots__ = ("document",)

    def __init__(self, document: AccessDocument) -> None:
        self.document = document

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kept) and other.document is self.document

    def __hash__(self) -> int:
        return id(self.document)


def rights_by(document: AccessDocument, caller: Caller) -> Rights:
    """What a caller may do by a document; what was worked out lately is remembered."""
    return _rights(_Kept(document), caller)


@lru_cache(1024)
def _rights(kept: _Kept, caller: Caller) -> Rights:
    return Rights(kept.document, caller)
