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
LABEL: Final = "mesos_gpu.cover"  # of reservations that are ours to undo
_LABELS: Final = {"labels": [{"key": LABEL, "value": "shared GPU"}]}


def reserved(scalar: Scalar, role: str, principal: str | None) -> Scalar:
    """A scalar as it is when it is reserved for a role; as it was if it is of some role already, or `role` is any."""
    kind = json.loads(scalar.kind)
    if role == ANY_ROLE or kind.get("role", ANY_ROLE) != ANY_ROLE:
        return scalar
    reservation: dict[str, Any] = {"labels": _LABELS}
    if principal is not None:
        reservation["principal"] = principal
    return replace(scalar, kind=_canonical({**kind, "role": role, "reservation": reservation}))


def is_ours(scalar: Scalar) -> bool:
    """Whether it was reserved as `reserved` does."""
    if LABEL not in scalar.kind:
        return False
    labels = json.loads(scalar.kind).get("reservation", {}).get("labels", {}).get("labels", ())
    return any(label.get("key") == LABEL for label in labels)


def summed(scalars: Iterable[Scalar]) -> tuple[Scalar, ...]:
    """Add up the scalars of each name and kind, in the order in which they come."""
    sums: dict[tuple[str, str], float] = {}
    for scalar in scalars:
        key = scalar.name, scalar.kind
        sums[key] = round(sums.get(key, 0.0) + scalar.amount, 3)
    return tuple([Scalar(name, amount, kind) for (name, kind), amount in sums.items()])


def _canonical(kind: dict[str, Any]) -> str:
    return json.dumps(kind, sort_keys=True, separators=(",", ":"))
