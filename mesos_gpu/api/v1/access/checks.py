"""Answers to questions whether a caller may do something."""

from typing import Any

from mesos_gpu.access.decide import Rights, described
from mesos_gpu.model.access.document import Binding
from mesos_gpu.wire.access.check import Question


def answer(rights: Rights, asked: Question) -> dict[str, Any]:
    """Return whether it is allowed, and by what; or what is missing, and who can grant it."""
    allowed = rights.may(asked.right, asked.subject)
    return {
        "name": rights.caller.shown,
        "right": described(asked.right, asked.subject),
        "allowed": allowed,
        "by": _reasons(rights, asked) if allowed else [],
        "missing": None if allowed else rights.missing(asked.right, asked.subject),
        "remedy": None if allowed else rights.who_can_give(),
    }


def _reasons(rights: Rights, asked: Question) -> list[dict[str, Any]]:
    """Return the reasons why something is allowed."""
    if rights.is_open:
        return [_reason("authentication is off: everything is allowed")]
    bindings = list(rights.document.bindings)
    reasons = []
    for binding, role in rights.because(asked.right, asked.subject):
        if binding == Binding() and binding not in bindings:
            reasons.append(
                _reason("root on the scheduler's host, and its own user, may do everything", role.name)
            )
        else:
            index = bindings.index(binding)
            reasons.append(_reason(f"binding {index} has the role {role.name}", role.name, index))
    if not reasons and asked.subject is not None:
        reasons.append(_reason(f"queue {asked.subject.queue} permits this for jobs of its members"))
    return reasons


def _reason(words: str, role: str | None = None, binding: int | None = None) -> dict[str, Any]:
    return {"binding": binding, "role": role, "reason": words}
