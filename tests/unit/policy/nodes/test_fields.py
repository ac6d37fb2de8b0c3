"""Fields of nodes, and the constraints that no other task has a part in."""

from dataclasses import dataclass, field

import pytest

from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.policy.nodes.fields import UNDECIDED, excluded, value_of


@dataclass(frozen=True)
class Agent:
    hostname: str = "h1"
    region: str | None = "r1"
    zone: str | None = None
    attributes: dict[str, str] = field(default_factory=lambda: {"rack": "7", "@region": "other"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hostname", "h1"), ("@hostname", "h1"), ("@region", "r1"), ("@zone", None), ("rack", "7"), ("size", None),
    ],
)  # fmt: skip
def test_value_of_a_field_is_that_of_its_node(name: str, value: str | None) -> None:
    assert value_of(name, Agent()) == value


def test_zone_of_a_node_is_its_own_field() -> None:
    assert value_of("@zone", Agent(zone="z1", attributes={"@zone": "other"})) == "z1"


@pytest.mark.parametrize(
    ("asked", "has", "fits"),
    [
        ("7", "7", True),
        ("007", "7", True),
        ("7.0", "7", True),
        ("7.5", "7.5", True),
        ("7.1234", "7.123", True),
        ("7.", "7", False),
        ("7.", "7.", True),
        (".5", "0.5", False),
        (".5", ".5", True),
        ("-7", "-7", True),
        ("-7.0", "-7", False),
        ("1e3", "1000", False),
        ("7.0.0", "7.0.0", True),
        ("\u00b2", "\u00b2", True),
        ("\u0663", "3", False),
        ("1.\u0663", "1.3", False),
        ("a.5", "a.5", True),
        ("a", "b", False),
    ],
)
def test_number_of_a_constraint_is_compared_as_a_scalar_attribute(asked: str, has: str, fits: bool) -> None:
    words = excluded(Constraint("rack", Operator.IS, asked), Agent(attributes={"rack": has}))
    assert words == ("" if fits else f"rack is {has}")


@pytest.mark.parametrize(
    ("operator", "value", "words"),
    [
        (Operator.IS, "8", "rack is 7"),
        (Operator.LIKE, "[78]", ""),
        (Operator.LIKE, "8", "rack is 7"),
        (Operator.UNLIKE, "[78]", "rack is 7"),
        (Operator.UNLIKE, "8", ""),
        (Operator.CLUSTER, "7", ""),
        (Operator.CLUSTER, "7.0", "rack is 7"),
        (Operator.CLUSTER, "", ""),
        (Operator.UNIQUE, "", ""),
        (Operator.GROUP_BY, "2", ""),
        (Operator.MAX_PER, "2", ""),
    ],
)
def test_constraint_excludes_a_node_by_its_value(operator: Operator, value: str, words: str) -> None:
    assert excluded(Constraint("rack", operator, value), Agent()) == words


@pytest.mark.parametrize("operator", Operator)
def test_node_without_a_field_is_unlike_everything_and_meets_nothing_else(operator: Operator) -> None:
    wanted = "" if operator is Operator.UNLIKE else "it has no size"
    assert excluded(Constraint("size", operator, "2"), Agent()) == wanted


@pytest.mark.parametrize("operator", [Operator.LIKE, Operator.UNLIKE])
def test_expression_that_is_not_compared_yet_decides_nothing(operator: Operator) -> None:
    assert excluded(Constraint("rack", operator, "7"), Agent(), lambda *_: None) == UNDECIDED
