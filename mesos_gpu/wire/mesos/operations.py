"""Parsing and checking of operators' requests for drains and resets; pure functions."""

from dataclasses import dataclass
from typing import Any, Final

from mesos_gpu.wire.checking import UNFIT, Problem, is_number, object_of, show

MAX_REASON: Final = 500
MAX_BY: Final = 100
MAX_DEADLINE_S: Final = 1e9


@dataclass(frozen=True, slots=True)
class Request:
    """Body of a request for a drain, an undrain or a reset of a GPU."""

    reason: str = ""
    by: str = ""
    deadline_s: float | None = None


def decode(body: bytes, *, deadline: bool) -> Request | list[Problem]:
    """Parse the body of a request; return it, or all problems. `deadline`: whether `deadline_s` is permitted.

    Raises:
        BadJson: The body is not a JSON object.
    """
    return _checked(object_of(body), ("reason", "by", "deadline_s") if deadline else ("reason", "by"))


def _checked(value: dict[str, Any], known: tuple[str, ...]) -> Request | list[Problem]:
    """Check a request with the fields in `known`; return it, or all problems."""
    problems = [
        Problem(
            f"/{key.replace('~', '~0').replace('/', '~1')}",
            f"unknown field; known fields are {', '.join(known)}",
        )
        for key in value
        if key not in known
    ]
    reason, by, deadline_s = value.get("reason"), value.get("by"), value.get("deadline_s")
    by = "" if by is None else by
    if not isinstance(reason, str) or not _is_line(reason, MAX_REASON) or not reason.strip():
        problems.append(
            Problem(
                "/reason",
                f"must have the reason, one line of at most {MAX_REASON} characters, got {show(reason)}",
            )
        )
    who = by_problem(by)
    if who:
        problems.append(who)
    if deadline_s is not None and (not is_number(deadline_s) or not 0 <= deadline_s <= MAX_DEADLINE_S):
        reason_why = f"must be null or a number of seconds from 0 to 1e9, got {show(deadline_s)}"
        problems.append(Problem("/deadline_s", reason_why))
    if problems:
        return problems
    return Request(str(reason).strip(), str(by).strip(), None if deadline_s is None else float(deadline_s))


def by_problem(by: object) -> Problem | None:
    """Return the problem of the name of a request's author; None if it is valid."""
    if isinstance(by, str) and _is_line(by, MAX_BY):
        return None
    return Problem("/by", f"must be one line of at most {MAX_BY} characters, got {show(by)}")


def _is_line(value: str, most: int) -> bool:
    return len(value) <= most and "\n" not in value and not UNFIT.search(value)
