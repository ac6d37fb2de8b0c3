"""Choice of groups of a fabric: the fewest, those in use before free ones, segments, and large tables."""

import pytest

from mesos_gpu.policy.gangs import near as module
from mesos_gpu.policy.gangs.ground import UNUSED, Site
from mesos_gpu.policy.gangs.near import Near
from mesos_gpu.policy.gangs.search import Groups, Most, Rule, search

RACKS = Near("rack", above=("block",))


def sites(*racks: tuple[str, tuple[int, ...]], keys: dict[str, int] | None = None) -> list[Site]:
    """Make sites with some room each; the first letter of a rack is its block."""
    return [
        Site(room, {"block": rack[0], "rack": rack, "host": f"{rack}-{i}"}, (keys or {}).get(rack, 0))
        for rack, rooms in racks
        for i, room in enumerate(rooms)
    ]


def racks_of(tasks: int, there: list[Site], *rules: Rule, apart: bool = False) -> dict[str, int]:
    """Return the tasks in each rack, of a search."""
    counts = search(tasks, there, rules, apart=apart).counts
    used: dict[str, int] = {}
    for site, count in zip(there, counts or (), strict=False):
        if count:
            used[site.values["rack"]] = used.get(site.values["rack"], 0) + count
    return used


def test_search_takes_the_rack_with_the_fewest_nodes_and_then_the_least_room() -> None:
    there = sites(("a1", (4, 4)), ("a2", (4, 1)), ("a3", (2, 1)), ("a4", (2, 2)))
    assert racks_of(2, there, RACKS) == {"a3": 2}
    assert racks_of(3, there, RACKS) == {"a2": 3}
    assert racks_of(5, there, RACKS) == {"a2": 5}
    assert racks_of(6, there, RACKS) == {"a1": 6}


def test_search_takes_a_rack_in_use_before_a_free_one() -> None:
    there = sites(("a1", (3,)), ("a2", (3, 3)), keys={"a1": UNUSED})
    assert racks_of(3, there, RACKS) == {"a2": 3}
    assert racks_of(4, there, RACKS) == {"a2": 4}
    there = sites(("a1", (4,)), ("a2", (3, 3)), keys={"a1": UNUSED})
    assert racks_of(4, there, RACKS) == {"a1": 4}, "fewer nodes come first"
    there = sites(("a1", (4,)), ("a2", (4,)), ("a3", (2,)), ("a4", (2,)), keys={"a3": UNUSED})
    assert racks_of(10, there, RACKS).keys() == {"a1", "a2", "a4"}


def test_search_takes_the_fewest_racks_and_of_these_the_fewest_blocks() -> None:
    there = sites(("a1", (6,)), ("a2", (2,)), ("b1", (6,)), ("c1", (5,)), ("c2", (5,)))
    assert racks_of(10, there, RACKS) == {"c1": 5, "c2": 5}
    assert set(racks_of(12, there, RACKS)) == {"a1", "b1"}, "fewer racks come before fewer blocks"
    assert set(racks_of(8, there, Near("block", below=("rack",)))) == {"a1", "a2"}


def test_search_without_tables_takes_the_fewest_racks_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    there = sites(("a1", (6,)), ("a2", (2,)), ("b1", (6,)), ("c1", (5,)), ("c2", (5,)))
    monkeypatch.setattr(module, "MAX_PAIRS", 0)
    assert len(racks_of(10, there, RACKS)) == 2


def test_segments_stay_in_a_rack_each() -> None:
    there = sites(("a1", (3, 2)), ("a2", (3, 3)), ("a3", (2, 1)))
    assert racks_of(8, there, Near("rack", segment=4, is_required=True)) == {"a1": 4, "a2": 4}
    assert racks_of(12, there, Near("rack", segment=4, is_required=True)) == {}
    assert racks_of(12, there, Near("rack", segment=4)).keys() == {"a1", "a2", "a3"}
    assert racks_of(9, there, Near("rack", segment=3, is_required=True)) == {"a1": 3, "a2": 6}


def test_spread_gang_uses_all_nodes_of_the_fewest_racks() -> None:
    there = sites(("a1", (4, 4)), ("b1", (4, 4, 4)))
    counts = search(6, there, [RACKS], apart=True).counts
    assert counts is not None
    assert counts == (0, 0, 2, 2, 2)


def test_limits_of_hosts_count_in_the_room_of_a_rack() -> None:
    there = sites(("a1", (8,)), ("a2", (2, 2, 2)))
    assert racks_of(3, there, RACKS, Most("host", 1)) == {"a2": 3}
    assert racks_of(4, there, RACKS, Most("host", 1)) == {"a1": 1, "a2": 3}
    assert racks_of(5, there, RACKS, Most("host", 1)) == {}


def test_rules_that_are_no_limits_get_as_many_racks_as_they_need() -> None:
    there = sites(("a1", (8,)), ("a2", (4,)), ("b1", (2,)), ("b2", (2,)), ("b3", (1,)))
    assert racks_of(4, there, RACKS, Groups("block", 2, 4)) == {"a1": 2, "b1": 2}
    outcome = search(8, there, [Near("rack", segment=4, is_required=True), Groups("block", 2, 8)])
    assert outcome.counts is None
    assert not outcome.is_proven, "segments and shares of groups were not searched together"
