"""Dynamic reservations of whole agents by an operator, as a master's API has them. Pure.

Sources: include/mesos/v1/{mesos,master/master}.proto (Resource.reservations, RESERVE_RESOURCES, UNRESERVE_RESOURCES,
GET_AGENTS).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

LABEL: Final = (
    "mesos_gpu.pool"  # of a reservation that keeps a pool from other frameworks; its value names the pool
)
_SCALAR, _RANGES = "SCALAR", "RANGES"
_PLACES: Final = 1000  # Mesos keeps three decimals
Resource = Mapping[str, Any]


def pool_of(resource: Resource) -> str | None:
    """The pool that it is reserved for; None: it is not reserved so."""
    for reservation in resource.get("reservations", ())[-1:]:
        for label in reservation.get("labels", {}).get("labels", ()):
            if label.get("key") == LABEL:
                return str(label.get("value", ""))
    return None


def is_free(resource: Resource) -> bool:
    """Whether it is reserved for nobody, and a reservation could be made of it."""
    plain = not resource.get("reservations") and "revocable" not in resource and "disk" not in resource
    return plain and resource.get("type") in (_SCALAR, _RANGES)


def less(total: Iterable[Resource], held: Iterable[Resource]) -> list[dict[str, Any]]:
    """What is left of some resources; of each name and kind once.

    Args:
        total: All that there are.
        held: What of that is taken; of kinds that `total` lacks nothing is.
    """
    left: dict[str, dict[str, Any]] = {}
    for sign, each in [*((1, each) for each in total), *((-1, each) for each in held)]:
        kind = _kind(each)
        made = left.setdefault(kind, {**_bare(each), "amount": 0, "spans": ()})
        if each.get("type") == _RANGES:
            made["spans"] = _spans(made["spans"], _ranges(each), sign)
        else:
            made["amount"] += sign * round(float(each["scalar"]["value"]) * _PLACES)
    return [resource for each in left.values() if (resource := _resource(each)) is not None]


def amount(resources: Iterable[Resource], name: str) -> float:
    """The sum of one scalar."""
    return sum(float(each["scalar"]["value"]) for each in resources if each["name"] == name)


def reserve(
    agent_id: str, resources: Sequence[Resource], role: str, principal: str | None, pool: str
) -> dict[str, Any]:
    """The call that reserves free resources of an agent for a role.

    Args:
        agent_id: Of the master.
        resources: As of `less`, free.
        role: Who has them from then on.
        principal: Who calls; None: nobody is asked.
        pool: Of the tree, for the label.
    """
    reservation: dict[str, Any] = {
        "type": "DYNAMIC", "role": role, "labels": {"labels": [{"key": LABEL, "value": pool}]}
    }  # fmt: skip
    if principal is not None:
        reservation["principal"] = principal
    made = [{**each, "reservations": [reservation]} for each in resources]
    return {
        "type": "RESERVE_RESOURCES",
        "reserve_resources": {"agent_id": {"value": agent_id}, "resources": made},
    }


def unreserve(agent_id: str, resources: Sequence[Resource]) -> dict[str, Any]:
    """The call that gives reserved resources of an agent back to everybody."""
    return {
        "type": "UNRESERVE_RESOURCES",
        "unreserve_resources": {"agent_id": {"value": agent_id}, "resources": [*resources]},
    }


def _kind(resource: Resource) -> str:
    return json.dumps(_bare(resource), sort_keys=True)


def _bare(resource: Resource) -> dict[str, Any]:
    """The kind of a resource: all but the amount and to whom it is allocated."""
    without = ("scalar", "ranges", "allocation_info", "role", "reservation")
    return {name: value for name, value in resource.items() if name not in without}


def _ranges(resource: Resource) -> list[tuple[int, int]]:
    return [(int(each["begin"]), int(each["end"])) for each in resource["ranges"].get("range", ())]


def _spans(
    spans: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]], sign: int
) -> tuple[tuple[int, int], ...]:
    """With, or without, other spans; ends are included."""
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
