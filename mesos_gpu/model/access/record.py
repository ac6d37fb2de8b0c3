"""What is written down of a change, or of a refusal: who, by which proof, from where, what, on what, with which end."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Self

NOBODY: Final = "nobody"  # who asks without a name
NO_PROOF: Final = "-"
MAX_SUBJECTS: Final = 8
MAX_LENGTH: Final = {
    "who": 128, "proof": 64, "address": 64, "relayed": 160, "what": 160, "right": 96, "reason": 64, "request": 64,
    "detail": 160,
}  # fmt: skip
MAX_SUBJECT: Final = 200
_CUT: Final = "…"


class Result(Enum):
    """How it ended for who asked."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"  # it may have been done in part


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A request of somebody, or with `count` above 1 as many refusals of one origin within a minute.

    Texts have no control characters, and no secrets: no bodies, no tokens, of queries only names that are known.
    """

    at: float  # seconds since the epoch, when its end was known
    what: str  # a verb and a route, as "DELETE /v1/jobs/{id}", or a command
    result: Result
    who: str = NOBODY
    proof: str = NO_PROOF  # the kind of it, of a token with its id
    proved: bool = False  # false: the name is claimed at most
    address: str = ""  # host:port of the connection, or unix
    relayed: str = ""  # what proxies say of where it comes from
    right: str = ""  # that it takes
    on: tuple[str, ...] = ()  # kind:id each
    status: int = 0  # of HTTP; 0: of a command, its exit code is in `detail`
    reason: str = ""  # the interface's word for a refusal
    request: str = ""  # id of the request
    detail: str = ""  # words of the query that are known, as "force=true"
    count: int = 1

    def bounded(self) -> Self:
        """Cut every text to its longest."""
        texts: dict[str, Any] = {name: cut(getattr(self, name), most) for name, most in MAX_LENGTH.items()}
        subjects = tuple(cut(each, MAX_SUBJECT) for each in self.on[:MAX_SUBJECTS])
        more = len(self.on) - MAX_SUBJECTS
        on = (*subjects[:-1], f"and {more + 1} more") if more > 0 else subjects
        return replace(self, **texts, on=on)


def cut(text: str, most: int) -> str:
    """A text of `most` characters at most; one that was cut ends with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + _CUT
