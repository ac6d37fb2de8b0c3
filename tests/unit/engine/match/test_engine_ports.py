"""Ports of a host, from offers to the task's environment."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobSpec, JobState
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.nodes.offer import PortRange
from mesos_gpu.policy.apps.ports import choose, enough
from mesos_gpu.wire.jobs import spec_from_mapping
from tests.doubles.builders import World, every, offer, spec

ANY = PortWish(None, 0, 0)


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    return world


def wish(port: int) -> PortWish:
    return PortWish(None, port, port)


def launched(world: World, *wishes: PortWish, name: str = "j1") -> list[fx.LaunchTask]:
    effects = world.feed(ev.JobSubmitted(JobId(name), spec(ports=wishes)))
    return [item for launch in every(effects, fx.Launch) for item in launch.tasks]


def test_job_gets_ports_in_its_environment(world: World) -> None:
    world.offers(replace(offer("o1"), ports=(PortRange(100, 104),)))
    (item,) = launched(world, wish(102), ANY)
    first, second = item.task.ports
    assert first == 102
    assert second in (100, 101, 103, 104)
    assert {port.begin for port in item.ports} == {first, second}
    assert (item.env["PORT"], item.env["PORT0"], item.env["PORT1"]) == ("102", "102", str(second))
    assert item.env["HOST"] == "a1.example"
    assert item.env["PORTS"] == f"102,{second}"


def test_port_is_given_once_in_one_match(world: World) -> None:
    for name in ("j1", "j2"):
        world.feed(ev.JobSubmitted(JobId(name), spec(ports=(ANY, ANY))))
    world.offers(replace(offer("o1"), ports=(PortRange(100, 103),)))
    ports = [port for task in world.state.work.tasks.values() for port in task.ports]
    assert sorted(ports) == [100, 101, 102, 103]


def test_member_of_a_gang_gets_another_port_at_each_launch() -> None:
    """The lowest port may be one that a host cannot give."""
    ports = []
    for name in ("j1", "j2"):
        world = World()
        world.register()
        world.offers(replace(offer("o1"), ports=(PortRange(100, 1099),)))
        effects = world.feed(ev.JobSubmitted(JobId(name), spec(tasks=2)))
        items = [item for launch in every(effects, fx.Launch) for item in launch.tasks]
        ports += [port.begin for item in items for port in item.ports]
    assert len(set(ports)) == 4


@pytest.mark.parametrize(("wishes", "agent"), [((wish(9),), "b"), ((ANY, ANY), "a"), ((ANY,) * 4, None)])
def test_job_with_ports_goes_where_they_are_offered(
    world: World, wishes: tuple[PortWish, ...], agent: str | None
) -> None:
    world.offers(
        replace(offer("o1", "a"), ports=(PortRange(100, 102),)),
        replace(offer("o2", "b"), ports=(PortRange(9, 9),)),
    )
    assert [item.task.agent_id for item in launched(world, *wishes)] == ([agent] if agent else [])
    assert (world.job().state is JobState.PENDING) == (agent is None)


@given(
    st.lists(
        st.sampled_from((ANY, wish(1), wish(4), wish(5), PortWish(None, 8, None))), max_size=5, unique=True
    ),
    st.lists(st.integers(0, 6), max_size=6, unique=True),
)
def test_ports_offered_suffice_only_if_they_can_be_chosen(wishes: list[PortWish], ports: list[int]) -> None:
    wishes = [*wishes, *[ANY] * (len(ports) % 3)]
    offered = [PortRange(port, port) for port in ports]
    assert enough(wishes, offered) == (choose(wishes, offered, "seed") is not None)


@pytest.mark.parametrize(
    ("ports", "more", "words"),
    [
        (1, {}, "must be a list of at most 100 ports"),
        ([70000], {}, "each from 0 (any) to 65535"),
        ([True], {}, "got [true]"),
        ([5, 5], {}, "must not have a port twice"),
        ([0], {"tasks": 2}, "is only for jobs of one task"),
    ],
)
def test_ports_of_a_spec_with_a_fault_are_refused(ports: object, more: dict[str, object], words: str) -> None:
    problems = spec_from_mapping({"command": "true", "ports": ports, **more})
    assert isinstance(problems, list)
    assert [problem.path for problem in problems] == ["/ports"]
    assert words in problems[0].reason


def test_ports_of_a_request_from_a_spec() -> None:
    spec = spec_from_mapping({"command": "true", "ports": [0, 80]})
    assert isinstance(spec, JobSpec)
    assert spec.ports == (ANY, wish(80))


@pytest.mark.parametrize("is_loaded", [False, True])
def test_port_of_a_task_that_has_just_ended_goes_last(world: World, is_loaded: bool) -> None:
    had: list[int] = []
    for number in range(6):
        world.feed(ev.JobSubmitted(JobId(f"j{number}"), spec(ports=(ANY,))))
        world.offers(replace(offer(f"o{number}"), ports=(PortRange(100, 101),)))
        (task,) = world.state.work.tasks_of(JobId(f"j{number}"))
        had += task.ports
        world.status(task.id, "TASK_FINISHED")
        if is_loaded:
            world.state.work.made_ports = None
        world.now += 50.0
    assert {*had[:2]} == {100, 101}
    assert had == had[:2] * 3, "the one that has been unused for longer"


@pytest.mark.parametrize(("ports", "words"), [((wish(100),), "100"), ((ANY, ANY), "2")])
def test_job_that_lacks_ports_alone_is_given_no_time_of_its_start(
    world: World, ports: tuple[PortWish, ...], words: str
) -> None:
    world.submit("holder", ports=(wish(100),))
    world.offers(replace(offer("o1"), ports=(PortRange(100, 101),)))
    assert world.job("holder").state is JobState.STARTING
    world.submit("late", ports=ports)
    world.offers(replace(offer("o2"), ports=(PortRange(101, 101),)))
    answer = explain_job(View(world.state, world.settings, world.now), JobId("late"))
    assert answer.estimate is not None
    assert answer.estimate.at is None
    assert answer.estimate.basis.startswith("ports of a1.example have no known end of use: it ")
    assert words in answer.estimate.basis
    assert "it fits now" not in answer.summary
