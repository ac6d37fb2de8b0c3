"""Who calls: worked out before anything else is done with a request."""

from collections.abc import Awaitable, Callable
from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send

from mesos_gpu.access.decide import Rights
from mesos_gpu.api.http import rights
from mesos_gpu.model.access.caller import ANYBODY, Caller
from mesos_gpu.model.access.document import AccessDocument

Identify = Callable[[Scope], Awaitable[Caller]]


async def nobody_is_asked(_scope: Scope) -> Caller:
    """Let everybody in, as a scheduler on loopback does that no proof is set up for."""
    return ANYBODY


class Authenticate:
    """ASGI middleware."""

    def __init__(
        self, app: ASGIApp, document: Callable[[], AccessDocument], identify: Identify = nobody_is_asked
    ) -> None:
        """Around the application. `document`: as it is now; `identify`: may raise `Refusal`."""
        self._app, self._document, self._identify = app, document, identify
        self._open = Rights(AccessDocument(), ANYBODY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Say who calls, and pass on."""
        if scope["type"] == "http":
            caller = await self._identify(scope)
            rights.put(scope, self._open if caller is ANYBODY else _rights(_Kept(self._document()), caller))
        await self._app(scope, receive, send)


class _Kept:
    """A document by its identity: it is not changed, and another one is another object."""

    __slots__ = ("document",)

    def __init__(self, document: AccessDocument) -> None:
        self.document = document

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kept) and other.document is self.document

    def __hash__(self) -> int:
        return id(self.document)


@lru_cache(1024)
def _rights(kept: _Kept, caller: Caller) -> Rights:
    return Rights(kept.document, caller)
