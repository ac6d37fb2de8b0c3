"""Books of a match: launch windows, launches, offers by role, and the table of agents, each by its numbers."""

from dataclasses import replace
from math import inf
from typing import Any, Final

import pytest

from mesos_gpu.engine.effects import Launch, LaunchTask
from mesos_gpu.engine.indexes.table import Table
from mesos_gpu.engine.match.ledger import Ledger
from mesos_gpu.engine.match.remains import FEW, FreeOffers, Launches, Pace
from mesos_gpu.engine.match.table import table_of
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import PortRange, Scalar
from mesos_gpu.model.resources import NOTHING, Resources
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.cluster.node_index import NodeIndex
from mesos_gpu.policy.queueing.launch_window import FIRST_SIZE, Window
from mesos_gpu.wire.mesos.reservations import reserved
from tests.doubles.builders import World, gpu, offer

NOW: Final = 1000.0
A, B, C = (AgentId(name) for name in ("a1", "b1", "c1"))


def paced(**under_way: int) -> State:
    """Make a state with so many launches under way on each agent."""
    state = State(started_at=0.0)
    for agent_id in A, B, C:
        state.cluster.nodes[agent_id] = Node(agent_id, agent_id)
    for name, count in under_way.items():
        state.work.restless.under_way[AgentId(name)] = {TaskId(f"{name}-{i}") for i in range(count)}
    return state


def task_of(agent_id: AgentId, name: str = "t") -> Task:
    return Task(TaskId(name), agent_id, name, JobId("j"), TaskState.LAUNCHED, NOW)


# --- launch windows


@pytest.mark.parametrize(
    ("count", "size", "until", "room"),
    [
        (0, None, 0.0, FIRST_SIZE),
        (5, None, 0.0, FIRST_SIZE - 5),
        (0, 8.9, 0.0, 8),
        (8, 8.9, 0.0, 0),
        (20, 8.0, 0.0, 0),
        (7, 8.0, 0.0, 1),
        (0, 8.0, NOW, 8),
        (0, 8.0, NOW + 1, 0),
    ],
)
def test_launch_window_has_the_room_that_nothing_takes(
    count: int, size: float | None, until: float, room: int
) -> None:
    state = paced(a1=count)
    state.cluster.nodes[A] = replace(state.cluster.nodes[A], launch_not_before=until)
    if size is not None:
        state.cluster.windows[A] = Window(size)
    pace = Pace(state, NOW)
    assert (pace.under_way(A), pace.room(A), pace.is_full(A)) == (count, room, not room)
    with pace.gang():
        assert pace.room(A) == (None if not count and until <= NOW else room)
    pace.hold(A)
    assert (pace.room(A), pace.is_full(A), state.cluster.touched) == (0, True, {A})
    with pace.gang():
        assert pace.room(A) == 0


def test_launch_window_counts_each_task_and_each_card_that_it_opens() -> None:
    pace = Pace(paced(a1=3), NOW)
    take = Take(A, opens=(GpuId("g0"), GpuId("g1")))
    pace.take(take)
    assert (pace.under_way(A), pace.under_way(B)) == (6, 0)
    pace.undo(take)
    assert pace.under_way(A) == 3


def test_launch_window_that_was_empty_takes_all_of_one_gang() -> None:
    pace, take = Pace(paced(), NOW), Take(A)
    with pace.gang():
        assert pace.room(A) is None
        for _ in range(FIRST_SIZE + 5):
            pace.take(take)
        assert pace.room(A) is None
    assert pace.room(A) == 0
    with pace.gang():
        assert pace.room(A) == 0


@pytest.mark.parametrize("first", [True, False])
def test_agents_are_busy_by_eights_of_launches(first: bool) -> None:
    pace = Pace(paced(a1=FEW - 1, b1=FEW, c1=2 * FEW + 1), NOW)
    if first:
        assert pace.busy() == {B: 1, C: 2}
    one, two = Take(A), Take(B)
    pace.take(one)
    assert pace.busy() == {A: 1, B: 1, C: 2}
    pace.undo(one)
    for _ in range(FEW):
        pace.take(two)
    assert pace.busy() == {B: 2, C: 2}
    for _ in range(FEW + 1):
        pace.undo(two)
    assert pace.busy() == {C: 2}


