"""First jobs of their queues: none waits for ever, and none is in the way for ever."""

from dataclasses import replace

import pytest

from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.offer import Scalar
from mesos_gpu.model.tenancy import QueueOrder
from mesos_gpu.wire.mesos.reservations import reserved
from tests.doubles.builders import World, gpu, offer
from tests.unit.engine.tenancy.lending import Tenants, queue


def _two_cards(**queues: object) -> Tenants:
    world = Tenants()
    world.register()
    world.agents(1, 2)
    world.document(**queues)  # type: ignore[arg-type]
    return world


def test_las_first_job_has_room_kept_that_other_queues_do_not_take() -> None:
    las = queue(order=QueueOrder.LAS, starve_after_s=30.0)
    world = _two_cards(las=las, busy=queue(weight=9, starve_after_s=1e6))
    for name in ("s0", "s1"):
        world.runs(name, "busy", timeout_s=None)
    world.submit("gang", queue="las", gpus=1, tasks=2, preemptible=True)
    world.passes(40)
    for i in range(2, 6):
        world.submit(f"s{i}", queue="busy", gpus=1, priority=-9)
    for name in ("s0", "s1"):
        world.ends(name)
        world.passes(2)
    world.starts()
    assert world.job("gang").state is JobState.RUNNING


def test_las_job_behind_the_first_starts_and_is_ended_for_it() -> None:
    las = queue(order=QueueOrder.LAS, starve_after_s=30.0)
    world = _two_cards(las=las, busy=queue(weight=9))
    for name in ("s0", "s1"):
        world.runs(name, "busy", preemptible=False, timeout_s=3600.0)
    world.submit("pair", queue="las", gpus=2, preemptible=True)
    world.submit("behind", queue="las", gpus=1, preemptible=True, priority=-1)
    world.passes(40)
    world.ends("s0")
    world.passes(2)
    world.starts()
    assert world.job("behind").state is JobState.RUNNING, "nothing idles meanwhile"
    world.ends("s1")
    assert world.passes(10) == {"behind"}
    world.obeys()
    world.passes(2)
    assert world.job("pair").state is JobState.STARTING


def test_seat_of_a_queue_passes_over_a_job_that_fits_nowhere() -> None:
    world = _two_cards(a=queue(1))
    world.submit("never", queue="a", gpus=1, gpu_model=("H100",))
    world.submit("next", queue="a", gpus=1, preemptible=False)
    world.passes(5)
    world.starts()
    assert (world.job("never").state, world.job("next").state) == (JobState.PENDING, JobState.RUNNING)
    assert world.seat_of("next") == "a"


def test_node_without_gpus_does_not_let_a_gpu_job_hope() -> None:
    """Found by chaos: no monitor starts there, and for its report a job of a rare model kept its seat."""
    world = _two_cards(a=queue(2))
    world.offers(offer("o9", "bare"))
    world.submit("never", queue="a", gpus=1, tasks=2, gpu_model=("H100",), priority=5)
    world.submit("next", queue="a", gpus=2, preemptible=False)
    world.passes(5)
    world.starts()
    assert (world.job("never").state, world.job("next").state) == (JobState.PENDING, JobState.RUNNING)


def test_seat_is_offered_again_when_nodes_join() -> None:
    world = _two_cards(a=queue(1))
    world.submit("large", queue="a", gpus=1, gpu_model=("H100",), preemptible=False)
    world.passes(5)
    assert world.job("large").state is JobState.PENDING
    world.node("n1", gpu("n1-0", "H100"), cpus=8)
    world.passes(2)
    world.starts()
    assert world.job("large").state is JobState.RUNNING


@pytest.mark.parametrize("reserved_gpus", [0, 1])
def test_cards_whose_reservation_is_being_given_back_are_kept_for_whom_they_were_freed(
    reserved_gpus: int,
) -> None:
    """A card is still reserved for shares after it was freed: a smaller job does not take the one beside it."""
    world = World(Settings.of("e", "m", report_stale_s=1e9, role="gpu"))
    world.register()
    world.node("a1", gpu("g0"), gpu("g1"), cpus=32)
    world.submit("runs", gpus=2, timeout_s=None)
    world.submit("pair", gpus=2, timeout_s=None)
    pair = world.job("pair")
    world.state.set_job(replace(pair, room_made_at=world.now, room_on=(AgentId("a1"),)))
    world.submit("small", gpus=1, timeout_s=None)
    world.status("runs.1", "TASK_FINISHED")
    world.tick(300.0)  # what was seen to be free is forgotten
    seen = offer("o9", gpus=2 - reserved_gpus)
    framework = world.state.mesos.framework_id
    assert framework is not None
    ours = reserved(Scalar("gpus", 1.0), "gpu", None, framework)
    world.offers(replace(seen, resources=(*seen.resources, *([ours] * reserved_gpus))))
    assert world.job("small").state is JobState.PENDING
    assert (world.job("pair").state is JobState.PENDING) is bool(reserved_gpus)
    assert world.state.work.jobs[JobId("pair")].launches == 1 - reserved_gpus


def test_room_made_for_a_larger_job_is_not_taken_by_a_smaller_one() -> None:
    """Two plans of one match: the smaller job is first in the line, and the larger one's node is ready first."""
    world = Tenants()
    world.register()
    world.agents(1, 1)
    world.agents(1, 2)
    world.document(own=queue(3), lent=queue(0, notice_s=0.0))
    world.runs("one", "lent", 1)
    world.runs("two", "lent", 2)
    assert {str(world.state.work.round_of(world.job(name))[0].agent_id) for name in ("one", "two")} == {
        "a0",
        "a1",
    }
    for name, gpus in (("small", 1), ("large", 2)):
        world.submit(name, queue="own", gpus=gpus, preemptible=True)
    assert world.passes(6) == {"one", "two"}
    assert world.job("small").room_on == (AgentId("a0"),)
    world.status("two.1", "TASK_KILLED", agent="a1")  # the other one takes its time
    world.passes(2)
    assert world.job("large").state is JobState.STARTING
    assert world.job("small").state is JobState.PENDING
    world.status("one.1", "TASK_KILLED", agent="a0")
    world.passes(2)
    assert world.job("small").state is JobState.STARTING
