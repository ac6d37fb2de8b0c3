"""JSON of access checks: whether a name may do something; pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mesos_gpu.access.decide import Subject
from mesos_gpu.access.rights import BY_NAME, Right, Scope
from mesos_gpu.wire.access import fields
from mesos_gpu.wire.checking import Check, Problem, show

KNOWN: Final = ("name", "groups", "right", "queue", "app", "owner", "about")


@dataclass(frozen=True, slots=True)
class Question:
    """An access check: whether a name may do something.

    Attributes:
        name: Name to check; "" for the caller.
        groups: Groups of that name.
        right: Right to check.
        subject: Object to which the right applies; None for the whole cluster.
    """

    name: str
    groups: tuple[str, ...]
    right: Right
    subject: Subject | None


def decode(value: Mapping[str, Any]) -> Question | list[Problem]:
    """Parse an access check; return it, or all problems."""
    check = Check(value, KNOWN)
    name = fields.name(check)
    if value.get("name") == "":  # an empty variable in a script must not mean the caller
        check.problem("name", 'must be a name, got ""; leave the field out to check your own rights')
    groups = fields.texts(check, "groups", fields.MAX_PATTERNS, fields.name_problem)
    right = BY_NAME.get(value["right"]) if isinstance(value.get("right"), str) else None
    if right is None:
        check.problem("right", f"must be one of {', '.join(BY_NAME)}, got {show(value.get('right'))}")
    subject = Subject(
        *(fields.line(check, key, fields.MAX_PATTERN) for key in ("owner", "queue", "app", "about"))
    )
    if check.problems or right is None:
        return check.problems
    is_of_all = subject == Subject() or right.scope in (Scope.CLUSTER, Scope.VIEW)
    return Question(name, groups, right, None if is_of_all else subject)
