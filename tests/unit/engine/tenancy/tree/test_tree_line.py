"""A tree of queues decides who starts."""

import pytest

from mesos_gpu.engine.queue.forecast import Forecast
from mesos_gpu.engine.tenancy.shares import standing_of
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.tenancy import JobClass, QueueSpec
from tests.doubles.builders import World
from tests.unit.engine.tenancy.lending import Tenants, queue
from tests.unit.engine.tenancy.worlds import again, apply, most, node, owed, running, submit_all, tree_world


def test_weights_order_starts_and_each_start_counts_at_once() -> None:
    world = tree_world({"a": QueueSpec(weight=3), "b": QueueSpec(weight=1)})
    submit_all(world, *((f"a{i}", "a", 1) for i in range(8)), *((f"b{i}", "b", 1) for i in range(8)))
    node(world, "n1", 8)
    assert running(world) == {*(f"a{i}" for i in range(6)), "b0", "b1"}


def test_queues_are_compared_where_they_meet() -> None:
    """Ten leaves of one parent have together what one leaf beside it has."""
    queues = {"many": QueueSpec(), **{f"many/{i}": QueueSpec() for i in range(10)}, "one": QueueSpec()}
    world = tree_world(queues)
    submit_all(
        world, *((f"m{i}", f"many/{i}", 1) for i in range(10)), *((f"o{i}", "one", 1) for i in range(10))
    )
    node(world, "n1", 8)
    assert len([name for name in running(world) if name.startswith("m")]) == 4


@pytest.mark.parametrize("limited", ["lab", "lab/x", "lab/x/deep"])
def test_limit_holds_for_all_that_is_below(limited: str) -> None:
    queues = {path: QueueSpec() for path in ("lab", "lab/x", "lab/x/deep", "free")}
    queues[limited] = QueueSpec(limit_gpus=most(3))
    world = tree_world(queues)
    submit_all(world, *((f"j{i}", "lab/x/deep", 1) for i in range(5)))
    node(world, "n1", 8)
    assert running(world) == {"j0", "j1", "j2"}
    apply(world, {**queues, limited: QueueSpec(limit_gpus=most(4))})
    again(world, "n1", 5)
    assert running(world) == {"j0", "j1", "j2", "j3"}


def test_siblings_below_a_limit_share_it() -> None:
    queues = {"lab": QueueSpec(limit_gpus=most(4)), "lab/a": QueueSpec(), "lab/b": QueueSpec()}
    world = tree_world(queues)
    submit_all(world, *((f"a{i}", "lab/a", 1) for i in range(8)), *((f"b{i}", "lab/b", 1) for i in range(8)))
    node(world, "n1", 8)
    assert running(world) == {"a0", "a1", "b0", "b1"}


def test_guarantee_comes_before_borrowing_of_other_queues() -> None:
    world = tree_world({"dev": QueueSpec(weight=100), "prod": QueueSpec(guarantee_gpus=owed(2))})
    submit_all(world, *((f"d{i}", "dev", 1) for i in range(4)), preemptible=True)
    submit_all(world, ("p0", "prod", 2), ("p1", "prod", 2))
    node(world, "n1", 4)
    assert running(world) == {"p0", "d0", "d1"}


def test_borrowing_has_a_limit() -> None:
    spec = QueueSpec(guarantee_gpus=owed(2), borrow_limit_gpus=most(1))
    world = tree_world({"a": spec, "b": QueueSpec()})
    submit_all(world, *((f"a{i}", "a", 1) for i in range(5)), preemptible=True)
    node(world, "n1", 5)
    assert running(world) == {"a0", "a1", "a2"}


def test_jobs_wait_in_one_line_without_a_document() -> None:
    world = tree_world({}, settings=None)
    world.state.quota.queue_versions.clear()
    submit_all(world, ("b0", "b", 1), ("b1", "b", 1), ("a0", "a", 1))
    node(world, "n1", 2)
    assert running(world) == {"b0", "b1"}


def test_starving_jobs_start_in_order_of_their_wait() -> None:
    queues = {"big": QueueSpec(weight=100), "x": QueueSpec(weight=1, starve_after_s=60.0), "y": QueueSpec()}
    world = tree_world(queues)
    submit_all(world, ("x0", "x", 1), ("x1", "x", 1))
    world.tick(50)
    submit_all(world, *((f"b{i}", "big", 1) for i in range(9)), ("y0", "y", 1))
    world.tick(20)
    node(world, "n1", 1)
    assert running(world) == {"x0"}


