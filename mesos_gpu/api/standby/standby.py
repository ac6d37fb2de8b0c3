"""The application of a standby scheduler.

Requests that are listed here are answered from its copy of the state, marked with the copy's age; all others are
forwarded to the leader.
"""

import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesos_gpu.access.tokens import PREFIX, parts_of
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import Refusal, error_answer
from mesos_gpu.api.http.door import SAFE
from mesos_gpu.api.http.guard import Guard
from mesos_gpu.api.http.note import REQUEST_ID
from mesos_gpu.api.standby.lines import Lines
from mesos_gpu.api.standby.passing import LEADER, RETRY_S, Forwarder, Leader

#: If authentication is on, an older copy is not used: rights that were withdrawn since are not known here.
MAX_AGE_S: Final = 600.0
_PARTS: Final = (
    "static/[^/]+|v1/(jobs|services|tokens|queues|queue-versions|access/versions)/[^/]+|v1/jobs/[^/]+/tasks"
)
_LISTS: Final = (
    "|ping|v1/(health|openapi.json|leader|jobs|tasks|history|events|queues|queue-versions|services|templates|access"
    "|access/versions|access/rights|tokens|usage|usage/export|budgets)|v2/(leader|apps|groups|deployments|tasks)"
)
_LOCAL: Final = re.compile(f"/({_LISTS}|{_PARTS}|v2/(apps|groups)/.+)")
#: Paths whose answers are about this scheduler, and not about the state.
_OF_THIS: Final = re.compile("/(ping|v1/health|v1/leader|v2/leader|v1/openapi.json|static/.+)")
_LATEST: Final = re.compile(r"(^|[\s,])no-cache($|[\s,])", re.IGNORECASE)  # RFC 9111, section 5.2.1.4
_WAITS: Final = b"after"  # in a query: the answer waits for something new
_MARATHON: Final = "X-Marathon-Leader"


def of_this_scheduler(path: str) -> bool:
    """Return whether the answer at a path is about the scheduler that is asked, and not about the state."""
    return _OF_THIS.fullmatch(path) is not None


def wants_latest(headers: Headers) -> bool:
    """Return whether a client wants the leader's state, with all that was answered before, and no copy."""
    return _LATEST.search(headers.get("cache-control", "")) is not None


@dataclass(frozen=True, slots=True)
class Copy:
    """The copy of the state from which a standby answers.

    Attributes:
        age_s: Returns the greatest age in seconds; None if there is no copy yet.
        knows: Returns whether the token with an id is in the copy.
    """

    age_s: Callable[[], float | None]
    knows: Callable[[str], bool]


class Standby:
    """ASGI middleware that answers from the copy or forwards to the leader.

    Args:
        app: Application over the copy of the state.
        passing: Application that forwards requests.
        lines: Application that forwards WebSocket connections.
        copy: The copy of the state.
        leader: Function that returns the leader; None if no scheduler leads.
        names: Names by which clients may call this host.
        asks_names: Whether authentication is on.
    """

    def __init__(
        self,
        app: ASGIApp,
        passing: Forwarder,
        lines: Lines,
        copy: Copy,
        leader: Callable[[], Leader | None],
        names: Collection[str],
        asks_names: bool,
    ) -> None:
        self._app, self._copy, self._leader = app, copy, leader
        self._passed, self._lines = Guard(passing, names), lines
        self._asks_names = asks_names
        self._changed_at = 0.0  # monotonic time of the last answer to a forwarded change

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request from the copy, or forward it."""
        if scope["type"] == "websocket":
            await self._lines(scope, receive, send)
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        elif not self._is_local(scope):
            await self._pass(scope, receive, send)
        elif (problem := self._too_old(scope)) is not None:
            await error_answer(problem, scope["path"], problem.headers)(scope, receive, send)
        else:
            await self._app(scope, receive, self._marked(scope, send))

    def _is_local(self, scope: Scope) -> bool:
        """Return whether a request is answered from the copy of the state."""
        path, headers = scope["path"], Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD") or not _LOCAL.fullmatch(path):
            return False
        if of_this_scheduler(path):
            return True
        if (
            wants_latest(headers)
            or _WAITS in scope["query_string"]
            or (self._asks_names and "cookie" in headers)
        ):
            return False
        if self._leader() is None:
            return True
        return self._is_known(headers) and self._has_changes()

    def _is_known(self, headers: Headers) -> bool:
        """Return whether a request's token is in the copy; the leader knows a new token first."""
        token = headers.get("authorization", "").rpartition(" ")[2]
        parts = parts_of(token) if token.startswith(PREFIX) else None
        return parts is None or self._copy.knows(parts[0])

    def _has_changes(self) -> bool:
        """Return whether the copy has all changes forwarded from here, so that their callers see them."""
        age_s = self._copy.age_s()
        return age_s is not None and time.monotonic() - age_s > self._changed_at

    def _too_old(self, scope: Scope) -> Refusal | None:
        """Return the refusal of a request if the copy is missing or too old; None if it can be answered."""
        if of_this_scheduler(scope["path"]):
            return None
        note.begin(note.id_for(Headers(scope=scope).get(REQUEST_ID, "")))
        age_s = self._copy.age_s()
        if age_s is not None and (age_s < MAX_AGE_S or not self._asks_names):
            return None
        reason = "has no state yet" if age_s is None else f"has had no update for {age_s:.0f} s"
        return Refusal(
            503,
            "unavailable",
            f"no scheduler leads now, and this standby {reason}",
            remedy="restore ZooKeeper's quorum; see docs/high-availability.md",
            headers={"Retry-After": str(RETRY_S)},
        )

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request to the leader, and add headers to the answer."""
        about = note.begin(note.id_for(Headers(scope=scope).get(REQUEST_ID, "")))

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Before the answer is sent, as its client may read the change at once.
                self._note_change(scope)
                headers = MutableHeaders(raw=list(message["headers"]))
                headers[REQUEST_ID] = about.request
                headers.setdefault(LEADER.decode(), self._leader_or_none())
                message["headers"] = headers.raw
            await send(message)

        try:
            await self._passed(scope, receive, named)
        finally:
            self._note_change(scope)

    def _note_change(self, scope: Scope) -> None:
        if scope["method"] not in SAFE:
            self._changed_at = time.monotonic()

    def _leader_or_none(self) -> str:
        """Return the value of the header that names the leader: its URL, or "none"."""
        leader = self._leader()
        return leader.url if leader else "none"

    def _marked(self, scope: Scope, send: Send) -> Send:
        """Return a `send` that adds the leader and the age of the copy to an answer."""

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=list(message["headers"]))
                leader, age_s = self._leader(), self._copy.age_s()
                headers[LEADER.decode()] = self._leader_or_none()
                if age_s is not None and not of_this_scheduler(scope["path"]):
                    headers["Age"] = str(int(age_s))
                if _MARATHON in headers:
                    headers[_MARATHON] = leader.url if leader else ""
                message["headers"] = headers.raw
            await send(message)

        return marked
