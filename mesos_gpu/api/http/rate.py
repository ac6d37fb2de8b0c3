"""Limits of requests for each caller: 429 with a time to wait for requests beyond them.

Requests that wait (`/v2/events`, long polls) are counted apart from those that are answered at once, and health checks
and metrics have a limit of their own, so that a flood of requests does not make the scheduler look unhealthy.
"""

import math
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from starlette.requests import HTTPConnection
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mesos_gpu.access.rate import Buckets, Limits, Tally, network_of
from mesos_gpu.api.http.answers import Refusal, error_answer
from mesos_gpu.api.http.door import REFUSED, Reason
from mesos_gpu.api.http.rights import Needs, caller_of, rules_of

MAX_STREAMS: Final = 750  # of all callers; leaves a quarter of the connections for other requests
_PROBES: Final = ("/ping", "/metrics", "/metrics/prometheus", "/v1/health")
_EVENTS: Final = ("/v1/events", "/v2/events")
_JOBS: Final = "/v1/jobs/"


class _Kind(Enum):
    PROBE = "probe"
    STREAM = "stream"
    REQUEST = "request"


class Rate:
    """ASGI middleware that limits requests of each caller; it runs after authentication.

    Args:
        app: The next ASGI application.
        limits: Limits of each caller; None for the defaults.
        clock: Monotonic clock, in seconds.
    """

    def __init__(
        self, app: ASGIApp, limits: Limits | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app, self._clock, self._limits = app, clock, limits or Limits()
        limits = self._limits
        self._asked = Buckets(limits.rate_per_s, limits.burst)
        self._probed = Buckets(limits.rate_per_s, limits.burst)
        self._at_once = {
            _Kind.REQUEST: Tally(limits.concurrency),
            _Kind.PROBE: Tally(limits.concurrency),
            _Kind.STREAM: Tally(limits.streams, MAX_STREAMS if limits.streams else 0),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count a request and pass it on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        key, kind = key_of(scope), _kind_of(scope)
        buckets, tally = self._probed if kind is _Kind.PROBE else self._asked, self._at_once[kind]
        wait_s = buckets.take(key, self._clock())
        if wait_s:
            await self._refuse(key, Reason.RATE, wait_s)(scope, receive, send)
        elif not tally.enter(key):
            reason = Reason.STREAMS if kind is _Kind.STREAM else Reason.CONCURRENCY
            await self._refuse(key, reason, 1.0)(scope, receive, send)
        else:
            try:
                await self._app(scope, receive, send)
            finally:
                tally.leave(key)

    def _refuse(self, key: str, reason: Reason, wait_s: float) -> ASGIApp:
        refusal = _too_much(reason, f"{key} sends {self._words(reason)}", wait_s)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await error_answer(refusal, scope["path"], refusal.headers)(scope, receive, send)

        return answer

    def _words(self, reason: Reason) -> str:
        limits = self._limits
        if reason is Reason.RATE:
            return f"more than {limits.rate_per_s:g} requests/s, and {limits.burst} at once after a pause"
        if reason is Reason.STREAMS:
            return f"more than {limits.streams} requests that wait for something, or all callers send {MAX_STREAMS}"
        return f"more than {limits.concurrency} requests at once"


class UnauthenticatedLimit:
    """Limit of requests without a proved name for each address, if names are required.

    Such requests are refused before routing, so that a refusal costs less than an answer.
    """

    def __init__(
        self,
        limits: Limits,
        routes: Sequence[Route],
        has_pass: Callable[[Scope], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the limit.

        Args:
            limits: Limits of requests per second and at once.
            routes: Complete list of routes, whose rules say which ones need no authentication.
            has_pass: Function that returns whether a request comes from an executor of this scheduler; executors prove
                no name.
            clock: Function that returns a monotonic time in seconds.
        """
        self._limits, self._has_pass, self._clock = limits, has_pass, clock
        self._asked = Buckets(limits.unnamed_rate_per_s, limits.unnamed_burst)
        self._free = [
            route for route in routes if any(rule.needs is Needs.NOTHING for rule in rules_of(route).values())
        ]

    def refusal(self, scope: Scope, address: str, *, is_open: bool) -> Refusal | None:
        """Return the refusal of a request without a proved name; None if it may continue to its route.

        Args:
            scope: ASGI scope of the request.
            address: Client address; "" for a Unix socket.
            is_open: Whether the operator has opened the path to unauthenticated callers.
        """
        path = scope["path"]
        is_free = is_open or any(route.path_regex.match(path) for route in self._free)
        too_much = self.over_limit(scope, address) if is_free else self.count(address)
        if too_much is not None:
            return too_much
        if is_free or scope["method"] == "OPTIONS":
            return None
        what = f"{scope['method']} {path[:300]} needs authentication, and the request has none"
        return Refusal(401, "unauthenticated", what, remedy="log in (mesos-gpu login), or send a token")

    def over_limit(self, scope: Scope, address: str) -> Refusal | None:
        """Count a request as `count` does, unless it comes from an executor of this scheduler."""
        return None if self._has_pass(scope) else self.count(address)

    def count(self, address: str) -> Refusal | None:
        """Count a request without a proved name; return a refusal if its address has sent too many."""
        key = network_of(address) or "the local socket"
        wait_s = self._asked.take(key, self._clock())
        if not wait_s:
            return None
        limits = self._limits
        what = (
            f"{key} sends more than {limits.unnamed_rate_per_s:g} requests/s without authentication, "
            f"and {limits.unnamed_burst} at once after a pause"
        )
        return _too_much(Reason.RATE, what, wait_s)


def _too_much(reason: Reason, what: str, wait_s: float) -> Refusal:
    """Count a refusal, and return it with the time to wait in whole seconds."""
    REFUSED.count(reason)
    seconds = max(math.ceil(wait_s), 1)
    remedy, headers = f"try again in {seconds} s", {"Retry-After": str(seconds)}
    return Refusal(429, reason.value, what, remedy=remedy, headers=headers)


def key_of(scope: Scope) -> str:
    """Return the key by which a request is counted: the caller's name, or the network of its address."""
    caller = caller_of(HTTPConnection(scope))
    if caller.is_proved:
        return f"{caller.name!r}"
    client = scope.get("client")
    return network_of(caller.address or (client[0] if client else "")) or "the local socket"


def _kind_of(scope: Scope) -> _Kind:
    path = scope["path"]
    if path in _PROBES:
        return _Kind.PROBE
    if path in _EVENTS or (path.startswith(_JOBS) and _waits(scope)):
        return _Kind.STREAM
    return _Kind.REQUEST


def _waits(scope: Scope) -> bool:
    """Return whether a request about a job waits for an event before it is answered."""
    resizes = scope["method"] == "PATCH" or (scope["method"], scope["path"][-7:]) == ("DELETE", "/resize")
    return resizes or b"after_version=" in scope["query_string"]
