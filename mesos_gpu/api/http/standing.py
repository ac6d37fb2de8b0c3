"""Requests that last, as streams of events and waits for a change, end when the proof of who sent them does, and with
the server: what is answered then was neither refused nor failed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesos_gpu.api.http.answers import Refusal, error_answer

LOOK_S: Final = 2.0  # between two looks
ENDED: Final = Refusal(
    401,
    "unauthenticated",
    "what proved the name has ended meanwhile",
    remedy="log in again (mesos-gpu login)",
)
ENDS: Final = Refusal(
    503,
    "unavailable",
    "this scheduler ends, and has not answered in time",
    remedy="ask again; of a change, look first whether it was done",
    headers={"Retry-After": "1"},
)


class Standing:
    """Looks after a request while it goes on, which costs those that do not last a timer and nothing else."""

    def __init__(self, stands: Callable[[], bool], receive: Receive, send: Send) -> None:
        """`stands`: whether it may go on; `receive`: where its body comes from; `send`: where its answer goes."""
        self._stands, self._receive, self._send = stands, receive, send
        self._started = self._done = self._ended = False
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def receive(self) -> Message:
        """Pass on a piece of the body. Its end may have been held back, and the handler acts on it at once.

        Raises:
            Refusal: `ENDED`: the body has its end only now, and the proof is over.
        """
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False) and not self._stands():
            raise ENDED
        return message

    async def send(self, message: Message) -> None:
        """Note how far the answer is, and pass on."""
        if message["type"] == "http.response.start":
            self._started = True
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            self._done = True
        await self._send(message)

    async def run(self, request: Awaitable[None]) -> bool:
        """Let a request go on, and whether it did to its end: if not, and nothing is answered yet, `ENDED` is what
        to answer; a stream is ended.

        Raises:
            asyncio.CancelledError: Somebody else ended it.
        """
        self._task = asyncio.current_task()
        self._arm()
        try:
            await request
        except asyncio.CancelledError:
            if not self._ended or self._task is None or self._task.uncancel():
                raise
        finally:
            if self._timer is not None:
                self._timer.cancel()
        if self._ended and self._started and not self._done:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        return self._started or not self._ended

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        if self._done or self._task is None:
            return
        if self._stands():
            self._arm()
        else:
            self._ended = True
            self._task.cancel()


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
