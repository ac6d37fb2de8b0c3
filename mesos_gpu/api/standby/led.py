"""The leader's reads: they are true as long as nobody else can lead, and say their age when somebody may.

A leader that was paused or cut off does not know at once that another was elected. What it would read then is old.
"""

from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesos_gpu.api.http.answers import error_answer
from mesos_gpu.api.http.door import SAFE
from mesos_gpu.api.standby.passing import unavailable
from mesos_gpu.api.standby.standby import of_this_scheduler, wants_latest


class Led:
    """ASGI middleware around the application of a leader."""

    def __init__(
        self, app: ASGIApp, unsure_s: Callable[[float], float | None], clock: Callable[[], float]
    ) -> None:
        """`unsure_s`: given a time of `clock`, for how long another may have led by now; None: none can, and all that
        was decided since that time was written."""
        self._app, self._unsure_s, self._clock = app, unsure_s, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; a read that may be old says so, or, if its client wants the latest alone, is refused."""
        if scope["type"] != "http" or scope["method"] not in SAFE or of_this_scheduler(scope["path"]):
            await self._app(scope, receive, send)
            return
        is_refused, asked_at = False, self._clock()

        async def judged(message: Message) -> None:
            nonlocal is_refused
            if is_refused:
                return
            # Looked at when all was read: what was read while this one led is true, whoever leads now.
            unsure_s = self._unsure_s(asked_at) if message["type"] == "http.response.start" else None
            if unsure_s is None:
                await send(message)
            elif wants_latest(Headers(scope=scope)):
                is_refused = True
                refusal = unavailable(
                    "ZooKeeper has not said of late that this scheduler leads still, or has not taken all of it"
                )
                await error_answer(refusal, scope["path"], refusal.headers)(scope, receive, send)
            else:
                headers = MutableHeaders(raw=list(message["headers"]))
                headers["Age"] = str(int(unsure_s))
                await send({**message, "headers": headers.raw})

        await self._app(scope, receive, judged)
