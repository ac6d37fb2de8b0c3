"""Waits for changes of jobs, without polling."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from mesos_gpu.model.ids import JobId


class Changes:
    """Changes of jobs, from the engine's thread to requests that wait on the server's loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self.waiting: dict[JobId, set[asyncio.Event]] = {}  # changed on the loop only
        self._news = asyncio.Event()  # of any job; another one after each change

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop on which requests wait."""
        self._loop = loop

    def on_change(self, job_id: JobId, version: int) -> None:
        """Wake the requests that wait for a job. To be called on the engine's thread."""
        del version  # a request reads the job again
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop may close between the check and the call
                loop.call_soon_threadsafe(self._wake, job_id)

    def _wake(self, job_id: JobId) -> None:
        self._news.set()
        self._news = asyncio.Event()
        for event in self.waiting.get(job_id, ()):
            event.set()

    def close(self) -> None:
        """End all waits, as the server stops. To be called on the loop."""
        self._loop = None
        self._news.set()
        for job_id in self.waiting:
            self._wake(job_id)

    def any(self) -> asyncio.Event:
        """Return the event of the next change of any job, for `until`."""
        return self._news

    async def until(self, news: asyncio.Event, timeout_s: float) -> bool:
        """Wait for a change of any job; return whether there was one and the server does not stop."""
        try:
            async with asyncio.timeout(timeout_s):
                await news.wait()
        except TimeoutError:
            return False
        return self._loop is not None

    async def wait(
        self, job_id: JobId, seen: int, timeout_s: float, version: Callable[[], Awaitable[int]]
    ) -> None:
        """Wait until `version()` exceeds `seen`, or the time is over, or the server stops."""
        event = asyncio.Event()
        self.waiting.setdefault(job_id, set()).add(event)
        try:
            async with asyncio.timeout(timeout_s):
                while self._loop is not None and await version() <= seen:
                    await event.wait()
                    event.clear()
        except TimeoutError:
            return
        finally:
            self.waiting[job_id].discard(event)
            if not self.waiting[job_id]:
                del self.waiting[job_id]
