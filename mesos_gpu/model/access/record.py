"""Audit records: who changed what, with which proof, from where, and with which result."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Self

NOBODY: Final = "nobody"  # a caller without a name
NO_PROOF: Final = "-"
MAX_SUBJECTS: Final = 8
MAX_LENGTH: Final = {
    "who": 128, "proof": 64, "address": 64, "relayed": 160, "what": 160, "right": 96, "reason": 64, "request": 64,
    "detail": 160,
}  # fmt: skip
MAX_SUBJECT: Final = 200
_CUT: Final = "…"


class Result(Enum):
    """Outcome of an audited request, as its sender saw it."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"  # the change may be done in part


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """An audited request, or with `count` above 1 as many refusals of one origin within one minute.

    Texts have no control characters and no secrets: no bodies, no tokens, and only known parameters of the query.
    """

    at: float  # seconds since the epoch, when the result was known
    what: str  # method and route, as "DELETE /v1/jobs/{id}", or a command
    result: Result
    who: str = NOBODY
    proof: str = NO_PROOF  # means of proof; for a token with its id
    proved: bool = False  # false if the name is at most claimed
    address: str = ""  # host:port of the connection, or unix
    relayed: str = ""  # the origin that proxies report
    right: str = ""  # right that the request needs
    on: tuple[str, ...] = ()  # subjects, each as kind:id
    status: int = 0  # HTTP status; 0 for a command, whose exit code is in `detail`
    reason: str = ""  # code of the refusal, as the REST interface sends it
    request: str = ""  # id of the request
    detail: str = ""  # known parameters of the query, as "force=true"
    count: int = 1

    def bounded(self) -> Self:
        """Return the record with each text cut to its maximum length."""
        texts: dict[str, Any] = {name: cut(getattr(self, name), limit) for name, limit in MAX_LENGTH.items()}
        subjects = tuple(cut(subject, MAX_SUBJECT) for subject in self.on[:MAX_SUBJECTS])
        more = len(self.on) - MAX_SUBJECTS
        on = (*subjects[:-1], f"and {more + 1} more") if more > 0 else subjects
        return replace(self, **texts, on=on)


def cut(text: str, most: int) -> str:
    """Return a text of at most `most` characters; a text that was cut ends with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + _CUT
