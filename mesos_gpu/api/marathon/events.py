"""/v2/events: events for all listeners, as server-sent events.

Events are encoded once on a separate thread, and handed to all listeners at once. A listener that does not read is
disconnected, so that it neither fills the memory nor delays others.
"""

import asyncio
import contextlib
import json
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mesos_gpu.api.http.authenticate import rights_by
from mesos_gpu.api.http.rights import rights_of
from mesos_gpu.api.marathon.asked import Place
from mesos_gpu.api.marathon.errors import Refused
from mesos_gpu.api.marathon.event_bodies import events_of
from mesos_gpu.api.marathon.rights.heard import heard_by
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.api.sight.apps import AppSight
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.access.caller import Caller
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.apps.app_event import AppEvent, Attached, What

MAX_LISTENERS: Final = 500
MAX_OF_NAME: Final = 100  # of one proved name, so that it cannot use up all listeners
MAX_WAITING: Final = 1 << 22  # bytes that a listener has not read yet
QUIET_S: Final = 10.0  # after which a comment is sent, as proxies and clients close silent connections
_MAX_AT_ONCE: Final = 200  # events that are encoded before they are handed on
_KIND: Final = "text/event-stream"
_NOTHING: Final = b":\r\n\r\n"  # a comment, which clients ignore
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Wish:
    """The events that a listener wants, and its caller.

    Attributes:
        kinds: Types of events; empty for all.
        light: Whether plans of deployments are shortened.
        caller: The listener's caller, which limits visible events; None for one that sees everything.
    """

    kinds: frozenset[str]
    light: bool
    caller: Caller | None = None


@dataclass(eq=False, slots=True)
class _Listener:
    """A listener. To be used on the server's loop only."""

    wish: _Wish
    client: str
    waiting: deque[bytes] = field(default_factory=deque)
    size: int = 0  # bytes in `waiting`
    news: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    def give(self, text: bytes) -> None:
        """Queue text to be sent; disconnect the listener if too much is waiting already."""
        if text and self.size > MAX_WAITING:
            logger.warning("%s does not read its events (/v2/events): disconnected", self.client)
            self.end()
        elif text:
            self.waiting.append(text)
            self.size += len(text)
            self.news.set()

    def end(self) -> None:
        """Disconnect the listener; waiting text is dropped."""
        self.waiting.clear()
        self.ended = True
        self.news.set()

    async def texts(self) -> AsyncIterator[bytes]:
        """Yield text to be sent as it comes, and comments in between."""
        yield _NOTHING  # makes the server send the headers
        while not self.ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(QUIET_S):
                    await self.news.wait()
            self.news.clear()
            text = b"".join(self.waiting) or _NOTHING
            self.waiting.clear()
            self.size = 0
            if not self.ended:
                yield text


