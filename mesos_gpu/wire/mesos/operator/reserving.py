"""Dynamic reservations of whole agents by an operator, in a Mesos master's API; pure functions.

Sources: include/mesos/v1/{mesos,master/master}.proto (Resource.reservations, RESERVE_RESOURCES, UNRESERVE_RESOURCES,
GET_AGENTS).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

#: Label of a reservation that keeps other frameworks off a pool; its value is the pool.
LABEL: Final = "mesos_gpu.pool"
_SCALAR, _RANGES = "SCALAR", "RANGES"
_PLACES: Final = 1000  # Mesos keeps three decimals
Resource = Mapping[str, Any]


def pool_of(resource: Resource) -> str | None:
    """Return the pool that a resource is reserved for; None without such a reservation."""
    for reservation in resource.get("reservations", ())[-1:]:
        for label in reservation.get("labels", {}).get("labels", ()):
            if label.get("key") == LABEL:
                return str(label.get("value", ""))
    return None


def is_free(resource: Resource) -> bool:
    """Return whether a resource is unreserved, and of a kind that can be reserved."""
    plain = not resource.get("reservations") and "revocable" not in resource and "disk" not in resource
    return plain and resource.get("type") in (_SCALAR, _RANGES)


def less(total: Iterable[Resource], held: Iterable[Resource]) -> list[dict[str, Any]]:
    """Subtract resources; the result has each name and kind once.

    Args:
        total: Resources to subtract from.
        held: Resources to subtract; kinds that `total` lacks are ignored.
    """
    left: dict[str, dict[str, Any]] = {}
    for sign, each in [*((1, resource) for resource in total), *((-1, each) for each in held)]:
        kind = _kind(each)
        rest = left.setdefault(kind, {**_bare(each), "amount": 0, "spans": ()})
        if each.get("type") == _RANGES:
            rest["spans"] = _spans(rest["spans"], _ranges(each), sign)
        else:
            rest["amount"] += sign * round(float(each["scalar"]["value"]) * _PLACES)
    return [resource for rest in left.values() if (resource := _resource(rest)) is not None]


def amount(resources: Iterable[Resource], name: str) -> float:
    """Return the sum of one scalar resource."""
    return sum(float(resource["scalar"]["value"]) for resource in resources if resource["name"] == name)


def reserve(
    agent_id: str, resources: Sequence[Resource], role: str, principal: str | None, pool: str
) -> dict[str, Any]:
    """Return the call that reserves free resources of an agent for a role.

    Args:
        agent_id: Id of the agent.
        resources: Free resources, from `less`.
        role: Role for which they are reserved.
        principal: Principal of the caller; None without authentication.
        pool: Name of the pool, for the label.
    """
    reservation: dict[str, Any] = {
        "type": "DYNAMIC", "role": role, "labels": {"labels": [{"key": LABEL, "value": pool}]}
    }  # fmt: skip
    if principal is not None:
        reservation["principal"] = principal
    reserved = [{**resource, "reservations": [reservation]} for resource in resources]
    return {
        "type": "RESERVE_RESOURCES",
        "reserve_resources": {"agent_id": {"value": agent_id}, "resources": reserved},
    }


def unreserve(agent_id: str, resources: Sequence[Resource]) -> dict[str, Any]:
    """Return the call that removes the reservations of resources of an agent."""
    return {
        "type": "UNRESERVE_RESOURCES",
        "unreserve_resources": {"agent_id": {"value": agent_id}, "resources": [*resources]},
    }


def _kind(resource: Resource) -> str:
    return json.dumps(_bare(resource), sort_keys=True)


def _bare(resource: Resource) -> dict[str, Any]:
    """Return the kind of a resource: everything but amount, allocation and old role fields."""
    without = ("scalar", "ranges", "allocation_info", "role", "reservation")
    return {name: value for name, value in resource.items() if name not in without}


def _ranges(resource: Resource) -> list[tuple[int, int]]:
    return [(int(span["begin"]), int(span["end"])) for span in resource["ranges"].get("range", ())]


def _spans(
    spans: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]], sign: int
) -> tuple[tuple[int, int], ...]:
    """Return spans with others added (`sign` 1) or removed (`sign` -1); ends are included."""
    if sign > 0:
        return (*spans, *others)
    for other in others:
        spans = [part for span in spans for part in _without(span, other)]
    return tuple(spans)


def _without(span: tuple[int, int], other: tuple[int, int]) -> Iterator[tuple[int, int]]:
    if span[0] < other[0]:
        yield span[0], min(span[1], other[0] - 1)
    if other[1] < span[1]:
        yield max(span[0], other[1] + 1), span[1]


def _resource(left: dict[str, Any]) -> dict[str, Any] | None:
    amount, spans = left.pop("amount"), left.pop("spans")
    if left.get("type") == _RANGES:
        ranges = [{"begin": begin, "end": end} for begin, end in spans]
        return {**left, "ranges": {"range": ranges}} if ranges else None
    return {**left, "scalar": {"value": amount / _PLACES}} if amount > 0 else None
