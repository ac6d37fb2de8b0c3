"""The index over shared GPUs: it finds a place exactly if there is one, and puts shares where the policy says."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.model.shares.share import EVERYBODY, Method
from mesos_gpu.policy.capacity.fit import Chosen, Fit, Misfit, fit
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.policy.cluster import node_index
from mesos_gpu.policy.cluster.fragmentation import mix_of
from mesos_gpu.policy.cluster.node_index import NodeIndex
from mesos_gpu.policy.cluster.registry import OFFERED
from mesos_gpu.policy.cluster.shapes import Shape
from mesos_gpu.policy.sharing.parts import GpuPart
from tests.doubles.builders import gpu
from tests.property.examples import examples
from tests.property.placement.test_shares import Cluster, nodes, requests

SHIM = Sharing(80_000, ((Ability.SHIM, ""),))
MIX = mix_of([Shape(500, 10, 1, 400, gpu_memory_milli=100), Shape(500, 10, 1, 100, gpu_memory_milli=400)])


def card(name: str) -> Gpu:
    return replace(gpu(name), sharing=SHIM)


def node(name: str, *cards: Gpu) -> NodeCapacity:
    free = Resources(cpus=64, mem_mib=9999, gpus=len(cards))
    return NodeCapacity(AgentId(name), name, free, cards, installed=cards)


def share(milli: int, memory_milli: int) -> Request:
    wanted = ShareRequest(milli, memory_mib=SHIM.memory_mib * memory_milli // 1000)
    return Request(Resources(cpus=1, mem_mib=16), GpuRequest(1, share=wanted), user="alice")


class Table:
    """Nodes, the index over them, and what is placed."""

    def __init__(self, *nodes: NodeCapacity, placement: str = "bundle") -> None:
        self.index, self.placement = NodeIndex(nodes, lambda: MIX), placement

    def place(self, wanted: Request) -> Chosen | None:
        chosen = self.index.place(wanted, self.index.nodes, self.placement)
        if chosen is not None:
            at = self.index.nodes[chosen.agent_id]
            self.index.update(at.minus(wanted.resources, chosen.gpus, chosen.share))
        return chosen

    def cards(self, *wanted: Request) -> list[str]:
        """On which GPU each goes; "": there is no room."""
        every = [self.place(each) for each in wanted]
        return ["".join(chosen.gpus) if chosen else "" for chosen in every]


@pytest.mark.parametrize("placement", OFFERED)
@pytest.mark.parametrize("turns", [(0, 1) * 4, (0, 0, 0, 0, 1, 1, 1, 1)])
def test_eight_jobs_of_much_memory_or_much_compute_fit_on_two_cards(
    placement: str, turns: tuple[int, ...]
) -> None:
    kinds = share(100, 400), share(400, 100)
    table = Table(node("a", card("g0"), card("g1")), placement=placement)
    places = table.cards(*(kinds[turn] for turn in turns))
    if turns[1] == 1:  # two of each kind on each card
        assert sorted(places) == ["g0"] * 4 + ["g1"] * 4
    else:  # those of one kind come first, and fill what they can of both
        assert all(places)


def test_bundle_fills_open_cards_before_it_opens_another() -> None:
    small, large = node("small", card("g0")), node("large", *(card(f"h{i}") for i in range(4)))
    table = Table(small, large)
    assert table.cards(*[share(250, 250)] * 4) == ["g0"] * 4, "the node with least free comes first"
    on_large = table.cards(*[share(250, 250)] * 6)
    assert on_large == ["h0"] * 4 + ["h1"] * 2
    fresh = node("fresh", card("k0"))
    table = Table(*table.index.nodes.values(), fresh)
    assert table.cards(share(250, 250)) == ["h1"], "though a node with less free could open a card"


def test_spread_takes_the_emptiest_card() -> None:
    table = Table(node("a", card("g0"), card("g1"), card("g2")), placement="spread")
    assert table.cards(*[share(300, 300)] * 4) == ["g0", "g1", "g2", "g0"]


def test_fragmentation_leaves_room_that_others_can_use() -> None:
    table = Table(node("a", card("g0"), card("g1")), placement="fragmentation")
    assert table.cards(share(400, 100), share(100, 400)) == ["g0", "g0"]


def test_a_share_is_not_where_nobody_could_enforce_it() -> None:
    bare = gpu("g9")
    table = Table(node("bare", bare), node("able", card("g0")))
    assert table.cards(share(250, 250)) == ["g0"]
    assert Table(node("bare", bare)).cards(share(250, 250)) == [""]


def test_cards_of_another_owner_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sharing = Sharing(80_000, ((Ability.SHIM, ""), (Ability.MPS2, "")))

    def owned(name: str, owner: str) -> NodeCapacity:
        only = replace(gpu(f"{name}-0"), sharing=sharing)
        part = GpuPart(only.id, 900, 72_000, Method.SHIM_MPS2, owner)
        return replace(node(name, only), parts=(part,))

    looked: list[AgentId] = []

    def seen(wanted: Request, at: NodeCapacity) -> Fit | Misfit:
        looked.append(at.agent_id)
        return fit(wanted, at)

    monkeypatch.setattr(node_index, "fit", seen)
    table = Table(*(owned(f"bobs{i:02}", "bob") for i in range(50)))
    assert table.cards(share(100, 100)) == [""]
    assert not looked
    table.index.update(owned("bobs07", "alice"))
    assert table.cards(share(100, 100)) == ["bobs07-0"]
    assert looked == ["bobs07"]


def test_cards_of_several_users_are_looked_at_by_those_who_may_share_them() -> None:
    sharing = Sharing(80_000, ((Ability.SHIM, ""), (Ability.MPS2, "")), mps_users=True)
    only = replace(gpu("a-0"), sharing=sharing)
    part = GpuPart(only.id, 900, 72_000, Method.SHIM_MPS2, EVERYBODY)
    table = Table(replace(node("a", only), parts=(part,)))
    assert table.cards(share(100, 100)) == [""]
    asked = share(100, 100)
    assert asked.gpu.share is not None
    across = replace(asked, gpu=replace(asked.gpu, share=replace(asked.gpu.share, across_users=True)))
    assert table.cards(across) == ["a-0"]


def test_whole_gpus_stay_off_open_cards() -> None:
    table = Table(node("a", card("g0"), card("g1")))
    assert table.cards(share(10, 10)) == ["g0"]
    whole = Request(Resources(cpus=1, mem_mib=16, gpus=1), GpuRequest(1))
    assert table.cards(whole, whole) == ["g1", ""]


@examples(35, 200)
@given(st.lists(nodes(), min_size=1, max_size=3), st.lists(requests(), max_size=12), st.sampled_from(OFFERED))
def test_a_place_is_found_exactly_if_there_is_one(
    every: list[NodeCapacity], asked: list[Request], placement: str
) -> None:
    clusters = {
        AgentId(f"a{i}"): Cluster(replace(each, agent_id=AgentId(f"a{i}"), hostname=f"a{i}"))
        for i, each in enumerate(every)
    }
    index = NodeIndex([cluster.node for cluster in clusters.values()], lambda: MIX)
    for i, wanted in enumerate(asked):
        able = {each for each, cluster in clusters.items() if isinstance(fit(wanted, cluster.node), Fit)}
        chosen = index.place(wanted, index.nodes, placement)
        assert (chosen is not None) == bool(able)
        if chosen is not None:
            cluster = clusters[chosen.agent_id]
            cluster.start(wanted, chosen)
            cluster.check()
            index.update(cluster.node)
        if i % 3 == 2:
            for cluster in clusters.values():
                cluster.end(i)
                index.update(cluster.node)
