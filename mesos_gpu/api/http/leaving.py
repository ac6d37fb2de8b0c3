"""What is answered to requests that a server which ends has no time for: it was neither refused nor a defect."""

import asyncio
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesos_gpu.api.http.answers import Refusal, error_answer

ENDS: Final = Refusal(
    503,
    "unavailable",
    "this scheduler ends, and has not answered in time",
    remedy="ask again; of a change, look first whether it was done",
    headers={"Retry-After": "1"},
)


class Leaving:
    """ASGI middleware. uvicorn cancels what it does not wait for, and would say of it that it failed inside."""

    def __init__(self, app: ASGIApp) -> None:
        """`app`: what to pass requests to; its state's `leaving` says whether the server ends."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and answer what is cancelled."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            if has_begun or not scope["app"].state.leaving:
                raise
            await error_answer(ENDS, scope["path"], ENDS.headers)(scope, receive, send)
