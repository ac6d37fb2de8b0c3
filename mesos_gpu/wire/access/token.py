"""JSON of requests for access tokens, and of tokens in answers; pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mesos_gpu.model.access.caller import Narrowing
from mesos_gpu.model.access.document import EVERYTHING
from mesos_gpu.model.access.token import Token
from mesos_gpu.wire.access import fields
from mesos_gpu.wire.checking import Check, Problem

DAY_S: Final = 86400.0
DEFAULT_S: Final = 30 * DAY_S
MIN_S: Final = 1.0
MAX_GROUPS: Final = 100
KNOWN: Final = ("name", "groups", "rights", "queues", "apps", "lifetime_s", "comment")


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """Request for an access token.

    Attributes:
        name: Name that it should prove; "" for the caller's.
        groups: Groups, for another name than the caller's; None if not given.
        narrowing: Restriction of its rights; None for that of the caller's proof.
        lifetime_s: Time until it expires, in seconds.
        comment: Purpose of the token.
    """

    name: str
    groups: tuple[str, ...] | None
    narrowing: Narrowing | None
    lifetime_s: float
    comment: str


def decode(value: Mapping[str, Any], longest_s: float) -> TokenRequest | list[Problem]:
    """Parse a request for a token; return it, or all problems. `longest_s`: longest permitted lifetime."""
    check = Check(value, KNOWN)
    name = fields.name(check)
    groups = fields.texts(check, "groups", MAX_GROUPS, fields.name_problem)
    narrowing = Narrowing(
        fields.rights(check, default=(EVERYTHING,)), fields.queues(check), fields.apps(check)
    )
    for key in ("rights", "queues", "apps"):
        if key in check.given and not getattr(narrowing, key) and key not in check.failed:
            check.problem(key, "must have at least one item, or be left out")
    form = f"a number of seconds from {MIN_S:g} to {longest_s:.15g}"
    default_s = min(DEFAULT_S, longest_s)
    lifetime_s = check.number("lifetime_s", default_s, lambda n: MIN_S <= n <= longest_s, form)
    comment = fields.line(check, "comment", fields.MAX_COMMENT)
    if check.problems:
        return check.problems
    narrowed = any(key in check.given for key in ("rights", "queues", "apps"))
    return TokenRequest(
        name,
        groups if "groups" in check.given else None,
        narrowing if narrowed else None,
        lifetime_s,
        comment,
    )


def encode(token: Token) -> dict[str, Any]:
    """Return a token as shown in answers, without its hash."""
    return {
        "id": token.id,
        "name": token.name,
        "groups": list(token.groups),
        "rights": list(token.narrowing.rights),
        "queues": list(token.narrowing.queues),
        "apps": list(token.narrowing.apps),
        "comment": token.comment,
        "created_at": token.created_at,
        "created_by": token.created_by,
        "made_with": token.made_with or None,
        "expires_at": token.expires_at,
        "used_at": token.used_at,
        "used_from": token.used_from if token.used_at is not None else None,
    }
