"""Admission by a document of queues: what is given to a job, how many of an array count, and why an app is refused."""

from typing import Any, Final

import pytest

from mesos_gpu.engine.queue.admitting import admitted, check_app, of_app
from mesos_gpu.errors import NotAccepted, TooMuch
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tenancy import Hours, JobClass, Limits, QueueSpec
from tests.doubles.builders import World, gpu, spec
from tests.unit.engine.tenancy.worlds import most, submit_all, tree_world

QUEUES: Final = {
    "web": QueueSpec(limit_gpus=most(4), default_priority=7),
    "lab": QueueSpec(limits=Limits(max_submitted=3), users={"*": Limits(max_submitted=2)}),
    "lab/x": QueueSpec(),
    "shop": QueueSpec(),
    "low": QueueSpec(limits=Limits(max_priority=4)),
    "short": QueueSpec(limits=Limits(max_timeout_s=60.0)),
    "night": QueueSpec(limit_gpus=most(1), hours=(Hours("22:00", "06:00", limit_gpus=most(8)),)),
}


@pytest.fixture
def world() -> World:
    """A node with a dear GPU and a cheap one."""
    made = tree_world(
        QUEUES, gpu_cost={"H100": 4, "T4": 1, "A100": 3}, classes=(JobClass("best", priority=9),)
    )
    cards = (gpu("g0", "H100"), gpu("g1", "A100"))
    made.state.put(Node(AgentId("a"), "a", inventory=Inventory(cards)))
    return made


def admit(world: World, user: str = "ann", **fields: Any) -> JobSpec:
    return admitted(world.state, world.settings, spec(**{"preemptible": True, **fields}), user)


@pytest.mark.parametrize(("asked", "given"), [(None, 0), (5, 5), (0, 0), (-3, -3)])
def test_job_without_a_document_keeps_its_priority_or_has_none(asked: int | None, given: int) -> None:
    bare = World()
    assert admit(bare, priority=asked).priority == given
    made = of_app(bare.state.quota.tree, spec(queue="shop", priority=asked), "/shop/web")
    assert (made.priority, made.queue) == (given, "shop")


def test_class_without_a_document_is_refused() -> None:
    with pytest.raises(
        NotAccepted, match="there is no class best: no document of queues was applied"
    ) as refused:
        admit(World(), job_class="best")
    assert "mesos-gpu queue apply" in refused.value.remedy


@pytest.mark.parametrize(
    ("models", "cost", "fits"),
    [((), 3, 1), (("H100",), 4, 1), (("T4",), 1, 4), (("H100", "T4"), 1, 4), (("K80",), 1, 4)],
)
def test_job_is_held_against_a_limit_by_the_cheapest_gpu_that_it_may_get(
    world: World, models: tuple[str, ...], cost: int, fits: int
) -> None:
    assert admit(world, queue="web", gpus=fits, gpu_model=models).priority == 7
    with pytest.raises(NotAccepted, match=f"may hold|{cost * (fits + 1)}"):
        admit(world, queue="web", gpus=fits + 1, gpu_model=models)


def test_gpu_of_a_cluster_without_nodes_costs_one() -> None:
    world = tree_world(QUEUES, gpu_cost={"H100": 4})
    assert admit(world, queue="web", gpus=4).gpus == 4


def test_job_may_ask_for_what_other_hours_have(world: World) -> None:
    assert admit(world, queue="night", gpus=2, gpu_model=("T4",)).gpus == 2
    with pytest.raises(NotAccepted):
        admit(world, queue="night", gpus=9, gpu_model=("T4",))


def test_jobs_that_wait_count_for_their_queue_and_their_user(world: World) -> None:
    submit_all(world, ("j1", "lab/x", 0), ("j2", "shop", 0), user="ann")
    assert admit(world, queue="lab/x", array="0").queue == "lab/x"
    for array, user in (("0-1", "ann"), ("0-2", "bob")):
        with pytest.raises(TooMuch):
            admit(world, user, queue="lab/x", array=array)
    assert admit(world, "bob", queue="lab/x", array="0-1").array == "0-1"
    submit_all(world, ("j3", "lab/x", 0), user="bob")
    submit_all(world, ("j4", "lab/x", 0), user="cem")
    with pytest.raises(TooMuch) as refused:
        admit(world, "dan", queue="lab/x")
    assert refused.value.remedy.startswith("wait until some have ended")
    assert admit(world, "dan", queue="shop").queue == "shop"


# --- apps


def app(instances: int = 1, **fields: Any) -> App:
    return App("/shop/web", cmd="true", instances=instances, **fields)


def faults_of(world: World, new: App, old: App | None, **fields: Any) -> list[tuple[str, str]]:
    asked = spec(**{"queue": "web", "gpus": 2, "gpu_model": ("T4",), "preemptible": True, **fields})
    return list(check_app(world.state, world.settings, new, old, asked))


@pytest.mark.parametrize(
    ("old", "new", "gpus", "paths"),
    [
        (None, app(1), 4, []),
        (None, app(1), 5, ["/shop/web/gpus"]),
        (None, app(2), 2, []),
        (None, app(3), 2, ["/shop/web/instances"]),
        (app(2), app(3), 2, ["/shop/web/instances"]),
        (app(3), app(3), 2, []),
        (app(4), app(3), 2, []),
        (app(4), app(3, env={"A": "b"}), 2, []),
        (app(1), app(2), 5, ["/shop/web/instances"]),  # it asks for 5 already
        (app(1), app(1, env={"A": "b"}), 5, ["/shop/web/gpus"]),
        (None, app(0), 2, []),
    ],
)
def test_app_is_refused_for_what_it_asks_for_anew(
    world: World, old: App | None, new: App, gpus: int, paths: list[str]
) -> None:
    assert [path for path, _ in faults_of(world, new, old, gpus=gpus)] == paths


def test_app_is_checked_in_the_queue_of_its_group_and_with_its_user_s_limits(world: World) -> None:
    assert of_app(world.state.quota.tree, spec(), "/shop/web") == spec(queue="shop", priority=0)
    assert of_app(world.state.quota.tree, spec(job_class="best"), "/shop/web").priority == 9
    (wrong,) = faults_of(world, app(3, owner="ann"), None, queue="lab/x", gpus=0)
    assert wrong == (
        "/shop/web/instances",
        "max_submitted of user ann in queue lab is 2, and 3 are asked for",
    )
    (other,) = faults_of(world, app(3, user="bob"), None, queue="lab/x", gpus=0)
    assert "user bob in queue lab" in other[1]
    (nobody,) = faults_of(world, app(3), None, queue="lab/x", gpus=0)
    assert "user unknown in queue lab" in nobody[1]


def test_app_may_ask_for_what_other_hours_have(world: World) -> None:
    assert faults_of(world, app(), None, queue="night", gpus=3) == []
    assert faults_of(world, app(), None, queue="night", gpus=9) != []


def test_app_without_a_document_is_not_checked() -> None:
    assert faults_of(World(), app(99), None, gpus=99) == []


@pytest.mark.parametrize(
    ("queue", "fields", "path"),
    [("low", {"priority": 5}, "/gpu/priority"), ("short", {"timeout_s": 90.0}, "/gpu")],
)
def test_fault_of_an_app_is_told_by_the_field_that_the_app_has(
    world: World, queue: str, fields: dict[str, Any], path: str
) -> None:
    assert [each for each, _ in faults_of(world, app(), None, queue=queue, **fields)] == [f"/shop/web{path}"]
