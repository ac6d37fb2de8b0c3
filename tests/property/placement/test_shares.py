"""Shares of GPUs: never too much, and what is decided, counted and said agree, whatever the node and the request."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.shares.card import Ability, MigInstance, Sharing
from mesos_gpu.model.shares.request import Isolation, ShareRequest
from mesos_gpu.model.shares.share import EVERYBODY, Share
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.policy.capacity.fit import (
    Chosen,
    Fit,
    Misfit,
    beside_all,
    fit,
    misfits,
    room_for,
    share_for,
    soonest,
)
from mesos_gpu.policy.capacity.node import ENDLESS, Allocation, NodeCapacity, by_end
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.policy.explain.hurdles import hurdles
from mesos_gpu.policy.room.reservation import after_launch, reserve
from mesos_gpu.policy.room.together import reserve_together
from mesos_gpu.policy.sharing.cards import emptiest, tightest
from mesos_gpu.policy.sharing.parts import unshared
from tests.doubles.builders import gpu, spec
from tests.property.examples import examples

ABILITIES = tuple(Ability)
EXECUTOR = Resources(cpus=0.5, mem_mib=10)
COVER, KEEPER = Resources(cpus=0.25, mem_mib=1, gpus=1), Resources(cpus=0.5, mem_mib=32)

isolations = st.sampled_from(tuple(Isolation))
wishes = st.builds(
    ShareRequest,
    st.sampled_from((100, 250, 400, 999, 1000)),
    memory_mib=st.sampled_from((1_000, 20_000, 32_768, 80_000)),
    memory_max_mib=st.sampled_from((None, 60_000)),
    isolation=isolations,
) | st.sampled_from((100, 250, 400, 999)).flatmap(
    lambda milli: st.builds(ShareRequest, st.just(milli), st.just(milli), isolation=isolations)
)


@st.composite
def sharings(draw: st.DrawFn) -> Sharing | None:
    """With some abilities, or in MIG mode with some instances, or none at all."""
    if draw(st.integers(0, 5)) == 0:
        return None
    usable = draw(st.sets(st.sampled_from(ABILITIES)))
    abilities = tuple((each, "" if each in usable else "it is not there") for each in ABILITIES)
    memory_mib = draw(st.sampled_from((40_000, 80_000)))
    if draw(st.integers(0, 4)):
        clients, users = draw(st.sampled_from((0, 0, 1, 3))), draw(st.booleans())
        return Sharing(memory_mib, abilities, mps_clients=clients, mps_users=users)
    instances = tuple(
        MigInstance(f"MIG-{i}", "1g", memory_mib // 8, 14, i, 0, 142, 125, i, 1)
        for i in range(draw(st.integers(0, 7)))
    )
    return Sharing(memory_mib, abilities, mig=True, instances=instances)


@st.composite
def nodes(draw: st.DrawFn) -> NodeCapacity:
    """Up to five cards of one or two kinds, wholly free."""
    kinds = draw(st.lists(sharings(), min_size=1, max_size=2))
    cards = tuple(
        replace(
            gpu(f"g{i}", health=draw(st.sampled_from((Health.OK, Health.OK, Health.OK, Health.SICK)))),
            sharing=draw(st.sampled_from(kinds)),
        )
        for i in range(draw(st.integers(1, 5)))
    )
    well = tuple(card for card in cards if card.health is Health.OK)
    return NodeCapacity(
        AgentId("a"),
        "a",
        Resources(cpus=draw(st.integers(1, 12)), mem_mib=999, gpus=draw(st.integers(0, len(well)))),
        well,
        installed=cards,
        compute_milli=draw(st.sampled_from((WHOLE, WHOLE, 1500))),
        cover=COVER,
        keeper=draw(st.sampled_from((KEEPER, Resources()))),
    )


@st.composite
def requests(draw: st.DrawFn, *, shares_only: bool = False) -> Request:
    """Requests for a share of some cards, or for whole cards."""
    user, tasks = draw(st.sampled_from((None, "root", "alice", "bob"))), draw(st.sampled_from((1, 1, 2)))
    if not shares_only and draw(st.booleans()):
        count = draw(st.integers(1, 3))
        return Request(EXECUTOR.with_gpus(count), GpuRequest(count), tasks=tasks, user=user)
    wish = draw(wishes)
    if wish.isolation is not Isolation.STRICT:
        wish = replace(wish, across_users=draw(st.booleans()))
    count = 1 if wish.memory_mib is None else draw(st.sampled_from((1, 1, 2, 3)))
    return Request(EXECUTOR, GpuRequest(count, share=wish), tasks=tasks, user=user)


def job(name: str, tasks: int = 1) -> Job:
    """A job of some tasks; what each asks for is given beside it."""
    return Job(JobId(name), spec(tasks=tasks), submitted_at=0.0, sequence=0)


class Cluster:
    """A node and what runs on it, by nothing but what is decided."""

    def __init__(self, node: NodeCapacity) -> None:
        """Begin with nothing on it."""
        self.node, self.held = node, list[Allocation]()
        self.by_id = {card.id: card for card in node.installed}

    def launch(self, wanted: Request, *, spread: bool = False) -> bool:
        """Start a task if there is room, and say whether there was."""
        if isinstance(fit(wanted, self.node), Misfit):
            return False
        if wanted.gpu.share is None:
            group = max(self.node.usable(wanted.gpu), key=len)
            chosen = Chosen(self.node.agent_id, tuple(card.id for card in group[: wanted.gpu.count]))
        else:
            place = share_for(wanted, self.node, None, emptiest if spread else tightest)
            assert place is not None, "it fits, and has no place"
            chosen = place
        self.start(wanted, chosen)
        return True

    def start(self, wanted: Request, chosen: Chosen) -> None:
        """Start it there."""
        ids = chosen.gpus
        assert len(set(ids)) == wanted.gpu.count
        if chosen.share is not None:
            assert set(chosen.opens) == set(ids) - {part.gpu_id for part in self.node.parts}
        self.node = self.node.minus(wanted.resources, ids, chosen.share)
        gpus, ends_at = tuple(self.by_id[each] for each in ids), float(len(self.held) * 7 % 5)
        job_id = JobId(f"j{len(self.held)}")
        self.held.append(Allocation(job_id, wanted.resources, gpus, ends_at=ends_at, share=chosen.share))

    def end(self, index: int) -> None:
        """End one of them."""
        if self.held:
            self.node = self.node.without([self.held.pop(index % len(self.held))])

    def check(self) -> None:
        """Nobody has too much, and what is free is what nobody has."""
        for card in self.by_id.values():
            mine = [held for held in self.held if card in held.gpus]
            shares = [held.share for held in mine if held.share is not None]
            part = next((part for part in self.node.parts if part.gpu_id == card.id), None)
            assert len(mine) <= 1 or len(shares) == len(mine), "a card is held wholly and in part"
            if shares:
                self._check_shares(card, shares)
                assert part is not None, "a card with shares is not open"
                assert part.milli == self.node.compute_milli - sum(share.compute_milli for share in shares)
                assert part.memory_mib == unshared(card).memory_mib - sum(
                    share.memory_mib for share in shares
                )
            else:
                assert part is None, "a card without shares is open"
            assert (card in self.node.gpus) == (card.health is Health.OK and not (mine and not shares))

    def _check_shares(self, card: Gpu, shares: Sequence[Share]) -> None:
        assert card.sharing is not None
        assert sum(share.memory_mib for share in shares) <= card.sharing.memory_mib
        assert sum(share.compute_milli for share in shares) <= self.node.compute_milli
        assert len({share.method for share in shares}) == 1, "they are enforced in two ways"
        (domain,) = {share.domain for share in shares}
        assert domain != EVERYBODY or card.sharing.mps_users
        if shares[0].method.has_domain and card.sharing.mps_clients:
            assert len(shares) <= card.sharing.mps_clients
        instances = [share.instance for share in shares]
        assert len(set(instances)) == len(instances) or not any(instances)
        assert card.sharing.mig == any(instances)


@examples(70, 150)
@given(
    nodes(), st.lists(st.tuples(st.booleans(), requests(), st.integers(0, 99), st.booleans()), max_size=14)
)
def test_shares_that_start_and_end_never_exceed_a_card(
    node: NodeCapacity, steps: list[tuple[bool, Request, int, bool]]
) -> None:
    cluster, before = Cluster(node), node
    for starts, wanted, index, spread in steps:
        if starts or not cluster.held:
            cluster.launch(wanted, spread=spread)
        else:
            cluster.end(index)
        cluster.check()
    while cluster.held:
        cluster.end(0)
    cluster.check()
    assert cluster.node.free + before.keeper == before.free + cluster.node.keeper, "something of it was lost"


@st.composite
def used(draw: st.DrawFn) -> NodeCapacity:
    """A node on which something runs, with what gives it back."""
    cluster = Cluster(draw(nodes()))
    for wanted in draw(st.lists(requests(), max_size=8)):
        cluster.launch(wanted)
    holders = {card.id: "job x" for held in cluster.held for card in held.gpus}
    return replace(cluster.node.holding(by_end(cluster.held)), holders=holders)


@examples(50, 200)
@given(used(), requests())
def test_there_is_room_for_a_share_exactly_if_nothing_keeps_it_off(
    node: NodeCapacity, wanted: Request
) -> None:
    reasons, answer = list(misfits(wanted, node)), fit(wanted, node)
    slots = room_for(wanted, beside_all(node)).slots
    assert (slots > 0) == (not reasons) == isinstance(answer, Fit)
    if wanted.gpu.share is not None:
        assert (share_for(wanted, node) is not None) == (slots > 0), "explaining is not deciding"
    order = [list(Stage).index(reason.stage) for reason in reasons]
    assert order == sorted(set(order))
    said = hurdles(wanted, node, now=0.0)
    assert [hurdle.stage for hurdle in said] == [reason.stage for reason in reasons]
    assert all(hurdle.words for hurdle in said)


@examples(35, 150)
@given(used(), requests(shares_only=True))
def test_shares_of_one_card_start_as_long_as_there_is_room(node: NodeCapacity, wanted: Request) -> None:
    wanted = replace(wanted, gpu=replace(wanted.gpu, count=1))
    slots, cluster = room_for(wanted, node).slots, Cluster(node)
    started = 0
    while cluster.launch(wanted):
        started += 1
    assert started == slots


@examples(50, 150)
@given(used(), requests())
def test_the_fewest_ends_that_make_room_for_a_share_are_found(node: NodeCapacity, wanted: Request) -> None:
    ended = soonest(wanted, node, None, (ENDLESS, 99))
    counts = [
        n
        for n in range(len(node.allocations) + 1)
        if room_for(wanted, node.without(node.allocations[:n])).slots
    ]
    assert ended == min(counts, default=None)


def started(wanted: Request, node: NodeCapacity, open_to: NodeCapacity) -> tuple[NodeCapacity, Chosen] | None:
    """Start a task by what is open to it; None: it does not fit."""
    if isinstance(fit(wanted, open_to), Misfit):
        return None
    if wanted.gpu.share is None:
        group = max(open_to.usable(wanted.gpu), key=len)
        chosen = Chosen(node.agent_id, tuple(card.id for card in group[: wanted.gpu.count]))
    else:
        chosen = share_for(wanted, open_to) or Chosen(node.agent_id, ())
    return node.minus(wanted.resources, chosen.gpus, chosen.share), chosen


@examples(25, 200)
@given(used(), requests(), st.lists(requests(), max_size=8), st.integers(1, 2))
def test_reservation_of_a_share_is_free_when_its_blockers_have_ended(
    node: NodeCapacity, wanted: Request, others: list[Request], tasks: int
) -> None:
    # Of whole GPUs Mesos' count is not kept, only which they are: it must be offered as many as are free.
    assume(wanted.gpu.share is not None or node.free.gpus >= len(node.gpus) - len(node.parts))
    wanted = replace(wanted, tasks=tasks)
    first = job("first", tasks=tasks)
    if tasks > 1:
        made = reserve_together(first, wanted, [node], now=0.0)
    else:
        one = reserve(first, wanted, [node], now=0.0)
        made = [one] if one else []
    if not made:
        assert room_for(wanted, node.without(node.allocations)).slots < tasks
        return
    (kept,) = made
    for other in others:
        launch = started(other, node, node.beside(kept))
        if launch is not None:
            node, chosen = launch
            kept = after_launch(kept, other, here=True, chosen=chosen)
    assert room_for(wanted, node.without(kept.awaited)).slots >= tasks, "somebody took what is kept"
