"""Records of unmet demand: jobs that waited for GPUs and were taken back."""

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.saves import KeepRecord
from mesos_gpu.model.usage import Closed, SpanEnd
from mesos_gpu.policy.accounts.sums import figures
from tests.doubles.builders import World, every, gpu, offer


def made() -> World:
    world = World()
    world.register()
    world.node("a1", gpu("g0"), gpu("g1"))
    return world


def records(effects: list[fx.Effect]) -> list[Closed]:
    return [effect.record for effect in every(effects, KeepRecord)]


def kill(world: World, name: str = "j1") -> list[Closed]:
    return records(world.feed(ev.KillRequested(JobId(name))))


def test_unmet_demand_counts_a_wait_that_led_to_nothing() -> None:
    world = made()
    world.submit("j1", gpus=4, tasks=2, queue="ml")
    world.tick(90.0)
    (record,) = kill(world)
    assert (record.reason, record.span.queue, record.span.task_id) == (SpanEnd.KILLED, "ml", "j1.0")
    (part,) = record.span.parts
    used = figures(record, part, 0, 1 << 60)
    assert used.unmet == 8000 * 90_000
    assert (used.spans, used.gpu, used.waits) == (0, 0, {}), "it has not started"
    assert kill(world) == []


def test_unmet_demand_leaves_out_jobs_without_gpus() -> None:
    world = made()
    world.submit("j1", gpus=0, cpus=64)
    assert kill(world) == []


def test_unmet_demand_leaves_out_a_job_killed_while_it_runs() -> None:
    world = made()
    world.submit("j1", gpus=1)
    world.offers(offer("o1", "a1", gpus=1))
    world.status("j1.1", "TASK_RUNNING")
    world.tick(10.0)
    assert kill(world) == []
    (record,) = records(world.status("j1.1", "TASK_KILLED"))
    assert record.span.task_id == "j1.1"


def test_unmet_demand_of_a_requeued_job_counts_from_its_last_end() -> None:
    world = made()
    world.submit("j1", gpus=1, max_attempts=3)
    world.offers(offer("o1", "a1", gpus=1))
    world.status("j1.1", "TASK_RUNNING")
    world.tick(10.0)
    world.status("j1.1", "TASK_FAILED")
    not_before = world.job("j1").not_before
    world.tick(not_before - world.now + 30.0)
    (record,) = kill(world)
    assert record.span.wait_ms == 30_000
