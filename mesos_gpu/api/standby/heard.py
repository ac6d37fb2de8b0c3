"""The leader's side of what others pass on: a request is served as if it had come from where the standby says."""

from starlette.types import ASGIApp, Receive, Scope, Send

from mesos_gpu.api.http.answers import Refusal, error_answer
from mesos_gpu.api.login.vouched import extension
from mesos_gpu.api.standby.word import HEADER, Verifier, Word

_OF_CONNECTION = ("tls", "mesos_gpu.local_peer")  # of the standby's own, which says nothing of the caller
_NOT_BELIEVED = Refusal(
    403,
    "forbidden",
    f"the header {HEADER} is not what a standby of this leader says",
    remedy="leave it out; if a standby sent this, ask again: another leads by now",
)


class Heard:
    """ASGI middleware, outside of all that looks at where a request comes from."""

    def __init__(self, app: ASGIApp, verifier: Verifier) -> None:
        """Around the application."""
        self._app, self._verifier = app, verifier

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on; with a standby's word, as that says."""
        given = [value for name, value in scope.get("headers", ()) if name == HEADER.encode()]
        if scope["type"] != "http" or not given:
            await self._app(scope, receive, send)
            return
        target = target_of(scope)
        word = self._verifier.read(given[0].decode("latin-1"), scope["method"], target)
        if len(given) > 1 or word is None:
            await error_answer(_NOT_BELIEVED, scope["path"])(scope, receive, send)
            return
        await self._app(_as_told(scope, word), receive, send)


def target_of(scope: Scope) -> str:
    """The path and query of a request as they were sent."""
    path = scope.get("raw_path") or scope["path"].encode()
    query = scope["query_string"]
    target: bytes = path + (b"?" + query if query else b"")
    return target.decode("latin-1")


def _as_told(scope: Scope, word: Word) -> Scope:
    kept = {
        name: each for name, each in (scope.get("extensions") or {}).items() if name not in _OF_CONNECTION
    }
    return {
        **scope,
        "client": (word.address, word.port) if word.address else None,
        "extensions": kept | extension(word.callers),
        "headers": [each for each in scope["headers"] if each[0] != HEADER.encode()],
    }
