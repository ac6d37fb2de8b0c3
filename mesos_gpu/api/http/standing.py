"""End of long requests, such as streams of events and waits for a change.

They end when the proof of their caller expires, and when the server stops; their last answer counts neither as that of
a refused nor that of a failed request.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesos_gpu.api.http.answers import Refusal, error_answer

LOOK_S: Final = 2.0  # between two checks
ENDED: Final = Refusal(
    401,
    "unauthenticated",
    "the credentials of this request have expired meanwhile",
    remedy="log in again (mesos-gpu login)",
)
ENDS: Final = Refusal(
    503,
    "unavailable",
    "this scheduler is stopping, and has not answered in time",
    remedy="send the request again; for a change, check first whether it was made",
    headers={"Retry-After": "1"},
)


class Standing:
    """Ends a request during which the caller's proof expires; a short request costs one timer only.

    Args:
        stands: Function that returns whether the request may go on.
        receive: ASGI function that receives the body.
        send: ASGI function that sends the answer.
    """

    def __init__(self, stands: Callable[[], bool], receive: Receive, send: Send) -> None:
        self._stands, self._receive, self._send = stands, receive, send
        self._started = self._done = self._ended = False
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def receive(self) -> Message:
        """Return a message of the body.

        A client may hold back the end of a body, on which the handler acts at once: the proof is checked then, too.

        Raises:
            Refusal: `ENDED`: the proof has expired before the end of the body.
        """
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False) and not self._stands():
            raise ENDED
        return message

    async def send(self, message: Message) -> None:
        """Pass on a message of the answer, and note how far the answer is."""
        if message["type"] == "http.response.start":
            self._started = True
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            self._done = True
        await self._send(message)

    async def run(self, request: Awaitable[None]) -> bool:
        """Run a request; return False if it was ended before its answer began, so that `ENDED` must be sent.

        A stream that was ended gets a regular end.

        Raises:
            asyncio.CancelledError: The request was cancelled for another reason.
        """
        self._task = asyncio.current_task()
        self._check_later()
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

    def _check_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._check)

    def _check(self) -> None:
        """Cancel the request if the caller's proof has expired; else check again later."""
        if self._done or self._task is None:
            return
        if self._stands():
            self._check_later()
        else:
            self._ended = True
            self._task.cancel()


class ShutdownAnswers:
    """ASGI middleware that answers requests which uvicorn cancels at shutdown, instead of reporting internal errors.

    Args:
        app: The next ASGI application; `leaving` of its state says whether the server stops.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and answer it if it is cancelled."""
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