class Events:
    """All listeners of /v2/events.

    Args:
        scheduler: The scheduler, whose events are only requested while there are listeners.
    """

    def __init__(self, scheduler: SchedulerApi) -> None:
        self._scheduler = scheduler
        self._listeners: set[_Listener] = set()  # only for the server's loop
        self._wishes: frozenset[_Wish] = frozenset()  # wishes of all listeners
        self._loop: asyncio.AbstractEventLoop | None = None
        self._untell: Callable[[], None] = lambda: None
        self._told: queue.SimpleQueue[Sequence[AppEvent] | None] = queue.SimpleQueue()
        self._printer: threading.Thread | None = None

    async def stream(self, request: Request, _place: Place) -> Response:
        """GET /v2/events: a stream of events."""
        if _KIND not in request.headers.get("accept", ""):
            raise Refused(405, f"HTTP 405 Method Not Allowed: send Accept: {_KIND}", headers={"Allow": "GET"})
        if len(self._listeners) >= MAX_LISTENERS:
            raise Refused(503, f"there are {MAX_LISTENERS} listeners already", remedy="try again later")
        if request.method == "HEAD":
            return Response(media_type=_KIND)
        query = request.query_params
        rights = rights_of(request)
        caller = None if rights.is_open else rights.caller
        if caller and self._count_of(caller.name) >= MAX_OF_NAME:
            raise Refused(
                429,
                f"{caller.name} has {MAX_OF_NAME} listeners already",
                remedy="close some",
                headers={"Retry-After": "10"},
            )
        wish = _Wish(frozenset(query.getlist("event_type")), query.get("plan-format") == "light", caller)
        return _Stream(self, _Listener(wish, client_of(request)))

    def _count_of(self, name: str) -> int:
        return sum(
            listener.wish.caller is not None and listener.wish.caller.name == name
            for listener in self._listeners
        )

    @property
    def heard(self) -> bool:
        """Whether there are listeners."""
        return bool(self._listeners)

    def attach(self, listener: _Listener) -> None:
        """Let a listener get events from now on. To be called on the server's loop, as callbacks run there."""
        if not self._listeners:
            self._loop = asyncio.get_running_loop()
            self._untell = self._scheduler.tell(self._told.put)
        if self._printer is None:
            self._printer = threading.Thread(target=self._print, name="events", daemon=True)
            self._printer.start()
        self._listeners.add(listener)
        self._wishes = frozenset(registered.wish for registered in self._listeners)
        self.tell(Attached(listener.client))

    def detach(self, listener: _Listener) -> None:
        """Remove a listener, if this was not done before."""
        if listener not in self._listeners:
            return
        self._listeners.remove(listener)
        self._wishes = frozenset(registered.wish for registered in self._listeners)
        if not self._listeners:
            self._untell()
        self.tell(Attached(listener.client, left=True))

    def tell(self, what: What) -> None:
        """Send listeners an event that does not come from the engine."""
        if self._listeners:
            self._told.put([AppEvent(time.time(), what)])

    def close(self) -> None:
        """Disconnect all listeners, as the server stops."""
        self._told.put(None)
        for listener in self._listeners:
            listener.end()

    def _hand_on(self, texts: Mapping[_Wish, bytes]) -> None:
        for listener in tuple(self._listeners):
            listener.give(texts.get(listener.wish, b""))
            if listener.ended:
                self.detach(listener)

    def _print(self) -> None:
        """Encode events on a separate thread, so that the engine and other requests are not delayed."""
        while (events := self._told.get()) is not None:
            for first in range(0, len(events), _MAX_AT_ONCE):
                texts = self._texts(events[first : first + _MAX_AT_ONCE], self._wishes)
                if self._loop is not None:
                    with contextlib.suppress(RuntimeError):  # the loop has closed
                        self._loop.call_soon_threadsafe(self._hand_on, texts)

    def _texts(self, events: Sequence[AppEvent], wishes: Iterable[_Wish]) -> dict[_Wish, bytes]:
        """Return the encoded events by wish.

        Events for callers who see everything are encoded once for each form of plans; for a caller with limited rights
        they are filtered by its current visibility.
        """
        texts: dict[_Wish, bytes] = {}
        printed: dict[tuple[bool, Caller | None], list[tuple[str, bytes]]] = {}
        apps: Mapping[str, App] | None = None
        for wish in wishes:
            key = wish.light, wish.caller
            if key not in printed:
                heard: Sequence[AppEvent] = events
                if wish.caller is not None:
                    apps = self._apps() if apps is None else apps
                    sight = AppSight(rights_by(self._scheduler.access, wish.caller))
                    heard = list(filter(None, (heard_by(sight, event, apps) for event in events)))
                printed[key] = _printed(heard, light=wish.light)
            texts[wish] = _joined(printed[key], wish)
        return texts

    def _apps(self) -> Mapping[str, App]:
        """Return all apps by id. To be called on the encoding thread, as it may wait."""
        try:
            return self._scheduler.read(
                lambda view: {app.id: app for app in view.catalog.root.all_apps()}
            ).result()
        except MesosGpuError:  # the scheduler stops: no owners are known
            return {}


def client_of(request: Request) -> str:
    """Return the client's address; "" if it has none."""
    return request.client.host if request.client else ""


class _Stream(StreamingResponse):
    """Response that is a listener while it is being sent."""

    def __init__(self, events: Events, listener: _Listener) -> None:
        super().__init__(listener.texts(), headers={"Cache-Control": "no-cache"}, media_type=_KIND)
        self._events, self._listener = events, listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._events.attach(self._listener)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._events.detach(self._listener)


def _joined(printed: Iterable[tuple[str, bytes]], wish: _Wish) -> bytes:
    return b"".join(text for kind, text in printed if not wish.kinds or kind in wish.kinds)


def _printed(events: Iterable[AppEvent], *, light: bool) -> list[tuple[str, bytes]]:
    return [(kind, _text(kind, body)) for event in events for kind, body in events_of(event, light=light)]


def _text(kind: str, body: dict[str, Any]) -> bytes:
    """Write an event as Marathon's server does."""
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    return f"event: {kind}\r\ndata: {text}\r\n\r\n".encode("utf-8", "replace")