def full_node(*classes: JobClass) -> World:
    """Eight GPUs that a fenced queue has for ten hours, and a queue that is owed two of them."""
    world = tree_world(
        {
            "x": QueueSpec(guarantee_gpus=owed(2), starve_after_s=60.0),
            "big": QueueSpec(weight=100, fence=True),
        },
        classes=classes,
    )
    submit_all(world, *((f"b{i}", "big", 1) for i in range(8)), preemptible=True, timeout_s=36_000.0)
    node(world, "n1", 8)
    for i in range(8):
        world.status(f"b{i}.1", "TASK_RUNNING", agent="n1")
    return world


def waits(world: World, seconds: float) -> None:
    """Let time pass at once, but for its last seconds."""
    world.now += seconds - 5
    world.tick(5)


def kept(world: World) -> set[str]:
    """For whom anything is kept."""
    world.tick(1)
    standing = standing_of(world.state, world.settings, world.now)
    forecast = Forecast(world.state, world.settings, world.now, standing)
    return {str(each.job_id) for each in forecast.before(None)}


def test_starving_job_has_room_kept_behind_a_seated_one_of_its_leaf() -> None:
    world = full_node()
    submit_all(world, ("borrows", "x", 4), preemptible=True)
    submit_all(world, ("seated", "x", 2))
    assert kept(world) == {"seated"}
    waits(world, 70)
    assert kept(world) == {"seated", "borrows"}
    waits(world, 70)
    submit_all(world, ("later", "x", 3), preemptible=True)
    assert kept(world) == {"seated", "borrows"}, "one of a leaf is kept room for"


def test_held_job_does_not_starve_the_jobs_behind_it() -> None:
    world = full_node(JobClass("gone"))
    submit_all(world, ("held", "x", 4), preemptible=True, job_class="gone")
    submit_all(world, ("behind", "x", 4), preemptible=True)
    apply(world, dict(world.state.quota.queues.queues))
    waits(world, 70)
    assert kept(world) == {"behind"}


def test_limit_charges_gpus_by_the_model_granted() -> None:
    world = tree_world({"a": QueueSpec(limit_gpus=most(4))}, gpu_cost={"H100": 4})
    node(world, "n1", 4, "T4")
    submit_all(world, *((f"t{i}", "a", 1) for i in range(4)), gpu_model=("T4",))
    again(world, "n1", 4)
    assert running(world) == {"t0", "t1", "t2", "t3"}
    node(world, "n2", 2, "H100")
    submit_all(world, ("h", "a", 1), gpu_model=("H100",))
    again(world, "n2", 2)
    assert "h" not in running(world)
    for i in range(4):
        world.status(f"t{i}.1", "TASK_FINISHED", agent="n1")
    again(world, "n2", 2)
    assert running(world) == {"h"}


def test_job_that_fits_nowhere_does_not_starve_the_next_of_its_queue() -> None:
    """Found by chaos: room is kept for the first of a queue when it starves, but this one fits on no node."""
    world = Tenants()
    world.register()
    world.agents(1, 2)
    world.document(a=queue(starve_after_s=30.0), busy=queue(weight=9, starve_after_s=30.0))
    for name in ("s0", "s1"):
        world.runs(name, "busy", 1)
    world.submit("huge", queue="a", gpus=3)
    world.submit("pair", queue="a", gpus=2)
    for i in range(2, 6):
        world.submit(f"s{i}", queue="busy", gpus=1)
    world.passes(40)
    for name in ("s0", "s1"):
        world.ends(name)
        world.passes(2)
    world.starts()
    assert world.job("pair").state is JobState.RUNNING


def test_job_waiting_behind_a_reservation_stays_first_of_its_queue() -> None:
    world = Tenants()
    world.register()
    world.agents(1, 2)
    world.document(a=queue(starve_after_s=30.0), b=queue(starve_after_s=30.0))
    for name in ("s0", "s1"):
        world.runs(name, "a", 1)
    world.submit("pair", queue="b", gpus=2)
    world.passes(2)
    world.submit("first", queue="a", gpus=1)
    world.passes(40)
    world.submit("second", queue="a", gpus=1, priority=-9)
    world.passes(40)
    world.ends("s0")
    world.passes(2)
    assert world.job("second").state is JobState.PENDING
    world.ends("s1")
    world.passes(2)
    world.starts()
    assert world.job("pair").state is JobState.RUNNING
