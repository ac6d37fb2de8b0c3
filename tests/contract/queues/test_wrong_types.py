"""Documents of queues whose fields are of a wrong type: what the specification gives a type is refused in another."""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import zip_longest
from typing import Any, Final

import pytest

from mesos_gpu.api import openapi
from mesos_gpu.wire.checking import show
from tests.contract.rig import Rig

Schema = Mapping[str, Any]
Place = tuple[str | int, ...]  # keys from the outermost on; 0: the first of a list
Wrong = tuple[Place, Any]
AT_ONCE: Final = 80  # places with a name in a document: there may be no more than 100 pools
NAME: Final = "a"  # of a queue, and of all else that has a name
VALUES: Final[Mapping[str, Any]] = {
    "null": None, "boolean": True, "string": "no such value", "number": 1.5, "array": [["no such value"]],
    "object": {"no such field": 1},
}  # fmt: skip


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig()
    made = rig.call("PUT", "/v1/queues", json={"version": 0, "queues": {NAME: {}}})
    assert made.status_code == 200, made.text
    yield rig
    rig.close()


def typed(name: str) -> dict[str, bool]:
    """The fields of a schema, and whether it says anything of their values."""
    fields: dict[str, Any] = openapi.document()["components"]["schemas"][name]["properties"]
    return {field: bool({*schema} - {"description"}) for field, schema in fields.items()}


def test_a_field_is_refused_in_a_wrong_type_or_may_be_anything(rig: Rig) -> None:
    fields = typed("QueuesRequest")
    assert {field for field, has_type in fields.items() if not has_type} == {
        "at", "by", "reclaim_at", "plan", "warnings", "in_force",
    }  # fmt: skip
    for field, has_type in fields.items():
        response = rig.call("POST", "/v1/plan/queues", json={field: [["no such value"]]})
        assert response.status_code == (422 if has_type else 200), f"{field}: {response.text}"
        assert not has_type or field in response.text


def kinds(schema: Schema) -> list[Schema]:
    """What a value may be: schemas that are neither of several kinds nor references."""
    if "anyOf" in schema:
        return [kind for each in schema["anyOf"] for kind in kinds(each)]
    if "$ref" not in schema:
        return [schema]
    schemas: dict[str, Schema] = openapi.document()["components"]["schemas"]
    return [schemas[schema["$ref"].rpartition("/")[2]]]


def types(schema: Schema) -> set[str]:
    """The types that a value may have; none: any."""
    said = [kind.get("type", []) for kind in kinds(schema)]
    return {name for each in said for name in ([each] if isinstance(each, str) else each)}


def inside(schema: Schema, place: Place = ()) -> Iterator[tuple[Place, Schema]]:
    """Every place in a value, once for each kind of what it is in."""
    for kind in kinds(schema):
        parts: dict[str | int, Schema] = {**kind.get("properties", {})}
        if isinstance(kind.get("additionalProperties"), dict):
            parts[NAME] = kind["additionalProperties"]
        if "items" in kind:
            parts[0] = kind["items"]
        for key, part in parts.items():
            yield (*place, key), part
            yield from inside(part, (*place, key))


@cache
def wrong() -> tuple[Wrong, ...]:
    """Every place in a document, with a value of each type that it may not have."""
    allowed: dict[Place, set[str]] = {}
    for place, schema in inside({"$ref": "#/components/schemas/QueuesRequest"}):
        allowed.setdefault(place, set()).update(types(schema) or VALUES)
    return tuple(
        (place, value)
        for place, names in allowed.items()
        for name, value in VALUES.items()
        if name not in names
    )


def documents(tried: list[Wrong]) -> list[dict[Place, Any]]:
    """Places of which no two are in each other's way, so that a document has all of them: names are made different."""
    rows: dict[str | int, list[Wrong]] = {}
    named: list[Wrong] = []
    for place, value in tried:
        if place[1:2] == (NAME,):
            named.append(((place[0], f"{NAME}{len(named) % AT_ONCE}", *place[2:]), value))
        else:
            rows.setdefault(place[0], []).append((place, value))
    parts = [named[begin : begin + AT_ONCE] for begin in range(0, len(named), AT_ONCE)]
    columns = [[each for each in column if each] for column in zip_longest(*rows.values())]
    return [dict(each) for each in (*parts, *columns)]


def built(values: Mapping[Place, Any]) -> dict[str, Any]:
    """The smallest document that has these values there."""
    document: dict[Any, Any] = {}
    for (first, *rest), value in values.items():
        for key in reversed(rest):
            value = [value] if key == 0 else {key: value}
        document[first] = {**document.get(first, {}), **value} if isinstance(value, dict) and rest else value
    return document


def is_told(problems: list[dict[str, str]], place: Place, value: Any) -> bool:
    """Whether a problem says where it is, what is there, and what must be; a list's may be told of the list."""
    pointer = "/" + "/".join(map(str, place))
    reasons = [each["reason"] for each in problems if each["path"] in (pointer, pointer.removesuffix("/0"))]
    needed = value is None and any(reason.startswith("is missing") for reason in reasons)
    unsaid = place[-1] == "image_secret"  # what is there may be the secret itself, by mistake
    return needed or any("must be " in reason and (unsaid or show(value) in reason) for reason in reasons)


def test_the_places_that_are_tried_are_at_all_depths() -> None:
    places = {"/".join(map(str, place)) for place, _ in wrong()}
    assert places >= {
        "half_life_s", "gpu_cost/a", "pools/a/constraints/0/0", "classes/a/idle/policy", "users/a/max_gpus",
        "queues/a/weight", "queues/a/guarantee_gpus/a/0/nodes", "queues/a/hours/0/days/0", "queues/a/idle/warn_after_s",
        "queues/a/hours/0/guarantee_gpus/a/0/gpus", "queues/a/pools/0", "queues/a/budget/gpu_hours",
        "queues/a/user_budgets/a/from",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "route", "above"),
    [
        ("POST", "/v1/plan/queues", ()),
        ("PUT", "/v1/queues", ()),
        ("PUT", f"/v1/queues/{NAME}", ("queues", NAME)),
        ("PATCH", f"/v1/queues/{NAME}", ("queues", NAME)),
    ],
)
def test_a_field_at_any_depth_is_refused_in_each_wrong_type(
    rig: Rig, verb: str, route: str, above: Place
) -> None:
    depth = len(above)
    tried = [(place[depth:], value) for place, value in wrong() if place[:depth] == above and place[depth:]]
    assert len(tried) > 100
    for values in documents(tried):
        response = rig.call(verb, route, json={"version": 1, **built(values)})
        assert response.status_code == 422, response.text
        problems = response.json()["error"]["problems"]
        passed = {place: value for place, value in values.items() if not is_told(problems, place, value)}
        assert not passed, problems
