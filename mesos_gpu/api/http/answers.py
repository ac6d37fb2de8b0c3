"""Answers: JSON, and the one place where an error becomes a response."""

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
_OF_OTHERS: Final = {  # that refusals of /v1 say themselves
    400: "bad-json",
    401: "unauthenticated",
    403: "forbidden",
    415: "media-type",
    422: "invalid",
}
_ROUTES: Final = "see docs/reference/rest.md for the routes"
_JSON: Final = "application/json"
_text: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
CHUNK: Final = (
    1 << 18
)  # bytes: what is smaller is sent whole, with its length; the rest in pieces of this size


class Refusal(MesosGpuError):
    """A request that is not carried out."""

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
        """`code`: the interface's word for it; `headers`: of the answer."""
        super().__init__(what, remedy=remedy)
        self.http_status, self.code, self.problems, self.headers = status, code, problems, headers


def code_of(status: int) -> str:
    """The interface's word for an error of that status."""
    return _CODES.get(status) or _OF_OTHERS.get(status, "failed")


_EVERY_FIELD: Final = "correct what is listed; /v1/openapi.json describes every field"


def invalid(*problems: Problem) -> Refusal:
    """A request that is wrong in one or more places: all of them at once."""
    return Refusal(422, "invalid", "the request is not valid", remedy=_EVERY_FIELD, problems=list(problems))


def valid(decoded: T | list[Problem]) -> T:
    """What was decoded, if nothing was wrong with it.

    Raises:
        Refusal: 422 with all that was.
    """
    if isinstance(decoded, list):
        raise invalid(*decoded)
    return decoded


def json_answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """`body` as JSON."""
    return Response(_text(body).encode("utf-8", "replace"), status, dict(headers or {}), _JSON)


async def large_answer(body: Any) -> Response:
    """`body` as JSON, of which generators are lists that are printed item by item: as of `pieces_answer`."""
    return await pieces_answer(_pieces(body), _JSON)


async def pieces_answer(pieces: Iterator[str], media_type: str) -> Response:
    """A text of pieces, none of them empty: in chunks if there is much of it.

    They are made on other threads, so that this keeps nobody else waiting, each while the one before is sent.
    """
    chunks = _chunks(pieces)
    first = await run_in_threadpool(lambda: [next(chunks), next(chunks, b"")])
    if not first[1]:
        return Response(first[0], media_type=media_type)
    return StreamingResponse(_ahead(chain(first, chunks)), media_type=media_type)


async def _ahead(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each, while the next one is made."""
    coming = asyncio.ensure_future(run_in_threadpool(next, chunks, b""))
    try:
        while chunk := await coming:
            coming = asyncio.ensure_future(run_in_threadpool(next, chunks, b""))
            yield chunk
    finally:
        coming.cancel()  # of a client that has gone


def _chunks(pieces: Iterator[str]) -> Iterator[bytes]:
    held, size = [], 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield "".join(held).encode("utf-8", "replace")
            held, size = [], 0
    if held:
        yield "".join(held).encode("utf-8", "replace")


def _pieces(value: Any) -> Iterator[str]:
    """JSON in pieces, none of them empty."""
    if isinstance(value, GeneratorType):
        yield "["
        for i, item in enumerate(value):
            if i:
                yield ","
            yield from _pieces(item)
        yield "]"
    elif isinstance(value, dict) and any(isinstance(each, GeneratorType) for each in value.values()):
        yield "{"
        for i, (key, each) in enumerate(value.items()):
            yield ("," if i else "") + _text(key) + ":"
            yield from _pieces(each)
        yield "}"
    else:
        yield _text(value)


def error_answer(error: Refusal, path: str, headers: Mapping[str, str] | None = None) -> Response:
    """The one shape of an error; below /v2 it is Marathon's."""
    current = note.current()
    current.reason = error.code
    body: dict[str, Any] = {"code": error.code, "message": error.what, "remedy": error.remedy}
    if error.problems is not None:
        body["problems"] = [{"path": p.path, "reason": p.reason} for p in error.problems]
    body["request_id"] = current.request
    if _of_marathon(path):
        return json_answer({"message": error.what, "remedy": error.remedy}, error.http_status, headers)
    return json_answer({"error": body}, error.http_status, headers)


def _of_marathon(path: str) -> bool:
    return path.lstrip("/").partition("/")[0] == "v2"


async def on_known(request: Request, error: Exception) -> Response:
    """What somebody meant to say."""
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
    """No such route, or not with that verb."""
    status, path = getattr(error, "status_code", 404), request.scope["path"]
    if _of_marathon(path):
        what = f"HTTP {status} {HTTPStatus(status).phrase}"
    else:
        what = f"{request.method} {path}: " + ("no such route" if status == 404 else "not allowed")
    refusal = Refusal(status, _CODES[status], what, remedy=_ROUTES)
    return error_answer(refusal, path, getattr(error, "headers", None))


async def on_defect(request: Request, _error: Exception) -> Response:
    """A defect of ours; the server logs it with its traceback."""
    path = request.scope["path"]
    what = f"{request.method} {path} failed inside the scheduler"
    refusal = Refusal(500, "internal", what, remedy="see the scheduler's log, and report it")
    # Outside of what puts it on every other answer.
    return error_answer(refusal, path, {note.REQUEST_ID: note.request_id()})