@pytest.mark.parametrize(
    ("tasks", "narrow"),
    [(FIRST_SIZE - 9, [A]), (FIRST_SIZE - 8, [A]), (FIRST_SIZE - 2, [B, A]), (FIRST_SIZE, [C, B, A])],
)
def test_agents_are_narrow_without_room_for_a_gang(tasks: int, narrow: list[AgentId]) -> None:
    state = paced(a1=10, b1=3, gone=9)
    pace = Pace(state, NOW)
    pace.take(Take(C))
    assert [node.id for node in pace.narrow(tasks)] == narrow
    state.cluster.nodes[A] = replace(state.cluster.nodes[A], launch_not_before=NOW)
    assert [node.id for node in pace.narrow(tasks)] == narrow
    state.cluster.nodes[A] = replace(state.cluster.nodes[A], launch_not_before=NOW + 1)
    assert [node.id for node in pace.narrow(tasks)] == [each for each in narrow if each != A]


# --- launches, and the ledger


def test_launches_are_sent_by_agent_in_the_order_of_offers() -> None:
    state, settings = paced(), Settings.of("e", "m")
    for name, agent in (("o1", "b1"), ("o2", "a1"), ("o3", "b1")):
        state.cluster.hold_offer(offer(name, agent))
    launches, remains = Launches(), FreeOffers(state, settings, NOW)
    takes = {name: Take(agent) for name, agent in (("t1", A), ("t2", B), ("t3", B), ("t4", C))}
    for take in takes.values():
        launches.take(take)
    launches.undo(takes["t4"])
    items = {
        name: LaunchTask(task_of(take.agent_id, name), None, (), ())
        for name, take in takes.items()
        if name != "t4"
    }
    for name, item in items.items():
        launches.fill(takes[name], item)
    with pytest.raises(AssertionError, match="has no entry of its own"):
        launches.fill(takes["t1"], items["t1"])
    assert list(launches.effects(remains)) == [
        Launch((OfferId("o1"), OfferId("o3")), (items["t2"], items["t3"]), (), ()),
        Launch((OfferId("o2"),), (items["t1"],), (), ()),
    ]
    launches.take(Take(A))
    with pytest.raises(AssertionError, match="has no launch"):
        list(launches.effects(remains))


class Stands:
    """A book of what stands."""

    def __init__(self) -> None:
        self.takes: list[Take] = []

    def take(self, take: Take) -> None:
        self.takes.append(take)

    def undo(self, take: Take) -> None:
        assert self.takes.pop() is take


def test_checkpoints_within_each_other_undo_what_was_taken_in_them() -> None:
    book = Stands()
    ledger = Ledger(book)
    first, second, third, fourth = (Take(A) for _ in range(4))
    ledger.take(first)
    with ledger.checkpoint() as outer:
        ledger.take(second)
        with ledger.checkpoint():
            ledger.take(third)
        assert list(ledger.takes) == [first, second]
        with ledger.checkpoint() as inner:
            ledger.take(fourth)
            inner.keep()
        outer.keep()
    assert list(ledger.takes) == book.takes == [first, second, fourth]
    with ledger.checkpoint():
        with ledger.checkpoint() as inner:
            ledger.take(third)
            inner.keep()
        assert book.takes[-1] is third
    assert list(ledger.takes) == book.takes == [first, second, fourth]
    assert ledger.books == (book,)


def test_book_cannot_come_under_a_checkpoint() -> None:
    ledger = Ledger()
    with ledger.checkpoint(), ledger.checkpoint():
        pass
    with ledger.checkpoint():
        with ledger.checkpoint():
            pass
        with pytest.raises(AssertionError, match="under a checkpoint"):
            ledger.register(Stands())
    ledger.register(Stands())
    assert len(ledger.books) == 1


# --- offers of several roles


ROLES: Final[dict[str, Any]] = {"role": "gpu", "role_of": {"prod": "gpu-prod"}}


