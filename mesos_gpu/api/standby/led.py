"""Reads from a leader: valid as long as no other scheduler can lead; else the answer has an Age header.

A leader that was paused or cut off does not know at once that another one was elected; its state would be outdated.
"""

from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesos_gpu.api.http.answers import error_answer
from mesos_gpu.api.http.door import SAFE
from mesos_gpu.api.standby.passing import unavailable
from mesos_gpu.api.standby.standby import of_this_scheduler, wants_latest


class Led:
    """ASGI middleware around the application of a leader.

    Args:
        app: The next ASGI application.
        unsure_s: Function that returns, for a time of `clock`, for how many seconds another scheduler may have led;
            None if none can, and if everything decided before that time is saved.
        clock: Monotonic clock, in seconds.
    """

    def __init__(
        self, app: ASGIApp, unsure_s: Callable[[float], float | None], clock: Callable[[], float]
    ) -> None:
        self._app, self._unsure_s, self._clock = app, unsure_s, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.

        An answer that may be outdated gets an Age header, or is refused if its client wants the latest state.
        """
        if scope["type"] != "http" or scope["method"] not in SAFE or of_this_scheduler(scope["path"]):
            await self._app(scope, receive, send)
            return
        is_refused, asked_at = False, self._clock()

        async def judged(message: Message) -> None:
            nonlocal is_refused
            if is_refused:
                return
            # Checked after everything was read: what was read while this scheduler led stays valid.
            unsure_s = self._unsure_s(asked_at) if message["type"] == "http.response.start" else None
            if unsure_s is None:
                await send(message)
            elif wants_latest(Headers(scope=scope)):
                is_refused = True
                refusal = unavailable(
                    "ZooKeeper has not confirmed lately that this scheduler leads, or has not saved its latest changes"
                )
                await error_answer(refusal, scope["path"], refusal.headers)(scope, receive, send)
            else:
                headers = MutableHeaders(raw=list(message["headers"]))
                headers["Age"] = str(int(unsure_s))
                await send({**message, "headers": headers.raw})

        await self._app(scope, receive, judged)
