"""Reservations of the resources with which the scheduler holds shared GPUs for a role, in Mesos' form; pure functions.

A framework without RESERVATION_REFINEMENT has one reservation per resource: its `role` and its `reservation`
(include/mesos/v1/mesos.proto, Resource). The master requires in it the principal of the framework, or none.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from mesos_gpu.model.nodes.offer import Scalar

ANY_ROLE: Final = "*"
ROLE_OF: Final = "mesos_gpu.role_of."  # prefix of a framework's label with the role of the queue appended
LABEL: Final = "mesos_gpu.cover"  # its value is the framework that made the reservation, and removes it
_ANYBODY: Final = "shared GPU"  # value in reservations of older releases, which did not name the framework


def reserved(scalar: Scalar, role: str, principal: str | None, framework_id: str) -> Scalar:
    """Return a scalar as reserved for a role by a framework; unchanged if it has a role already, or `role` is any."""
    kind = json.loads(scalar.kind)
    if role == ANY_ROLE or kind.get("role", ANY_ROLE) != ANY_ROLE:
        return scalar
    labels = [{"key": LABEL, "value": framework_id}]
    reservation: dict[str, Any] = {"labels": {"labels": labels}}
    if principal is not None:
        reservation["principal"] = principal
    return replace(scalar, kind=_canonical({**kind, "role": role, "reservation": reservation}))


def role_of(scalar: Scalar) -> str:
    """Return the role for which a scalar is reserved; `ANY_ROLE` if for none."""
    return ANY_ROLE if '"role"' not in scalar.kind else str(json.loads(scalar.kind).get("role", ANY_ROLE))


def owner_of(scalar: Scalar) -> str | None:
    """Return the framework that reserved a scalar as by `reserved`; None without such a reservation."""
    if LABEL not in scalar.kind:
        return None
    labels = json.loads(scalar.kind).get("reservation", {}).get("labels", {}).get("labels", ())
    return next((label.get("value", "") for label in labels if label.get("key") == LABEL), None)


def is_ours(scalar: Scalar, framework_id: str | None) -> bool:
    """Return whether a scalar is reserved by a framework, or by an older release that did not name its framework."""
    return owner_of(scalar) in (framework_id, _ANYBODY) if LABEL in scalar.kind else False


def is_others(scalar: Scalar, framework_id: str | None) -> bool:
    """Return whether a scalar is reserved by another framework of the role, so that it must not be used or
    unreserved."""
    return owner_of(scalar) is not None and not is_ours(scalar, framework_id)


def summed(scalars: Iterable[Scalar]) -> tuple[Scalar, ...]:
    """Return the sums of scalars by name and kind, in the order of their first occurrence."""
    sums: dict[tuple[str, str], float] = {}
    for scalar in scalars:
        key = scalar.name, scalar.kind
        sums[key] = round(sums.get(key, 0.0) + scalar.amount, 3)
    return tuple([Scalar(name, amount, kind) for (name, kind), amount in sums.items()])


def _canonical(kind: dict[str, Any]) -> str:
    return json.dumps(kind, sort_keys=True, separators=(",", ":"))
