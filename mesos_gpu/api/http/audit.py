"""A line of the log for each change that is asked for: who says he is, from where, what, and what came of it.

Nobody is authenticated: the names are what the request claims.
"""

import json
import logging
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.datastructures import Headers, QueryParams
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesos_gpu.api.http.guard import RELAYED

MOST_READ: Final = 1 << 16  # bytes of a body that are looked through for names
_LOOKS: Final = ("GET", "HEAD", "OPTIONS")
_READS: Final = ("/v1/plan/",)  # POST that changes nothing
logger = logging.getLogger("mesos_gpu.audit")


class _Claims(msgspec.Struct):
    by: Any = None
    user: Any = None
    id: Any = None


@dataclass(slots=True)
class _Answer:
    status: int = 500
    made: str = ""


class Audit:
    """ASGI middleware, around all that may refuse."""

    def __init__(self, app: ASGIApp) -> None:
        """Around the application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and note."""
        if scope["type"] != "http" or scope["method"] in _LOOKS or scope["path"].startswith(_READS):
            await self._app(scope, receive, send)
            return
        body, outcome = bytearray(), _Answer()

        async def read() -> Message:
            message = await receive()
            if len(body) < MOST_READ:
                body.extend(message.get("body", b""))
            return message

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = Headers(raw=message["headers"])
                outcome.status = message["status"]
                outcome.made = headers.get("location") or headers.get("marathon-deployment-id") or ""
            await send(message)

        try:
            await self._app(scope, read, answer)
        finally:
            _note(scope, bytes(body), outcome.status, outcome.made)


def _note(scope: Scope, body: bytes, status: int, made: str) -> None:
    claims = _claims(body)
    headers, query = Headers(scope=scope), QueryParams(scope["query_string"])
    client = scope.get("client") or ("unknown", 0)
    fields = {
        "method": scope["method"],
        "path": scope["path"],
        "query": str(query),
        "from": f"{client[0]}:{client[1]}",
        "relayed": ", ".join(f"{name}: {headers[name]}" for name in RELAYED if name in headers),
        "by": str(claims.by or query.get("by") or ""),
        "user": str(claims.user or ""),
        "about": str(claims.id or ""),
        "status": status,
        "made": made,
    }
    words = " ".join(
        f"{name}={_word(str(value))}"
        for name, value in fields.items()
        if value and name not in ("method", "path")
    )
    logger.info("%s %s %s", fields["method"], _word(scope["path"]), words, extra={"fields": fields})


def _word(text: str) -> str:
    """Write a word as it is, or as a JSON string where it could be read as more fields than one, or as another text."""
    return text if text.isprintable() and not set(' "=\\') & set(text) else json.dumps(text)


def _claims(body: bytes) -> _Claims:
    try:
        return msgspec.json.decode(body, type=_Claims)
    except (msgspec.DecodeError, RecursionError):
        return _Claims()  # a list, a body that is cut, or none: it claims nothing that can be read