def remains_of(*roles: str, monitor: bool = True, **settings: Any) -> FreeOffers:
    """Hold an offer of one agent to each of these roles: the oldest has one processor, the next two, and so on."""
    state = paced()
    state.mesos.framework_id = "fw-1"
    state.cluster.nodes[A] = replace(state.cluster.nodes[A], monitor=TaskId("m") if monitor else None)
    for i, role in enumerate(roles):
        ports = (PortRange(100 * i + 1, 100 * i + 9),)
        state.cluster.hold_offer(replace(offer(f"o{i}", A, cpus=i + 1, mem=0), role=role, ports=ports))
    return FreeOffers(state, Settings.of("e", "m", **(settings or ROLES)), NOW)


@pytest.mark.parametrize(
    ("roles", "monitor", "role", "cpus", "aside"),
    [
        (("gpu",), True, "gpu", 1, 0),
        (("",), True, "gpu", 1, 0),
        (("gpu-prod", "gpu"), True, "gpu-prod", 1, 2),
        (("gpu-prod", "gpu"), False, "gpu", 2, 1),
        (("gpu-prod",), False, "gpu-prod", 1, 0),
        (("gpu-prod", "", "gpu-prod"), True, "gpu-prod", 4, 2),
        (("", "gpu-prod", "gpu"), True, "gpu", 4, 2),
    ],
)
def test_offers_of_one_role_are_used_and_the_others_put_aside(
    roles: tuple[str, ...], monitor: bool, role: str, cpus: float, aside: float
) -> None:
    remains = remains_of(*roles, monitor=monitor)
    assert remains.role(A) == role
    assert remains.keeper_role(A) == ("" if role == "gpu" else role)
    used = [i for i, each in enumerate(roles) if (each or "gpu") == role]
    assert remains.offer_ids(A) == tuple(OfferId(f"o{i}") for i in used)
    assert remains.ports(A) == tuple(PortRange(100 * i + 1, 100 * i + 9) for i in used)
    assert remains.resources(A) == Resources(cpus=cpus)
    assert remains.coming(A) == Resources(cpus=cpus + aside)
    assert (A in remains, B in remains, list(remains)) == (True, False, [A])
    assert (remains.resources(B), remains.coming(B)) == (NOTHING, NOTHING)


def test_offers_of_one_role_alone_are_all_used() -> None:
    remains = remains_of("*", "*", role="*")
    assert (remains.role(A), remains.resources(A)) == ("*", Resources(cpus=3))
    assert remains.reserving == ()


def test_reserved_resources_are_kept_apart_until_they_are_given_back() -> None:
    settings = Settings.of("e", "m", role="gpu", principal="me")
    state = paced()
    state.mesos.framework_id = "fw-1"
    plain = Scalar("cpus", 2.0)
    ours = reserved(Scalar("gpus", 1.0), "gpu", "me", "fw-1")
    state.cluster.hold_offer(replace(offer("o1", A), resources=(plain, ours)))
    remains = FreeOffers(state, settings, NOW)
    assert remains.resources(A) == Resources(cpus=2)
    assert remains.for_covers(A) == remains.coming(A) == Resources(cpus=2, gpus=1)
    assert list(remains.reserving) == [A]
    assert remains.reservations(A) == ((), (ours,))
    state.mesos.doubtful = True
    assert FreeOffers(state, settings, NOW).reservations(A) == ((), ())
    off = FreeOffers(state, settings.changed(role="*"), NOW)
    assert off.resources(A) == Resources(cpus=2, gpus=1)


def test_take_leaves_the_rest_and_is_undone_whole() -> None:
    remains = remains_of("gpu", "gpu")
    task, executor = Resources(cpus=1.5), Resources(cpus=0.25)
    take = Take(A, task=task, executor=executor, ports=(PortRange(2, 2), PortRange(3, 3)))
    remains.take(take)
    carved = remains.carved(take)
    assert sum(scalar.amount for scalar in carved.task) == 1.5
    assert (carved.executor, carved.covers, carved.keeper) == ((Scalar("cpus", 0.25),), (), ())
    assert remains.resources(A) == Resources(cpus=1.25)
    assert remains.ports(A) == (PortRange(1, 1), PortRange(4, 9), PortRange(101, 109))
    with pytest.raises(ValueError, match="lacks"):
        remains.take(Take(A, task=Resources(cpus=1), executor=Resources(cpus=1)))
    assert remains.resources(A) == Resources(cpus=1.25)
    remains.undo(take)
    assert (remains.resources(A), len(remains.ports(A))) == (Resources(cpus=3), 2)
    with pytest.raises(KeyError):
        remains.carved(take)


