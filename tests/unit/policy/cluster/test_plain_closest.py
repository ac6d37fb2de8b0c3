"""GPUs of a node that are near to each other, against a look at all sets."""

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Link
from mesos_gpu.policy.cluster.local import closest
from tests.doubles.builders import gpu

FAR = {"PIX": 30, "PXB": 40, "PHB": 50, "NODE": 60, "SYS": 80, "NV1": 19, "NV4": 16, "NV18": 2, "NV25": 0}


def distance(one: Gpu, other: Gpu) -> int:
    for near, peer in ((one, other), (other, one)):
        for link in near.links:
            if link.peer == peer.id and link.kind:
                return FAR.get(link.kind, by_node(one, other))
    return by_node(one, other)


def by_node(one: Gpu, other: Gpu) -> int:
    if one.numa_node is None or other.numa_node is None:
        return 70
    return 60 if one.numa_node == other.numa_node else 80


def within(gpus: tuple[Gpu, ...]) -> int:
    return sum(distance(one, other) for one, other in combinations(gpus, 2))


def linked(chance: Random, count: int) -> list[Gpu]:
    cards = [gpu(f"g{i}", numa_node=chance.choice((0, 1, None))) for i in range(count)]
    made = []
    for i, card in enumerate(cards):
        peers = [other for other in cards[i + 1 :] if chance.random() < 0.7]
        links = tuple(Link(peer.id, chance.choice((*FAR, "X"))) for peer in peers)
        made.append(replace(card, links=links, memory_mib=chance.choice((80_000, 40_000))))
    chance.shuffle(made)
    return made


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_closest_gpus_are_the_first_of_the_nearest_that_leave_the_others_near(count: int) -> None:
    for seed in range(20):
        cards = linked(Random(seed), 5)
        ordered = sorted(cards, key=lambda card: (card.memory_mib, card.minor))
        sets = list(combinations(ordered, count))

        def cost(chosen: tuple[Gpu, ...], ordered: list[Gpu] = ordered) -> tuple[int, int]:
            return within(chosen), within(tuple(card for card in ordered if card not in chosen))

        assert closest(cards, count) == tuple(card.id for card in min(sets, key=cost)), seed


def test_closest_gpus_of_many_are_grown_from_the_nearest() -> None:
    """Twenty cards: two groups of eight, and four cards beside them; too many sets to compare."""
    order = Random(5).sample(range(20), 20)
    group = {number: place // 8 for place, number in enumerate(order)}  # 8, 8, and 4 beside
    cards = [
        replace(
            gpu(f"g{i:02}", numa_node=0),
            links=tuple(
                Link(GpuId(f"g{j:02}"), "NV4" if group[i] == 1 else "PIX")
                for j in range(i + 1, 20)
                if group[j] == group[i] < 2
            ),
        )
        for i in range(20)
    ]
    members = [f"g{i:02}" for i in range(20) if group[i] == 1]
    rest = next(i for i in range(20) if group[i] != 1)
    assert closest(cards, 8) == tuple(members)
    assert closest(cards[::-1], 8) == tuple(members)
    assert closest(cards, 9) == tuple(sorted([*members, f"g{rest:02}"]))


def test_closest_gpus_that_are_alike_are_the_first_by_memory_and_number() -> None:
    cards = [replace(gpu(f"g{i}", numa_node=0), memory_mib=memory) for i, memory in ((3, 9), (1, 9), (2, 8))]
    assert closest(cards, 2) == ("g2", "g1")
    assert closest(cards, 5) == ("g2", "g1", "g3")
    assert closest([], 2) == ()
