"""Errors in a scheduler's answers, as exceptions; read by `said`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mesos_gpu.adapters.files.places import Lines, placed
from mesos_gpu.cli.locate import REMEDY
from mesos_gpu.cli.reach.failures import BadAnswer
from mesos_gpu.errors import MesosGpuError

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Problem

_EXIT_CODES: Final = {
    400: 65, 401: 77, 403: 77, 404: 66, 409: 73, 413: 65, 415: 65, 422: 65, 429: 75, 503: 69, 507: 74,
}  # fmt: skip


class Refused(MesosGpuError):
    """The scheduler refused a request.

    Args:
        status: Status code of HTTP.
        code: The interface's code of the error.
        what: Message of the error.
        remedy: Advice of the scheduler.
        problems: Problems of the request's data.
    """

    def __init__(
        self, status: int, code: str, what: str, remedy: str, problems: "Sequence[Problem]" = ()
    ) -> None:
        super().__init__(what, remedy=remedy)
        self.exit_code, self.http_status = _EXIT_CODES.get(status, 1), status
        self.code, self.problems = code, tuple(problems)
        self.line_of: Lines = lambda _: None  # function from a problem's path to the line of the sent file

    def __str__(self) -> str:
        reasons = [p["reason"] for p in self.problems]
        places = [
            placed(self.line_of, p["path"], p["reason"]) if p["path"] else p["reason"] for p in self.problems
        ]
        if reasons == [self.what]:
            lines = places  # avoids repeating the message
        elif reasons and "; ".join(reasons) == self.what:
            lines = [f"refused for {len(places)} reasons", *(f"  {line}" for line in places)]
        else:
            lines = [self.what, *(f"  {line}" for line in places)]
        return "\n".join([*lines, *([f"To fix: {self.remedy}"] if self.remedy else [])])


def not_ours(url: str, why: str) -> BadAnswer:
    """Return the error for an answer that does not come from a scheduler of this version; `why` describes it."""
    return BadAnswer(
        f"the server at {url} is not a mesos-gpu scheduler of this version: {why}",
        remedy="check the address: " + REMEDY,
    )
