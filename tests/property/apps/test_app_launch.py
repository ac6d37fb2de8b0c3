"""Ports of instances, and ids of their tasks, whatever is asked for and offered."""

from itertools import pairwise
from uuid import UUID

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mesos_gpu.model.apps.app import App, Container, EngineType, Network, NetworkMode, PortMapping
from mesos_gpu.model.jobs.port import PortWish
from mesos_gpu.model.nodes.offer import PortRange, count_ports
from mesos_gpu.policy.apps.ports import choose, wishes_of, without
from mesos_gpu.policy.apps.task_env import launch_env
from mesos_gpu.policy.apps.task_ids import (
    TaskName,
    hostname_of,
    instance_id,
    instance_of,
    job_id,
    name_of,
    task_id,
)

EXAMPLES = settings(max_examples=200)
LOWEST, HIGHEST = 100, 140  # few ports, so that they get scarce and meet
NUMBERS = st.integers(LOWEST, HIGHEST)
WISHES = st.lists(
    st.builds(PortWish, st.none(), st.just(0), st.one_of(st.none(), st.just(0), NUMBERS)), max_size=12
)
SEEDS = st.text("abc", max_size=3)
PIECES = st.sampled_from(["a", "b-c", "0", "app", "1", "instance-b6ff5fa5-7714-11e7-a55c-5ecf1c4671f6"])
SEGMENTS = st.lists(PIECES, min_size=1, max_size=3).map(".".join)
APPS = st.lists(SEGMENTS, min_size=1, max_size=4).map(lambda steps: "/" + "/".join(steps))


@st.composite
def offers(draw: st.DrawFn) -> list[PortRange]:
    """Ranges that do not overlap, in any order, some of them side by side."""
    bounds = sorted(draw(st.sets(NUMBERS, max_size=8)))
    kinds = st.sampled_from(['{"role":"*"}', '{"role":"gpu"}'])
    ranges = [PortRange(a, b - 1, draw(kinds)) for a, b in pairwise(bounds)]
    return draw(st.permutations([each for each in ranges if draw(st.booleans())]))


def ports(of: list[PortRange]) -> dict[int, str]:
    return {port: each.kind for each in of for port in range(each.begin, each.end + 1)}


@EXAMPLES
@given(WISHES, offers(), SEEDS)
def test_ports_are_those_asked_for_and_otherwise_any_that_is_offered(
    wishes: list[PortWish], offered: list[PortRange], seed: str
) -> None:
    there = ports(offered)
    fixed = {wish.host_port for wish in wishes if wish.host_port}
    free = sum(wish.host_port == 0 for wish in wishes)
    chosen = choose(wishes, offered, seed)
    assert (chosen is not None) == (fixed <= there.keys() and free <= len(there.keys() - fixed))
    if chosen is None:
        return
    assert chosen == choose(wishes, offered, seed)
    dynamic = []
    for wish, port in zip(wishes, chosen.numbers, strict=True):
        if wish.host_port == 0:
            dynamic.append(port)
        else:
            assert port == wish.host_port
    assert len(set(dynamic)) == len(dynamic)
    assert not fixed & set(dynamic)
    rest = list(without(chosen.taken, offered))
    taken, left = ports(list(chosen.taken)), ports(rest)
    assert taken.keys() == {port for port in chosen.numbers if port is not None}
    assert taken | left == there
    assert count_ports(chosen.taken) == len(taken)
    assert count_ports(rest) == len(left) == len(there) - len(taken)


def test_dynamic_ports_are_neighbours_from_a_place_that_the_seed_chooses() -> None:
    offered = [PortRange(31000, 31999)]
    wishes = [PortWish(None, 0, 0)] * 3
    firsts = set()
    for seed in range(50):
        chosen = choose(wishes, offered, str(seed))
        assert chosen is not None
        first, second, third = (port or 0 for port in chosen.numbers)
        assert ((second - first) % 1000, (third - first) % 1000) == (1, 2)
        firsts.add(first)
    assert len(firsts) > 40


@EXAMPLES
@given(st.lists(st.builds(PortMapping, container_port=st.sampled_from([0, 0, 80, 81])), max_size=6), SEEDS)
def test_ports_that_are_made_up_for_containers_are_unprivileged_and_differ(
    mappings: list[PortMapping], seed: str
) -> None:
    container = Container(EngineType.MESOS, port_mappings=tuple(mappings))
    app = App(
        "/a", networks=(Network(NetworkMode.CONTAINER, "n"),), port_definitions=None, container=container
    )
    wishes = wishes_of(app)
    env = launch_env(wishes, (), task_id=seed, host="h", ports=[None] * len(wishes))
    assert env == launch_env(wishes, (), task_id=seed, host="h", ports=[None] * len(wishes))
    made = [int(env[f"PORT{i}"]) for i, wish in enumerate(wishes) if not wish.number]
    assert all(1024 < port < 65536 for port in made)
    assert len(set(made)) == len(made)
    assert env.get("PORTS", "") == ",".join(map(str, made))


@EXAMPLES
@given(APPS, APPS, st.uuids(), st.integers(1, 10**6))
def test_ids_say_what_they_were_made_of(app: str, other: str, uuid: UUID, launch: int) -> None:
    name = TaskName(app, str(uuid), launch)
    assert name_of(task_id(name)) == name
    assert instance_of(instance_id(app, str(uuid))) == (app, str(uuid))
    assert task_id(name) == f"{job_id(app, str(uuid))}.{launch}"
    assume(app != other)
    assert job_id(app, str(uuid)) != job_id(other, str(uuid))


@EXAMPLES
@given(st.text("ab0_.-/", max_size=12), st.sampled_from(["", "._app.1", "._app.0", "._app.x", ".web.1"]))
def test_ids_of_others_are_no_apps(text: str, end: str) -> None:
    assert name_of(text + end) is None
    assert instance_of(text + end) is None


def test_ids_are_written_as_marathon_writes_them() -> None:
    uuid = "b6ff5fa5-7714-11e7-a55c-5ecf1c4671f6"
    assert task_id(TaskName("/shop/db.v1", uuid, 2)) == f"shop_db.v1.instance-{uuid}._app.2"
    assert name_of(f"shop_db.marathon-{uuid}._app.2") is None
    assert name_of(f"shop_db.instance-{uuid}.web.2") is None
    assert name_of(f"Shop.instance-{uuid}._app.2") is None
    assert hostname_of("/shop/eu/db") == "db.eu.shop"
