"""Ports of hosts that instances get: which are chosen, what is taken, and what is left."""

import pytest

from mesos_gpu.model.apps.app import App, Container, PortDefinition, PortMapping, PortProtocol
from mesos_gpu.model.jobs.port import PortBinding, PortWish
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.policy.apps.ports import Chosen, bindings_of, choose, enough, offers, wishes_of, without

OFFERED = (PortRange(1, 2, "a"), PortRange(10, 14, "b"), PortRange(20, 21, "c"))


def wishes(*host_ports: int | None) -> list[PortWish]:
    return [PortWish(None, 0, port) for port in host_ports]


def taken(*ports: int) -> tuple[PortRange, ...]:
    return tuple(PortRange(port, port, "abc"[port // 10]) for port in ports)


def test_free_ports_go_round_the_longest_range_and_then_through_the_others() -> None:
    begins = set()
    for seed in range(40):
        chosen = choose(wishes(*[0] * 9), OFFERED, str(seed))
        assert chosen is not None
        first = chosen.numbers[0]
        assert first is not None
        begins.add(first)
        assert chosen.numbers == (*range(first, 15), *range(10, first), 1, 2, 20, 21)
        assert chosen.taken == taken(1, 2, 10, 11, 12, 13, 14, 20, 21)
        assert choose(wishes(*[0] * 10), OFFERED, str(seed)) is None
    assert begins == {10, 11, 12, 13, 14}


@pytest.mark.parametrize(
    ("ports", "numbers", "used"),
    [
        ((), (), ()),
        ((None,), (None,), ()),
        ((21, 1, None), (21, 1, None), (1, 21)),
        ((10, 12, 10), (10, 12, 10), (10, 12)),
        ((1, 2, 20, 21, 10, 11, 12, 13, 0), (1, 2, 20, 21, 10, 11, 12, 13, 14),
         (1, 2, 10, 11, 12, 13, 14, 20, 21)),
    ],
)  # fmt: skip
def test_ports_that_are_asked_for_are_taken_once(
    ports: tuple[int | None, ...], numbers: tuple[int | None, ...], used: tuple[int, ...]
) -> None:
    assert choose(wishes(*ports), OFFERED, "x") == Chosen(numbers, taken(*used))
    assert enough(wishes(*ports), OFFERED)


def test_taken_ports_are_in_order_whatever_the_order_of_wishes() -> None:
    offered = [PortRange(31000, 40000, "r")]
    ports = (39001, 31007, 35003, 31000, 40000)
    chosen = choose(wishes(*ports), offered, "x")
    assert chosen == Chosen(ports, tuple(PortRange(port, port, "r") for port in sorted(ports)))


@pytest.mark.parametrize(
    "ports", [(3,), (9,), (15,), (22,), (1, 2, 20, 21, 10, 11, 12, 13, 0, 0), (0,) * 10, (1, *(0,) * 9)]
)
def test_ports_that_are_not_offered_are_lacking(ports: tuple[int, ...]) -> None:
    assert choose(wishes(*ports), OFFERED, "x") is None
    assert not enough(wishes(*ports), OFFERED)


def test_agent_without_ports_has_none() -> None:
    assert choose(wishes(0), [], "x") is None
    assert choose(wishes(None), [], "x") == Chosen((None,), ())
    assert (enough(wishes(0), []), enough(wishes(None), [])) == (False, True)
    assert [offers(OFFERED, port) for port in (0, 1, 2, 3, 14, 15)] == [False, True, True, False, True, False]


@pytest.mark.parametrize(
    ("used", "left"),
    [
        ((), [(1, 2, "a"), (10, 14, "b"), (20, 21, "c")]),
        ((1,), [(2, 2, "a"), (10, 14, "b"), (20, 21, "c")]),
        ((2,), [(1, 1, "a"), (10, 14, "b"), (20, 21, "c")]),
        ((1, 2), [(10, 14, "b"), (20, 21, "c")]),
        ((10, 12), [(1, 2, "a"), (11, 11, "b"), (13, 14, "b"), (20, 21, "c")]),
        ((12, 13, 21), [(1, 2, "a"), (10, 11, "b"), (14, 14, "b"), (20, 20, "c")]),
        ((14, 20), [(1, 2, "a"), (10, 13, "b"), (21, 21, "c")]),
    ],
)
def test_ports_that_are_left_have_the_kinds_of_their_ranges(
    used: tuple[int, ...], left: list[tuple[int, int, str]]
) -> None:
    assert without(taken(*used), OFFERED) == tuple(PortRange(*each) for each in left)


BOTH = ("udp", "tcp")


def test_ports_of_an_app_are_its_mappings_and_else_its_definitions() -> None:
    mappings = (
        PortMapping(80, 0, 10001, "web", labels={"b": "2", "a": "1"}),
        PortMapping(0, None, protocol=PortProtocol.BOTH),
    )
    mapped = App("/a", container=Container(port_mappings=mappings), require_ports=True)
    assert wishes_of(mapped) == (
        PortWish("web", 80, 0, labels=(("a", "1"), ("b", "2"), ("network-scope", "host"))),
        PortWish(None, 0, None, BOTH, (("network-scope", "container"),)),
    )
    definitions = (PortDefinition(10001, "web", PortProtocol.BOTH, {"b": "2", "a": "1"}), PortDefinition())
    labels = (("a", "1"), ("b", "2"))
    for required in (False, True):
        app = App(
            "/a", port_definitions=definitions, require_ports=required, container=Container(port_mappings=())
        )
        port = 10001 if required else 0
        assert wishes_of(app) == (PortWish("web", 10001, port, BOTH, labels), PortWish(None, 0, 0))
    assert wishes_of(App("/a", port_definitions=None)) == ()


def test_bindings_lead_to_the_ports_of_the_container() -> None:
    asked = [PortWish(None, 80, 0), PortWish(None, 0, 0, BOTH)]
    assert bindings_of(asked, (31000, 31001)) == (
        PortBinding(80, 31000, "tcp"), PortBinding(31001, 31001, "udp"), PortBinding(31001, 31001, "tcp"),
    )  # fmt: skip


def test_ports_in_use_lately_are_chosen_only_when_no_others_are_left() -> None:
    offered = (PortRange(100, 103), PortRange(200, 200))
    for seed in map(str, range(20)):
        three = choose([PortWish(None, 0, 0)] * 3, offered, seed, {100: 5.0, 102: 4.0})
        assert three is not None
        assert {*three.numbers} == {101, 103, 200}
        four = choose([PortWish(None, 0, 0)] * 4, offered, seed, {100: 5.0, 102: 4.0})
        assert four is not None
        assert {*four.numbers[:3]} == {101, 103, 200}
        assert four.numbers[3] == 102, "the one that was given back first"
        named = choose([PortWish(None, 0, 100)], offered, seed, {100: 5.0, 102: 4.0})
        assert named is not None
        assert named.numbers == (100,), "one that is asked for by number is taken"