# --- the table


def test_table_tells_which_reports_have_become_too_old() -> None:
    table = Table(NodeIndex((), lambda: ()), NOW, 1)  # type: ignore[arg-type,return-value]
    for agent_id, until in ((A, 30.0), (B, 20.0), (C, inf), (A, 40.0), (A, 40.0)):
        table.note(agent_id, until)
    assert len(table.ends) == 3
    assert table.late(20.0) == []
    assert table.late(20.5) == [B]
    assert table.late(35.0) == [], "that report of the first agent is not its last one"
    assert table.late(100.0) == [A]
    assert table.late(1e9) == []


@pytest.fixture
def world() -> World:
    made = World(settings=Settings.of("e", "m", report_stale_s=1e9))
    made.register()
    for name in ("a1", "b1"):
        made.node(name, gpu(f"{name}-g"))
    made.submit("large", gpus=3)
    return made


def brought(world: World, seconds: float = 0.0) -> Table:
    """Bring the table up to date after some time."""
    world.now += seconds
    asked = world.state, world.settings, world.now
    return table_of(*asked, FreeOffers(*asked), Pace(world.state, world.now))


def test_table_is_kept_until_a_refused_claim_is_forgotten(world: World) -> None:
    known = brought(world)
    assert brought(world, 1.0) is known
    world.state.gpus.contested[GpuId("a1-g")] = world.now + 5
    assert brought(world, 4.5) is known
    assert known.at == world.now
    fresh = brought(world, 0.5)
    assert fresh is not known
    assert brought(world) is fresh
    assert brought(world, 1.0) is fresh


def test_table_shows_an_agent_again_when_its_back_off_ends(world: World) -> None:
    known, node = brought(world), world.state.cluster.nodes[A]
    assert set(known.index.nodes) == {A, B}
    world.state.put(replace(node, launch_not_before=world.now + 5))
    world.state.cluster.touched.add(A)
    assert set(brought(world).index.nodes) == {B}
    assert set(brought(world, 4.5).index.nodes) == {B}
    assert set(brought(world, 0.5).index.nodes) == {A, B}
    assert brought(world) is known


def test_table_leaves_out_an_agent_without_offers_or_room(world: World) -> None:
    known = brought(world)
    for offer_id in [each.id for each in world.state.cluster.offers.values() if each.agent_id == A]:
        world.state.cluster.drop_offer(offer_id)
    world.state.cluster.windows[B] = Window(0.5)
    world.state.cluster.touched.update((A, B))
    assert set(brought(world).index.nodes) == set()
    assert (world.state.cluster.touched, world.state.cluster.table is known) == (set(), True)
    assert known.fresh_until.keys() == set()
    world.state.cluster.table = None
    assert set(brought(world).index.nodes) == set(), "nor does a new one show them"


def test_table_learns_what_is_asked_for_after_a_hundred_jobs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, asked = brought(world), []
    monkeypatch.setattr(NodeIndex, "ask_again", lambda index: asked.append(index))
    world.state.work.next_sequence = known.sequence + 99
    assert (brought(world), asked) == (known, [])
    world.state.work.next_sequence += 1
    assert (brought(world), asked) == (known, [known.index])
    assert known.sequence == world.state.work.next_sequence
    assert (brought(world), asked) == (known, [known.index])


def test_table_drops_an_agent_whose_report_is_too_old(world: World) -> None:
    world.settings = world.settings.changed(report_stale_s=30.0)
    world.state.cluster.table = None
    known = brought(world)
    reported = world.state.cluster.nodes[A].reported_at
    assert reported is not None
    assert known.fresh_until == {A: reported + 30, B: reported + 30}
    assert len(known.index.nodes[A].gpus) == 1
    world.now = reported + 30
    assert len(brought(world).index.nodes[A].gpus) == 1
    late = brought(world, 0.5)
    assert late is known
    assert len(late.index.nodes[A].gpus) == 0
    assert late.fresh_until == {A: inf, B: inf}
