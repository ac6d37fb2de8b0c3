"""Plans of jobs: what would become of a submission, tried on a copy of the state, which stays as it is."""

from typing import Any

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.trials import plan_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import NotAccepted
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.why import JobPlan, Verdict
from mesos_gpu.model.tenancy import Limits
from tests.doubles.builders import World, saved_of, spec
from tests.unit.engine.bookings.worlds import Booked
from tests.unit.engine.tenancy.lending import Tenants, queue

NEW = JobId("new-0a1b2c3d")


def planned(world: World, **fields: Any) -> JobPlan:
    """Plan a job; nothing of the state changes."""
    before = saved_of(world.state), dict(world.state.work.queue), dict(world.state.quota.seats_given)
    plan = plan_job(View(world.state, world.settings, world.now), ev.JobSubmitted(NEW, spec(**fields)))
    after = saved_of(world.state), dict(world.state.work.queue), dict(world.state.quota.seats_given)
    assert after == before
    assert NEW not in world.state.work.jobs
    return plan


def submitted(world: World, **fields: Any) -> str:
    """Submit the job for which there was a plan, and return why it waits."""
    world.submit(NEW, **fields)
    return explain_job(View(world.state, world.settings, world.now), NEW).summary


@pytest.fixture
def world() -> Tenants:
    """Two nodes of 4 GPUs, of which a job holds 3 on the first."""
    world = Tenants()
    world.register()
    world.agents(2, 4)
    world.submit("old", gpus=3)
    world.starts()
    world.offer_again()
    return world


def test_plan_of_a_job_that_fits_names_the_nodes_with_room(world: Tenants) -> None:
    (busy,) = {task.hostname for task in world.state.work.round_of(world.job("old"))}
    free = {node.hostname for node in world.state.cluster.nodes.values()} - {busy}
    plan = planned(world, gpus=1)
    assert (plan.verdict, set(plan.hostnames), plan.reliefs) == (Verdict.FITS, free | {busy}, ())
    assert set(planned(world, gpus=2).hostnames) == free
    assert planned(world, gpus=1, tasks=5).verdict is Verdict.FITS
    assert planned(world, gpus=1, array="0-99").verdict is Verdict.FITS
    world.submit(NEW, gpus=2)
    (task,) = world.state.work.round_of(world.job(NEW))
    assert task.hostname in free, "what was said comes true"


def test_plan_counts_nodes_whose_offers_were_given_back(world: Tenants) -> None:
    world.passes(120)
    for offer_id in list(world.state.cluster.offers):
        world.state.cluster.drop_offer(offer_id)
    assert not world.state.cluster.offers
    assert planned(world, gpus=4).verdict is Verdict.FITS


@pytest.mark.parametrize(
    "fields",
    [
        {"gpus": 4, "tasks": 2},
        {"gpus": 1, "tasks": 6},
        {"gpus": 4, "tasks": 2, "array": None, "priority": 5},
        {"gpus": 1, "mem_mib": 10**6},
    ],
)
def test_plan_of_a_job_that_waits_says_what_why_says_after_the_submission(
    world: Tenants, fields: dict[str, Any]
) -> None:
    plan = planned(world, **fields)
    assert (plan.verdict, plan.hostnames, plan.reliefs) == (Verdict.WAITS, (), ())
    assert plan.why.summary == submitted(world, **fields)
    assert world.job(NEW).state is JobState.PENDING


def test_plan_of_an_array_is_of_its_first_task(world: Tenants) -> None:
    plan = planned(world, gpus=1, mem_mib=10**6, array="0-9%2")
    assert plan.verdict is Verdict.WAITS
    world.feed(ev.JobSubmitted(NEW, spec(gpus=1, mem_mib=10**6, array="0-9%2")))
    view = View(world.state, world.settings, world.now)
    assert plan.why.summary == explain_job(view, NEW).summary


@pytest.mark.parametrize(
    ("fields", "reliefs"),
    [
        ({"gpus": 9}, [("gpus", 4)]),
        ({"gpus": 4, "tasks": 3}, [("gpus", 2), ("tasks", 2)]),
        ({"gpus": 1, "gpu_model": ("T4",)}, [("gpu_model", None)]),
        ({"gpus": 1, "gpu_memory_mib": 10**6}, [("gpu_memory_mib", 81920)]),
        ({"gpus": 1, "gpu_compute_pct": 50}, [("gpu_compute_pct", None)]),
        ({"gpus": 9, "gpu_model": ("T4",)}, []),
        ({"gpus": 5, "array": "0-9"}, [("gpus", 4)]),
    ],
)
def test_plan_of_a_job_that_can_never_run_names_the_changes_that_help(
    world: Tenants, fields: dict[str, Any], reliefs: list[tuple[str, int | None]]
) -> None:
    plan = planned(world, **fields)
    assert (plan.verdict, plan.hostnames) == (Verdict.NEVER, ())
    assert sorted((each.key, each.value) for each in plan.reliefs) == sorted(reliefs)
    for key, value in reliefs:
        changed = {name: each for name, each in fields.items() if name != key}
        if value is not None:
            changed[key] = value
            assert planned(world, **{**changed, key: value + 1}).verdict is Verdict.NEVER
        assert planned(world, **changed).verdict is not Verdict.NEVER


def test_plan_of_a_job_that_its_queue_refuses_is_refused(world: Tenants) -> None:
    world.document(dev=queue(4, limits=Limits(max_gpus_per_job=2)))
    with pytest.raises(NotAccepted) as refused:
        planned(world, gpus=3, queue="dev", preemptible=True)
    assert "max_gpus_per_job of queue dev is 2 GPUs" in str(refused.value.faults)


def test_plan_of_a_job_within_a_guarantee_has_a_seat_as_the_submission_has() -> None:
    world = Tenants()
    world.register()
    world.agents(2, 4)
    world.document(dev=queue(4), prod=queue(4))
    world.offer_again()
    assert planned(world, gpus=4, queue="dev").verdict is Verdict.FITS
    for name in ("one", "two"):
        world.runs(name, "dev", 4)
    plan = planned(world, gpus=4, queue="prod")
    assert plan.verdict is Verdict.WAITS
    world.submit(NEW, gpus=4, queue="prod")
    assert world.job(NEW).state is JobState.PENDING
    assert "guaranteed by queue prod" in plan.why.summary


def test_plan_of_a_job_of_a_booking_that_has_not_begun_waits() -> None:
    world = Booked()
    world.up("a", 4)
    world.up("b", 4)
    world.book()
    plan = planned(world, gpus=1, queue="exam", booking="exam")
    assert plan.verdict is Verdict.WAITS
    assert plan.why.summary == submitted(world, gpus=1, queue="exam", booking="exam")
