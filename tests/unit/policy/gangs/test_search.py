"""Search for the nodes of a gang: the fewest nodes, preferred ones, rules, and the bound."""

import random

import pytest

from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.policy.cluster.constraints import Placed
from mesos_gpu.policy.gangs.ground import Site
from mesos_gpu.policy.gangs.rules import rules_of
from mesos_gpu.policy.gangs.search import Even, Groups, Most, Outcome, Rule, Together, search


def sites(*rooms: int, keys: tuple[int, ...] = (), racks: str = "", rows: str = "") -> list[Site]:
    """Make sites, each on a host of its own, in the racks and rows that letters name."""
    made = []
    for i, room in enumerate(rooms):
        values = {"hostname": f"h{i}"}
        values |= {"rack": racks[i]} if racks else {}
        values |= {"row": rows[i]} if rows else {}
        made.append(Site(room, values, keys[i] if keys else 0))
    return made


@pytest.mark.parametrize(
    ("tasks", "rooms", "keys", "counts"),
    [
        (2, (1, 1, 2), (), (0, 0, 2)),
        (8, (4, 4, 8), (), (0, 0, 8)),
        (10, (8, 1, 4, 2), (), (8, 0, 0, 2)),
        (2, (2, 2, 2), (3, 1, 2), (0, 2, 0)),
        (4, (3, 2, 2), (9, 1, 1), (0, 2, 2)),
        (4, (3, 2, 1), (9, 5, 1), (3, 0, 1)),
        (3, (2, 0, 0), (), None),
        (3, (), (), None),
    ],
)
def test_search_takes_the_fewest_nodes_and_of_these_the_preferred(
    tasks: int, rooms: tuple[int, ...], keys: tuple[int, ...], counts: tuple[int, ...] | None
) -> None:
    assert search(tasks, sites(*rooms, keys=keys)) == Outcome(counts)


@pytest.mark.parametrize(
    ("tasks", "rooms", "keys", "counts"),
    [
        (3, (3, 3, 3), (), (1, 1, 1)),
        (4, (3, 3, 3), (2, 1, 3), (1, 2, 1)),
        (5, (1, 4, 1), (), (1, 3, 1)),
        (7, (1, 4, 1), (), None),
    ],
)
def test_search_apart_deals_each_node_one_task_in_turn(
    tasks: int, rooms: tuple[int, ...], keys: tuple[int, ...], counts: tuple[int, ...] | None
) -> None:
    assert search(tasks, sites(*rooms, keys=keys), apart=True) == Outcome(counts)


@pytest.mark.parametrize(
    ("rule", "tasks", "counts"),
    [
        (Together("rack"), 4, (0, 2, 2)),
        (Together("rack"), 5, None),
        (Most("hostname", 1), 3, (1, 1, 1)),
        (Most("hostname", 1), 4, None),
        (Most("rack", 2), 4, (2, 2, 0)),
        (Most("rack", 2, {"b": 1}), 3, (2, 1, 0)),
        (Most("rack", 2, {"b": 3}), 2, (2, 0, 0)),
        (Groups("rack", 2, 4), 4, (2, 2, 0)),
        (Groups("rack", 2, 5), 5, (2, 2, 1)),
        (Groups("rack", 2, 5, {"b": 2}), 3, (2, 1, 0)),
        (Groups("rack", 1, 4), 4, (0, 2, 2)),
        (Groups("rack", 3, 4), 4, None),
        (Groups("rack", 3, 6), 4, (2, 2, 0)),
        (Groups("rack", 1, 3, {"c": 1}), 2, None),
        (Even("rack"), 4, (2, 2, 0)),
        (Even("rack"), 6, (2, 2, 2)),
        (Even("rack", {"a": 1}), 3, (1, 2, 0)),
    ],
)
def test_search_keeps_a_rule(rule: Rule, tasks: int, counts: tuple[int, ...] | None) -> None:
    assert search(tasks, sites(2, 2, 2, racks="abb"), (rule,)) == Outcome(counts)


def test_search_spreads_evenly_only_as_far_as_limits_let_it() -> None:
    ground = sites(4, 4, 4, racks="abc", rows="xxy")
    assert search(6, ground, (Even("rack"),)).counts == (2, 2, 2)
    assert search(6, ground, (Even("rack"), Together("row"))).counts == (3, 3, 0)
    assert search(6, ground, (Even("rack"), Most("row", 3))).counts in {(2, 1, 3), (1, 2, 3)}


def test_search_says_whether_it_is_complete_where_fields_cross() -> None:
    chance = random.Random(0)
    ground = sites(*[2] * 36, racks="abcdef" * 6, rows="".join(chance.choice("uvwxyz") for _ in range(36)))
    rules = (Groups("rack", 5, 30), Groups("row", 5, 30))
    assert search(30, ground, rules, max_looks=5) == Outcome(None, is_proven=False)
    assert search(73, ground, rules, max_looks=5) == Outcome(None), "there is not so much room"
    assert search(4, sites(2, 2, racks="aa", rows="uv"), (Most("rack", 3), Most("row", 2))) == Outcome(None)


def test_rules_are_those_of_constraints_that_compare_tasks() -> None:
    constraints = [
        Constraint("hostname", Operator.UNIQUE),
        Constraint("rack", Operator.MAX_PER, "3"),
        Constraint("rack", Operator.CLUSTER),
        Constraint("rack", Operator.CLUSTER, "a"),
        Constraint("rack", Operator.GROUP_BY, "2"),
        Constraint("rack", Operator.GROUP_BY),
        Constraint("rack", Operator.LIKE, "a"),
    ]
    placed = [Placed("one", Node(AgentId("a1"), "h1", attributes={"rack": "a"}))] * 2
    placed.append(Placed("two", Node(AgentId("a2"), "h2")))
    assert list(rules_of(constraints, placed, 7)) == [
        Most("hostname", 1, {"h1": 2, "h2": 1}),
        Most("rack", 3, {"a": 2}),
        Together("rack"),
        Groups("rack", 2, 7, {"a": 2}),
        Even("rack", {"a": 2}),
    ]
