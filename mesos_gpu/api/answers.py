"""Answers: JSON, and the one place where an error becomes a response."""

import json
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.errors import MesosGpuError
from mesos_gpu.wire.jobs import BadJson, Problem

_CODES: Final = {404: "not-found", 405: "method", 409: "conflict", 503: "unavailable"}
_ROUTES: Final = "see docs/reference/rest.md for the routes"


class Refusal(MesosGpuError):
    """A request that is not carried out."""

    def __init__(
        self, status: int, code: str, what: str, *, remedy: str, problems: list[Problem] | None = None
    ) -> None:
        """`code`: the interface's word for it."""
        super().__init__(what, remedy=remedy)
        self.http_status, self.code, self.problems = status, code, problems


def invalid(*problems: Problem) -> Refusal:
    """A request that is wrong in one or more places: all of them at once."""
    remedy = "mend every problem that is listed"
    return Refusal(422, "invalid", "the request is not valid", remedy=remedy, problems=list(problems))


def bad_json(error: BadJson) -> Refusal:
    """A body that is not even JSON."""
    return Refusal(400, "bad-json", str(error), remedy="send one JSON object")


def json_answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """`body` as JSON."""
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return Response(text, status, headers=dict(headers or {}), media_type="application/json")


def error_answer(error: Refusal, headers: Mapping[str, str] | None = None) -> Response:
    """The one shape of an error."""
    body: dict[str, Any] = {"code": error.code, "message": error.what, "remedy": error.remedy}
    if error.problems is not None:
        body["problems"] = [{"path": p.path, "reason": p.reason} for p in error.problems]
    return json_answer({"error": body}, error.http_status, headers)


async def on_known(_request: Request, error: Exception) -> Response:
    """What somebody meant to say."""
    assert isinstance(error, MesosGpuError)
    if isinstance(error, Refusal):
        return error_answer(error)
    status = 503 if error.http_status == 500 else error.http_status  # the scheduler is stopping
    code = _CODES.get(status, "failed")
    return error_answer(Refusal(status, code, error.what, remedy=error.remedy))


async def on_route(request: Request, error: Exception) -> Response:
    """No such route, or not with that verb."""
    status = getattr(error, "status_code", 404)
    what = f"{request.method} {request.url.path}: " + ("no such route" if status == 404 else "not allowed")
    refusal = Refusal(status, _CODES[status], what, remedy=_ROUTES)
    return error_answer(refusal, getattr(error, "headers", None))


async def on_defect(request: Request, _error: Exception) -> Response:
    """A defect of ours; the server logs it with its traceback."""
    what = f"{request.method} {request.url.path} failed inside the scheduler"
    return error_answer(Refusal(500, "internal", what, remedy="see the scheduler's log, and report it"))
