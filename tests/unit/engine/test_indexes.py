"""Indexes kept with the state, against a look at everything."""

import random
from dataclasses import replace

import pytest

from mesos_gpu.engine.indexes.agents import Agents, agents_of
from mesos_gpu.engine.indexes.restless import LiveTaskIndex
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, GpuId, JobId, OfferId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import Offer, Scalar
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.wire.mesos import report
from tests.doubles.builders import World, gpu, offer, saved_of, spec

A, B = AgentId("a"), AgentId("b")
RUNS = Task(TaskId("t"), A, "t", JobId("j"), TaskState.RUNNING, 1.0)
JOB = Job(JobId("j"), spec(), 0.0, 1)


def node(agent: AgentId, *cards: str, **fields: object) -> Node:
    known = Inventory(tuple(gpu(card) for card in cards)) if cards else None
    return replace(Node(agent, agent), inventory=known, **fields)  # type: ignore[arg-type]


def _read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Record the reports that are read from now on."""
    read, decode = list[bytes](), report.decode

    def note(data: bytes) -> Inventory:
        read.append(data)
        return decode(data)

    monkeypatch.setattr(report, "decode", note)
    return read


# --- agents


@pytest.mark.parametrize("seed", range(5))
def test_index_of_agents_equals_a_look_at_all_of_them(seed: int) -> None:
    chance, agents = random.Random(seed), Agents()
    nodes, offers = dict[AgentId, Node](), dict[OfferId, Offer]()
    for number in range(400):
        agent = AgentId(chance.choice("abcd"))
        match chance.choice(["enter", "forget", "hold", "change", "drop"]):
            case "enter":
                cards = [f"g{i}" for i in range(6) if chance.random() < 0.3]
                lost = chance.choice([None, 3.0])
                new = node(agent, *cards, monitor=chance.choice([None, TaskId("m")]), lost_at=lost)
                agents.enter(nodes.get(agent), new)
                nodes[agent] = new
            case "forget" if agent in nodes:
                agents.enter(nodes.pop(agent), None)
            case "hold":
                offers[OfferId(f"o{number}")] = held = offer(f"o{number}", agent)
                agents.hold(held)
            case "change" if offers:
                old = chance.choice(list(offers.values()))
                offers[old.id] = held = replace(old, resources=(Scalar("cpus", float(number)),))
                agents.hold(held)
            case "drop" if offers:
                agents.drop(offers.pop(chance.choice(list(offers))))
        made = agents_of(nodes.values(), offers.values())
        assert agents.in_order(agents.offers) == made.in_order(made.offers)
        assert [[h.offer for h in own.values()] for _, own in sorted(agents.offers.items())] == [
            [h.offer for h in own.values()] for _, own in sorted(made.offers.items())
        ]
        assert set(agents.unwatched) == {id for id, each in nodes.items() if each.monitor is None}
        assert set(agents.lost) == {id for id, each in nodes.items() if each.lost_at is not None}
        named = {gpu_id: set(who) for gpu_id, who in agents.naming.items()}
        assert named == {gpu_id: set(who) for gpu_id, who in made.naming.items()}
    agents.drop_all()
    assert agents.in_order(nodes) == []


def test_index_of_cards_names_an_agent_until_it_reports_without_them() -> None:
    agents, first, second = Agents(), node(A, "g0", "g1"), node(B, "g1")
    agents.enter(None, first)
    assert not agents.others_naming(first, [GpuId("g0"), GpuId("g1")])
    agents.enter(None, second)
    assert agents.others_naming(first, [GpuId("g1")])
    assert not agents.others_naming(first, [GpuId("g0")])
    agents.enter(second, node(B, "g2"))
    assert not agents.others_naming(first, [GpuId("g1")])


# --- reports


def test_report_is_known_by_its_bytes_as_long_as_its_node_has_it() -> None:
    agents, said = Agents(), Inventory((gpu("g0"),))
    has = replace(node(A), inventory=said)
    assert agents.read_as(has, b"said") is None
    agents.note_report(A, b"said", said)
    assert agents.read_as(has, bytes(bytearray(b"said"))) is said
    assert agents.read_as(has, b"says") is None
    assert agents.read_as(replace(has, inventory=replace(said)), b"said") is None
    assert agents.read_as(node(B), b"said") is None
    agents.enter(has, None)
    assert agents.read_as(has, b"said") is None


def test_report_of_equal_bytes_is_read_once_and_counts_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world, read = World(), _read(monkeypatch)
    world.register()
    world.node("a1", gpu("g0"))
    known, read[:] = world.state.cluster.nodes[AgentId("a1")].inventory, []
    for _ in range(3):
        world.now += 10
        world.report("a1", gpu("g0"))
        has = world.state.cluster.nodes[AgentId("a1")]
        assert has.inventory is known
        assert has.reported_at == world.now
    assert read == []
    world.report("a1", gpu("g0"), gpu("g1"))
    world.report("a1", gpu("g0"))
    assert len(read) == 2
    assert world.state.cluster.nodes[AgentId("a1")].inventory == known


def test_unreadable_report_is_not_remembered_as_the_last_one() -> None:
    world = World()
    world.register()
    world.node("a1", gpu("g0"))
    monitor = world.state.cluster.nodes[AgentId("a1")].monitor
    assert monitor is not None
    for _ in range(2):
        world.status(monitor, "TASK_RUNNING", data=b"{")
        assert world.state.cluster.nodes[AgentId("a1")].gpus[0].health.value == "unknown"
    world.report("a1", gpu("g0"))
    assert world.state.cluster.nodes[AgentId("a1")].gpus == (gpu("g0"),)


def test_restored_state_reads_the_first_report_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.register()
    world.node("a1", gpu("g0"))
    again = World(state=State.restored(world.now, saved_of(world.state)))
    again.register()
    read = _read(monkeypatch)
    again.report("a1", gpu("g0"))
    again.report("a1", gpu("g0"))
    assert len(read) == 1


# --- live tasks


@pytest.mark.parametrize(
    ("task", "job", "is_so"),
    [
        (RUNS, JOB, False),
        (replace(RUNS, state=TaskState.STARTING), JOB, False),
        (replace(RUNS, state=TaskState.STARTING, launch=2), JOB, True),
        (replace(RUNS, state=TaskState.LAUNCHED), JOB, True),
        (replace(RUNS, state=TaskState.UNREACHABLE), JOB, True),
        (replace(RUNS, state=TaskState.ABANDONED), None, True),
        (replace(RUNS, kill_sent_at=5.0), JOB, True),
        (replace(RUNS, evicted="drained"), JOB, True),
        (replace(RUNS, excess="memory"), JOB, True),
        (RUNS, replace(JOB, kill_requested=True), True),
        (RUNS, None, False),
    ],
    ids=[
        "runs", "starts", "of a gang, starts", "launched", "unreachable", "abandoned", "killed", "evicted", "in excess",
        "to be killed", "a monitor",
    ],
)  # fmt: skip
def test_index_of_live_tasks_has_those_that_are_looked_at(
    task: Task, job: Job | None, *, is_so: bool
) -> None:
    known = LiveTaskIndex()
    known.enter(task, job)
    assert (task.id in known.tasks) is is_so
    known.enter(RUNS, JOB)
    assert known.tasks == set()
    known.enter(replace(RUNS, state=TaskState.LAUNCHED), JOB)
    known.leave(RUNS.id)
    assert (known.tasks, known.in_order(known.numbers)) == (set(), [])


def test_live_tasks_are_in_the_order_of_their_launches_whatever_becomes_of_them() -> None:
    known = LiveTaskIndex()
    names = [TaskId(f"t{number}") for number in (7, 3, 9, 1)]
    for name in names:
        known.enter(replace(RUNS, id=name), JOB)
    known.enter(replace(RUNS, id=names[0], kill_sent_at=1.0), JOB)
    assert known.in_order(set(names)) == names
    known.leave(names[0])
    known.enter(replace(RUNS, id=names[0]), JOB)
    assert known.in_order(set(names)) == [*names[1:], names[0]], "launched anew it is the last"


def test_index_of_tasks_by_agent_follows_each_task() -> None:
    known = LiveTaskIndex()
    names = [TaskId("t1"), TaskId("t2")]
    for name in names:
        known.enter(replace(RUNS, id=name), JOB)
    known.enter(replace(RUNS, id=TaskId("t3"), agent_id=B), JOB)
    known.enter(replace(RUNS, id=names[0], state=TaskState.STARTING), JOB)
    assert {agent: list(tasks) for agent, tasks in known.on.items()} == {A: names, B: ["t3"]}
    known.enter(replace(RUNS, id=names[0], agent_id=B), JOB)
    known.leave(names[1])
    assert {agent: list(tasks) for agent, tasks in known.on.items()} == {B: ["t3", names[0]]}


def test_index_of_tasks_that_may_be_ended_follows_their_jobs() -> None:
    known = LiveTaskIndex()
    known.enter(RUNS, replace(JOB, spec=spec(preemptible=True, timeout_s=60)))
    assert (known.preemptible, known.limited) == ({RUNS.id}, {RUNS.id})
    known.enter(RUNS, replace(JOB, spec=spec(preemptible=False)))
    assert (known.preemptible, known.limited) == (set(), set())


# --- where a GPU is


@pytest.mark.parametrize("seed", range(4))
def test_place_of_a_gpu_follows_from_the_latest_report_that_names_it(seed: int) -> None:
    chance, state = random.Random(seed), State(0.0)
    for _ in range(200):
        cards = [f"g{i}" for i in range(4) if chance.random() < 0.5]
        at, lost = chance.choice([None, 1.0, 2.0, 3.0]), chance.choice([None, None, 3.0])
        agent = chance.choice("abcd")
        host = chance.choice(["h1", "h2"])
        state.cluster.set_node(node(AgentId(agent), *cards, reported_at=at, lost_at=lost, hostname=host))
        every = state.cluster.placed()
        assert {id: state.cluster.place_of(id) for id in every} == every
        assert state.cluster.place_of(GpuId("none")) is None
        for host in ("h1", "h2"):
            there = {id: place for id, place in every.items() if place[0].hostname == host}
            assert state.cluster.placed(host.__eq__) == there
