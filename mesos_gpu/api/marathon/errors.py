"""Errors in Marathon's words and form: `{"message": …, "details": …}`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import code_of, json_answer
from mesos_gpu.errors import AppLocked, BadConfiguration, MesosGpuError, NotAccepted
from mesos_gpu.wire.marathon.problems import INVALID_JSON, NOT_VALID, Detail, Problems

_LOCKED: Final = (
    "App is locked by one or more deployments. Override with the option '?force=true'. "
    "View details at '/v2/deployments/<DEPLOYMENT_ID>'."
)
_SEE: Final = "see docs/reference/marathon.md"


class Refused(MesosGpuError):
    """Error that refuses a request to Marathon's interface.

    Args:
        details: `details` of the answer's JSON; None if there are none.
        headers: Headers of the answer.
        remedy: Advice for the caller.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        details: object = None,
        headers: Mapping[str, str] | None = None,
        remedy: str = _SEE,
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.http_status, self.details, self.headers = status, details, headers


def refused(problems: Problems) -> Refused:
    """Return the refusal of a faulty body."""
    return Refused(problems.status, problems.message, details=problems.as_json()["details"])


def all_refused(refusals: Sequence[tuple[str, Problems]]) -> Refused:
    """Return the refusal of several bodies in one request, each with its path, as "(0)"."""
    details = []
    for place, problems in refusals:
        for detail in problems.details:
            if isinstance(detail, Detail):
                details.append(
                    Detail(place + (detail.path if detail.path != "/" or not place else ""), detail.errors)
                )
    message = NOT_VALID if all(problems.message == NOT_VALID for _, problems in refusals) else INVALID_JSON
    return refused(Problems(message, tuple(details)))


def not_valid(details: Iterable[Detail]) -> Refused:
    """Return the refusal of a definition with faults in these fields."""
    return refused(Problems(NOT_VALID, tuple(details)))


def not_json(why: str, *, at: str = "/") -> Refused:
    """Return the refusal of JSON of a wrong type; `why` is an error code of the Play framework."""
    return refused(Problems(INVALID_JSON, (Detail(at, (why,)),)))


def no_app(id: str, version: str = "") -> Refused:
    """Return the refusal for a missing app, or a missing version of one."""
    return Refused(404, f"App '{id}' does not exist" + (f" in version {version}" if version else ""))


def no_group(id: str) -> Refused:
    """Return the refusal for a missing group."""
    return Refused(404, f"Group '{id}' does not exist")


def no_task(id: str) -> Refused:
    """Return the refusal for a missing task."""
    return Refused(404, f"Task '{id}' does not exist")


def answer_of(error: MesosGpuError) -> Response:
    """Return the answer for an error below /v2."""
    if isinstance(error, BadConfiguration):
        return answer_of(not_valid([Detail("/", (error.what,))]))
    if isinstance(error, NotAccepted):
        return answer_of(not_valid(Detail(path, (reason,)) for path, reason in error.faults))
    status, body, headers = _answer_of(error)
    note.current().reason = code_of(status)
    return json_answer(body, status, headers)


def _answer_of(error: MesosGpuError) -> tuple[int, dict[str, Any], Mapping[str, str] | None]:
    """Return status, body and headers of the answer for an error."""
    if isinstance(error, AppLocked):
        return 409, {"message": _LOCKED, "deployments": [{"id": id} for id in error.deployments]}, None
    if not isinstance(error, Refused):
        # 500 is the default of the base class, and means here that the scheduler is stopping.
        status = 503 if error.http_status == 500 else error.http_status
        return status, {"message": error.what, "remedy": error.remedy}, getattr(error, "headers", None)
    body: dict[str, Any] = {"message": error.what}
    if error.details is not None:
        body["details"] = error.details
    if error.http_status in (401, 403):
        body["remedy"] = error.remedy
    return error.http_status, body, error.headers
