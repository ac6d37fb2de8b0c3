"""Placement on offers, and the choice of GPUs inside a node."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Health, Link
from mesos_gpu.model.resources import AMOUNTS, NOTHING, Resources
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.cluster.fragmentation import Mix, mix_of
from mesos_gpu.policy.cluster.local import closest
from mesos_gpu.policy.cluster.node_index import NodeIndex
from mesos_gpu.policy.cluster.shapes import Shape
from mesos_gpu.policy.cluster.share_rows import ShareRows
from mesos_gpu.policy.cluster.view import View
from tests.doubles.builders import request

ONE = request(1.0, 100, 1)


def gpus(agent: str, count: int, model: str = "T4", start: int = 0) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(GpuId(f"{agent}-{minor}"), model, 1000, minor, "", health=Health.OK)
        for minor in range(start, start + count)
    )


def agent(
    name: str,
    free: int = 4,
    *,
    cpus: float = 16.0,
    model: str = "T4",
    total: int = 4,
    driver: str | None = "535.1",
    offered: int | None = None,
) -> NodeCapacity:
    amounts = Resources(cpus=cpus, mem_mib=10_000, gpus=free if offered is None else offered)
    return NodeCapacity(
        AgentId(name), f"{name}.example", amounts, gpus(name, free, model),
        installed=gpus(name, total, model), driver=driver,
    )  # fmt: skip


def but(node: NodeCapacity, **amounts: float) -> NodeCapacity:
    """A node of which some amounts are others."""
    now = {amount.name: value for amount, value in zip(AMOUNTS, node.free, strict=True)}
    return replace(node, free=Resources(**{**now, **amounts}))


def mix() -> Mix:
    return mix_of([Shape(1000, 100, 1), Shape(1000, 100, 4)])


def where(
    wanted: Request,
    *candidates: NodeCapacity,
    placement: str = "bundle",
    siblings: Mapping[AgentId, int] | None = None,
) -> str | None:
    index = NodeIndex(candidates, mix)
    open_to = {candidate.agent_id: candidate for candidate in candidates}
    place = index.place(wanted, open_to, placement, siblings)
    return place.agent_id if place else None


A, B = agent("a"), agent("b", 2)
CPU_ONLY = agent("c", 0, total=0, model="")
CASES = {
    "bundle": (ONE, "bundle", (A, B), "b"),
    "spread": (ONE, "spread", (A, B), "a"),
    "spread takes the most free processors of equals": (ONE, "spread", (A, agent("d", cpus=32.0)), "d"),
    "bundle takes the fewest free processors for CPU work": (
        request(1.0, 100), "bundle", (CPU_ONLY, but(agent("d", 0, total=0, model=""), cpus=8.0)), "d",
    ),
    "fragmentation keeps the whole node": (ONE, "fragmentation", (A, B), "b"),
    "too few": (request(1.0, 100, 3), "bundle", (A, B), "a"),
    "nowhere": (request(1.0, 100, 5), "bundle", (A, B), None),
    "no processors": (request(17.0, 100, 1), "bundle", (A, B), None),
    "exactly all processors": (request(16.0, 10_000, 1), "bundle", (A,), "a"),
    "Mesos offers fewer than are free": (request(1.0, 100, 2), "bundle", (agent("a", 4, offered=1),), None),
    "CPU work keeps off GPUs": (request(1.0, 100), "bundle", (A, B, CPU_ONLY), "c"),
    "CPU work takes a node with GPUs if it must": (request(1.0, 100), "bundle", (A, B), "b"),
    "a model is of no account without GPUs": (request(1.0, 1, 0, ("A100",)), "bundle", (CPU_ONLY,), "c"),
    "the first model of the list": (
        request(1.0, 1, 1, ("H100", "T4")), "bundle", (agent("t", 1), agent("h", 4, model="H100")), "h",
    ),
    "the second, if the first has none": (request(1.0, 1, 1, ("V100", "T4")), "bundle", (A, B), "b"),
    "no such model": (request(1.0, 1, 1, ("V100",)), "bundle", (A, B), None),
    "the driver is too old": (
        request(1.0, 1, 1, (), "550"), "bundle", (A, agent("n", driver="550.54")), "n",
    ),
    "the most disk": (
        request(1.0, 1, 1, disk_mib=5.0), "bundle", (A, but(B, disk_mib=4.9), but(agent("d"), disk_mib=5.0)), "d",
    ),
    "no driver is known": (request(1.0, 1, 1, (), "550"), "bundle", (agent("n", driver=None),), None),
}  # fmt: skip


def test_node_choice_does_not_depend_on_the_order_of_offers() -> None:
    for name, (wanted, placement, candidates, want) in CASES.items():
        assert where(wanted, *candidates, placement=placement) == want, name
        assert where(wanted, *candidates[::-1], placement=placement) == want, (
            f"{name}, offered in another order"
        )


def test_spread_placement_takes_the_node_with_the_fewest_of_the_app() -> None:
    siblings = {AgentId("a"): 2, AgentId("b"): 1}
    assert where(ONE, A, B, placement="spread", siblings=siblings) == "b"
    assert where(ONE, A, B, agent("d", 1), placement="spread", siblings=siblings) == "d"
    assert where(request(1.0, 100, 3), A, B, placement="spread", siblings=siblings) == "a", "but it must fit"


@pytest.mark.parametrize(
    ("gpu_nodes", "candidates", "want"),
    [
        ("never", (A, B), None),
        ("never", (A, B, CPU_ONLY), "c"),
        ("last", (A, B), "b"),
        ("always", (B, but(CPU_ONLY, cpus=32.0)), "c"),
        ("always", (but(replace(B, gpus=()), gpus=0, cpus=2.0), CPU_ONLY), "b"),
    ],
)
def test_work_without_gpus_on_nodes_with_some(
    gpu_nodes: str, candidates: tuple[NodeCapacity, ...], want: str | None
) -> None:
    index = NodeIndex(candidates, mix)
    open_to = {candidate.agent_id: candidate for candidate in candidates}
    place = index.place(request(1.0, 100), open_to, gpu_nodes=gpu_nodes)
    assert (place.agent_id if place else None) == want


def test_job_gets_no_mix_of_models() -> None:
    both = gpus("m", 2) + gpus("m", 2, "A100", start=2)
    mixed = replace(but(agent("m", 2), gpus=4), gpus=both, installed=both)
    index = NodeIndex([mixed], mix)
    place = index.place(request(1.0, 1, 2), {mixed.agent_id: mixed})
    assert place is not None
    assert len({gpu.model for gpu in mixed.gpus if gpu.id in place.gpus}) == 1
    assert index.place(request(1.0, 1, 3), {mixed.agent_id: mixed}) is None


def having(name: str, *cards: tuple[int, str | None], **more: Any) -> NodeCapacity:
    """An agent with GPUs of one model and of that memory and capability."""
    free = tuple(
        replace(gpu, memory_mib=memory_mib, compute_capability=capability)
        for gpu, (memory_mib, capability) in zip(gpus(name, len(cards)), cards, strict=True)
    )
    return replace(agent(name, len(cards), **more), gpus=free, installed=free)


SMALL, BIG = (
    having("small", (16_000, "7.5"), (16_000, "7.5")),
    having("big", (80_000, "8.0"), (80_000, "9.0")),
)
MIXED = having("mixed", (10_000, None), (20_000, "8.0"), (40_000, "8.6"))
AMPERE = tuple(replace(gpu, model="A100") for gpu in BIG.gpus)
NEEDS = {
    "memory": (request(1, 1, 1, memory_mib=40_000), (SMALL, BIG), "big"),
    "exactly as much": (request(1, 1, 2, memory_mib=16_000), (SMALL,), "small"),
    "more than any has": (request(1, 1, 1, memory_mib=80_001), (SMALL, BIG, MIXED), None),
    "capability": (request(1, 1, 2, compute_capability="8.0"), (SMALL, BIG), "big"),
    "numbers, not texts": (
        request(1, 1, 1, compute_capability="9.5"), (BIG, having("new", (1_000, "10.0"))), "new",
    ),
    "too few of one model's": (request(1, 1, 2, compute_capability="9.0"), (SMALL, BIG), None),
    "two of three do": (request(1, 1, 2, memory_mib=20_000), (SMALL, MIXED), "mixed"),
    "not all three": (request(1, 1, 3, memory_mib=20_000), (MIXED,), None),
    "a capability that is not known will not do": (request(1, 1, 3, compute_capability="1.0"), (MIXED,), None),
    "both, and each of another": (
        request(1, 1, 1, memory_mib=40_000, compute_capability="9.0"), (SMALL, MIXED), None,
    ),
    "beside a driver": (
        request(1, 1, 1, (), "550", memory_mib=40_000), (BIG, having("n", (50_000, "8.0"), driver="550")), "n",
    ),
    "the first model has too little": (
        request(1, 1, 1, ("T4", "A100"), memory_mib=40_000),
        (SMALL, replace(BIG, gpus=AMPERE, installed=AMPERE)), "big",
    ),
    "of no account without GPUs": (request(1, 1, 0, memory_mib=99_000), (CPU_ONLY,), "c"),
}  # fmt: skip


@pytest.mark.parametrize("placement", ["bundle", "spread", "fragmentation"])
def test_placement_takes_gpus_that_have_what_is_asked_for(placement: str) -> None:
    for name, (wanted, candidates, want) in NEEDS.items():
        assert where(wanted, *candidates, placement=placement) == want, name


def test_placement_gives_and_counts_only_gpus_that_will_do() -> None:
    index, pair = NodeIndex([MIXED], mix), request(1, 1, 2, memory_mib=20_000)
    place = index.place(pair, {MIXED.agent_id: MIXED})
    assert place is not None
    assert set(place.gpus) == {MIXED.gpus[1].id, MIXED.gpus[2].id}
    kept = replace(MIXED, gpus=MIXED.gpus[:2])
    assert index.place(pair, {MIXED.agent_id: kept}) is None, "one of them is kept for another job"
    kept = but(kept, gpus=2)
    index.update(kept)
    after = {MIXED.agent_id: kept}
    assert index.place(pair, after) is None
    one = index.place(request(1, 1, 1, memory_mib=20_000), after)
    assert one is not None
    assert one.gpus == (MIXED.gpus[1].id,)


def test_placement_counts_what_was_launched_before() -> None:
    index = NodeIndex([A, B], mix)
    after = but(replace(B, gpus=B.gpus[1:]), gpus=1)
    index.place(ONE, {"a": A, "b": B})  # type: ignore[dict-item]
    index.update(after)
    open_to = {A.agent_id: A, B.agent_id: after}
    place = index.place(request(1.0, 100, 2), open_to)
    assert place is not None
    assert place.agent_id == "a"
    assert index.place(ONE, open_to).agent_id == "b"  # type: ignore[union-attr]


def test_placement_uses_nothing_kept_for_another_job() -> None:
    index = NodeIndex([A, B], mix)
    narrowed = but(replace(B, gpus=B.gpus[1:]), gpus=1)
    pair = index.place(request(1.0, 100, 2), {A.agent_id: A, B.agent_id: narrowed})
    assert pair is not None
    assert pair.agent_id == "a"
    one = index.place(ONE, {A.agent_id: A, B.agent_id: narrowed})
    assert one is not None
    assert one.gpus == (B.gpus[1].id,)
    assert index.place(ONE, {A.agent_id: A}).agent_id == "a"  # type: ignore[union-attr]


def test_share_rows_of_past_hosts_are_bounded() -> None:
    def made(reason: str) -> NodeCapacity:
        sharing = Sharing(1000, ((Ability.SHIM, reason),))
        return replace(A, installed=tuple(replace(gpu, sharing=sharing) for gpu in A.installed))

    rows = ShareRows([(made(""), "T4")], 4)
    overgrown = []
    for number in range(100):
        node = made(f"broken since {number} s")
        rows.state(0, node, "T4")
        overgrown.append(rows.is_beyond(node))
    assert (overgrown[0], overgrown[-1]) == (False, True)


# --- inside a node


def linked(
    kinds: Mapping[tuple[int, int], str], count: int, numa: Mapping[int, int] | None = None
) -> list[Gpu]:
    gpus_linked = []
    for gpu in gpus("n", count):
        links = tuple(
            Link(GpuId(f"n-{other}"), kind)
            for (one, other), kind in [*kinds.items(), *(((b, a), kind) for (a, b), kind in kinds.items())]
            if one == gpu.minor
        )
        gpus_linked.append(replace(gpu, links=links, numa_node=(numa or {}).get(gpu.minor)))
    return gpus_linked


def minors(ids: tuple[GpuId, ...]) -> list[int]:
    return [int(gpu.rpartition("-")[2]) for gpu in ids]


PAIRS = {(0, 3): "NV4", (1, 2): "NV4"}
INSIDE = {
    "NVLink before all": (linked(PAIRS, 4), 2, [0, 3]),
    "more links before fewer": (linked({(0, 1): "NV2", (2, 3): "NV12"}, 4), 2, [2, 3]),
    "one that breaks no pair": (linked({(0, 1): "NV4"}, 3), 1, [2]),
    "PCIe switch before the host bridge": (
        linked({(0, 1): "SYS", (1, 2): "PIX", (0, 2): "PHB"}, 3),
        2,
        [1, 2],
    ),
    "one NUMA node": (linked({}, 4, {0: 0, 1: 1, 2: 1, 3: 0}), 2, [0, 3]),
    "the NUMA node that is broken into already": (linked({}, 5, {0: 0, 1: 0, 2: 0, 3: 0, 4: 1}), 1, [4]),
    "nothing known: by minor": (linked({}, 4), 3, [0, 1, 2]),
    "all": (linked(PAIRS, 4), 4, [0, 1, 2, 3]),
}


@pytest.mark.parametrize(("free", "count", "want"), INSIDE.values(), ids=INSIDE)
def test_closest_gpus_are_chosen_in_any_order(free: list[Gpu], count: int, want: list[int]) -> None:
    assert minors(closest(free, count)) == want
    assert minors(closest(free[::-1], count)) == want


def test_sixteen_gpus_of_two_boards_are_chosen_at_once() -> None:
    """Too many sets to compare them all: still one board."""
    board = {(a, b): "NV18" for a in range(16) for b in range(a + 1, 16) if a % 2 == b % 2}
    rest = {(a, b): "SYS" for a in range(16) for b in range(a + 1, 16) if a % 2 != b % 2}
    chosen = minors(closest(linked({**board, **rest}, 16), 8))
    assert len({minor % 2 for minor in chosen}) == 1


@pytest.mark.parametrize("placement", ["bundle", "spread", "fragmentation", "bestfit"])
@pytest.mark.parametrize("seed", range(4))
def test_node_that_left_the_index_counts_as_one_without_room(placement: str, seed: int) -> None:
    chance = random.Random(seed)
    now = {name: agent(name, chance.randint(0, 4), cpus=4 + n % 7) for n, name in enumerate("abcdefgh")}
    index, always = NodeIndex(now.values(), mix), NodeIndex(now.values(), mix)
    for draw in range(150):
        name = chance.choice("abcdefgh")
        node = chance.choice([now[name], agent(name, chance.randint(0, 4), cpus=chance.randint(1, 16))])
        if node.agent_id in index.nodes and chance.random() < 0.6:
            index.leave(node.agent_id)
            always.update(replace(now[name], free=NOTHING, gpus=()))
        else:
            now[name] = node
            index.update(node)
            always.update(node)
        if chance.random() < 0.1:
            index.ask_again()
            always.ask_again()
        wanted = request(chance.choice([0, 1, 6]), 100, chance.choice([0, 1, 1, 2, 4]))
        there = dict(index.nodes)
        assert index.most() == always.most()
        assert index.place(wanted, there, placement, draw=draw) == always.place(
            wanted, there, placement, draw=draw
        )


def test_node_that_comes_back_unchanged_is_not_scored_again(monkeypatch: pytest.MonkeyPatch) -> None:
    index = NodeIndex([A, B], mix)
    assert index.place(ONE, index.nodes) is not None
    scored: list[int] = []
    monkeypatch.setattr(View, "set_row", lambda _, row, state: scored.append(row))
    for node in (A, B):
        index.leave(node.agent_id)
    assert index.place(ONE, index.nodes) is None
    for node in (A, B):
        index.update(replace(node))
    assert index.place(ONE, index.nodes) is not None
    assert scored == []
    index.leave(A.agent_id)
    index.update(but(A, cpus=1))
    assert len(scored) == 1
