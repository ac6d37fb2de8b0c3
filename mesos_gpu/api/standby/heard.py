"""The leader's side of forwarded requests: each is served as if it had come from the origin that the standby names."""

from starlette.types import ASGIApp, Receive, Scope, Send

from mesos_gpu.api.http.answers import Refusal, error_answer
from mesos_gpu.api.login.vouched import extension
from mesos_gpu.api.standby.word import HEADER, Verifier, Word

_OF_CONNECTION = ("tls", "mesos_gpu.local_peer")  # describe the standby's connection, not the caller's
_NOT_BELIEVED = Refusal(
    403,
    "forbidden",
    f"the header {HEADER} is not signed by a standby for this leader",
    remedy="leave it out; if a standby sent the request, repeat it: the leader has changed",
)


class ForwardedRequests:
    """ASGI middleware that restores the origin of forwarded requests, before anything else looks at it.

    Args:
        app: The next ASGI application.
        verifier: Verification of statements of standby schedulers.
    """

    def __init__(self, app: ASGIApp, verifier: Verifier) -> None:
        self._app, self._verifier = app, verifier

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the origin that a standby states if it was forwarded."""
        words = [value for name, value in scope.get("headers", ()) if name == HEADER.encode()]
        if scope["type"] != "http" or not words:
            await self._app(scope, receive, send)
            return
        target = target_of(scope)
        word = self._verifier.read(words[0].decode("latin-1"), scope["method"], target)
        if len(words) > 1 or word is None:
            await error_answer(_NOT_BELIEVED, scope["path"])(scope, receive, send)
            return
        await self._app(_with_origin(scope, word), receive, send)


def target_of(scope: Scope) -> str:
    """Return the path and query of a request as they were sent."""
    path = scope.get("raw_path") or scope["path"].encode()
    query = scope["query_string"]
    target: bytes = path + (b"?" + query if query else b"")
    return target.decode("latin-1")


def _with_origin(scope: Scope, word: Word) -> Scope:
    """Return the scope of a request with the origin that a standby states."""
    extensions = {
        name: value for name, value in (scope.get("extensions") or {}).items() if name not in _OF_CONNECTION
    }
    return {
        **scope,
        "client": (word.address, word.port) if word.address else None,
        "extensions": extensions | extension(word.callers),
        "headers": [header for header in scope["headers"] if header[0] != HEADER.encode()],
    }
