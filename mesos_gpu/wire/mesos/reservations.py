"""Resources that are reserved for a role while the scheduler holds shared cards with them, as Mesos writes them. Pure.

A framework without RESERVATION_REFINEMENT has one reservation in a resource: its `role` and its `reservation`
(include/mesos/v1/mesos.proto, Resource). The master takes a principal in it if the framework has that one, else none.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from mesos_gpu.model.nodes.offer import Scalar

ANY_ROLE: Final = "*"
ROLE_OF: Final = (
    "mesos_gpu.role_of."  # with a queue behind it, a label of a framework: the role of that queue
)
LABEL: Final = "mesos_gpu.cover"  # its value names the framework that made the reservation, and undoes it
_ANYBODY: Final = "shared GPU"  # the value that said nothing of the framework


def reserved(scalar: Scalar, role: str, principal: str | None, framework_id: str) -> Scalar:
    """A scalar as it is when a framework has reserved it for a role; as it was if it is of some role already, or `role`
    is any."""
    kind = json.loads(scalar.kind)
    if role == ANY_ROLE or kind.get("role", ANY_ROLE) != ANY_ROLE:
        return scalar
    labels = [{"key": LABEL, "value": framework_id}]
    reservation: dict[str, Any] = {"labels": {"labels": labels}}
    if principal is not None:
        reservation["principal"] = principal
    return replace(scalar, kind=_canonical({**kind, "role": role, "reservation": reservation}))


def role_of(scalar: Scalar) -> str:
    """The role that it is reserved for, `ANY_ROLE` if for none."""
    return ANY_ROLE if '"role"' not in scalar.kind else str(json.loads(scalar.kind).get("role", ANY_ROLE))


def owner_of(scalar: Scalar) -> str | None:
    """The framework that has reserved it as `reserved` does; None: none has."""
    if LABEL not in scalar.kind:
        return None
    labels = json.loads(scalar.kind).get("reservation", {}).get("labels", {}).get("labels", ())
    return next((label.get("value", "") for label in labels if label.get("key") == LABEL), None)


def is_ours(scalar: Scalar, framework_id: str | None) -> bool:
    """Whether a framework has reserved it so, and undoes it; it may be from before reservations named theirs."""
    return owner_of(scalar) in (framework_id, _ANYBODY) if LABEL in scalar.kind else False


def is_others(scalar: Scalar, framework_id: str | None) -> bool:
    """Whether another framework of our role has reserved it so: it is nobody else's to use, and to undo."""
    return owner_of(scalar) is not None and not is_ours(scalar, framework_id)


def summed(scalars: Iterable[Scalar]) -> tuple[Scalar, ...]:
    """Add up the scalars of each name and kind, in the order in which they come."""
    sums: dict[tuple[str, str], float] = {}
    for scalar in scalars:
        key = scalar.name, scalar.kind
        sums[key] = round(sums.get(key, 0.0) + scalar.amount, 3)
    return tuple([Scalar(name, amount, kind) for (name, kind), amount in sums.items()])


def _canonical(kind: dict[str, Any]) -> str:
    return json.dumps(kind, sort_keys=True, separators=(",", ":"))
