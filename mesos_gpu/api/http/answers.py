"""Answers as JSON, and the conversion of errors to responses."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from http import HTTPStatus
from itertools import chain
from types import GeneratorType
from typing import Any, Final, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from mesos_gpu.api.http import note
from mesos_gpu.errors import MesosGpuError, NotAccepted
from mesos_gpu.wire.checking import BadJson, Problem

T = TypeVar("T")
_CODES: Final = {
    404: "not-found",
    405: "method",
    409: "conflict",
    413: "too-large",
    429: "limit",
    507: "no-room",
    503: "unavailable",
}
_OTHER_CODES: Final = {  # refusals of /v1 carry these codes themselves
    400: "bad-json",
    401: "unauthenticated",
    403: "forbidden",
    415: "media-type",
    422: "invalid",
}
_ROUTES: Final = "see docs/reference/rest.md for the routes"
_JSON: Final = "application/json"
_text: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
#: Bytes; smaller answers are sent at once, with their length, others in chunks of this size.
CHUNK: Final = 1 << 18


class Refusal(MesosGpuError):
    """Error that refuses a request.

    Args:
        code: Error code of the REST interface, such as "not-found".
        remedy: Advice for the caller.
        problems: Faults of single fields; None if the error is not about fields.
        headers: Headers of the answer.
    """

    def __init__(
        self,
        status: int,
        code: str,
        what: str,
        *,
        remedy: str,
        problems: list[Problem] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(what, remedy=remedy)
        self.http_status, self.code, self.problems, self.headers = status, code, problems, headers


def code_of(status: int) -> str:
    """Return the error code of the REST interface for an HTTP status."""
    return _CODES.get(status) or _OTHER_CODES.get(status, "failed")


_EVERY_FIELD: Final = "correct the listed fields; /v1/openapi.json describes every field"


def invalid(*problems: Problem) -> Refusal:
    """Return the refusal (422) of a request with faults in one or more fields."""
    return Refusal(422, "invalid", "the request is not valid", remedy=_EVERY_FIELD, problems=list(problems))


def valid(decoded: T | list[Problem]) -> T:
    """Return a decoded value.

    Raises:
        Refusal: Decoding returned faults instead (422, with all of them).
    """
    if isinstance(decoded, list):
        raise invalid(*decoded)
    return decoded


def json_answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with `body` as JSON."""
    return Response(_text(body).encode("utf-8", "replace"), status, dict(headers or {}), _JSON)


async def large_answer(body: Any) -> Response:
    """Return a response with `body` as JSON, made as `pieces_answer` describes.

    Generators in `body` are encoded as lists, item by item.
    """
    return await pieces_answer(_pieces(body), _JSON)


async def pieces_answer(pieces: Iterator[str], media_type: str) -> Response:
    """Return a response whose text is the given non-empty pieces, in chunks if it is long.

    Chunks are made on other threads, so that the event loop stays free, each while the previous one is sent.
    """
    chunks = _chunks(pieces)
    first = await run_in_threadpool(lambda: [next(chunks), next(chunks, b"")])
    if not first[1]:
        return Response(first[0], media_type=media_type)
    return StreamingResponse(_ahead(chain(first, chunks)), media_type=media_type)


async def _ahead(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield each chunk while the next one is made on a thread."""
    coming = asyncio.ensure_future(run_in_threadpool(next, chunks, b""))
    try:
        while chunk := await coming:
            coming = asyncio.ensure_future(run_in_threadpool(next, chunks, b""))
            yield chunk
    finally:
        coming.cancel()  # if the client has disconnected


def _chunks(pieces: Iterator[str]) -> Iterator[bytes]:
    """Join pieces of text to encoded chunks of at least `CHUNK` characters; the last one may be shorter."""
    parts, size = [], 0
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield "".join(parts).encode("utf-8", "replace")
            parts, size = [], 0
    if parts:
        yield "".join(parts).encode("utf-8", "replace")


def _pieces(value: Any) -> Iterator[str]:
    """Yield the JSON of a value in non-empty pieces."""
    if isinstance(value, GeneratorType):
        yield "["
        for i, item in enumerate(value):
            if i:
                yield ","
            yield from _pieces(item)
        yield "]"
    elif isinstance(value, dict) and any(isinstance(item, GeneratorType) for item in value.values()):
        yield "{"
        for i, (key, item) in enumerate(value.items()):
            yield ("," if i else "") + _text(key) + ":"
            yield from _pieces(item)
        yield "}"
    else:
        yield _text(value)


def error_answer(error: Refusal, path: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for an error: the error document of /v1, or Marathon's form below /v2."""
    current = note.current()
    current.reason = error.code
    body: dict[str, Any] = {"code": error.code, "message": error.what, "remedy": error.remedy}
    if error.problems is not None:
        body["problems"] = [{"path": p.path, "reason": p.reason} for p in error.problems]
    body["request_id"] = current.request
    if _is_marathon_path(path):
        return json_answer({"message": error.what, "remedy": error.remedy}, error.http_status, headers)
    return json_answer({"error": body}, error.http_status, headers)


def _is_marathon_path(path: str) -> bool:
    return path.lstrip("/").partition("/")[0] == "v2"


async def on_known(request: Request, error: Exception) -> Response:
    """Convert an error of this package to a response."""
    assert isinstance(error, MesosGpuError)
    if isinstance(error, Refusal):
        return error_answer(error, request.scope["path"], error.headers)
    status = 503 if error.http_status == 500 else error.http_status  # the scheduler is stopping
    code = "bad-json" if isinstance(error, BadJson) else _CODES.get(status, "failed")
    if isinstance(error, NotAccepted):
        code = code_of(status)
    faults = [Problem(*fault) for fault in error.faults] if isinstance(error, NotAccepted) else None
    refusal = Refusal(status, code, error.what, remedy=error.remedy, problems=faults)
    return error_answer(refusal, request.scope["path"])


async def on_route(request: Request, error: Exception) -> Response:
    """Answer a request that no route matches, or whose route does not have its method."""
    status, path = getattr(error, "status_code", 404), request.scope["path"]
    if _is_marathon_path(path):
        what = f"HTTP {status} {HTTPStatus(status).phrase}"
    else:
        what = f"{request.method} {path}: " + ("this path does not exist" if status == 404 else "not allowed")
    refusal = Refusal(status, _CODES[status], what, remedy=_ROUTES)
    return error_answer(refusal, path, getattr(error, "headers", None))


async def on_defect(request: Request, _error: Exception) -> Response:
    """Answer a request whose handler failed unexpectedly; the server logs the traceback."""
    path = request.scope["path"]
    what = f"{request.method} {path} failed because of an internal error"
    refusal = Refusal(500, "internal", what, remedy="see the scheduler's log, and report it")
    # This handler runs outside of the middleware that adds the request id to all other answers.
    return error_answer(refusal, path, {note.REQUEST_ID: note.request_id()})
