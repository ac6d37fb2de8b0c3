"""Who waited for GPUs and was taken back is on record, too: nothing was held, and so much was not served."""

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.saves import KeepRecord
from mesos_gpu.model.usage import Closed, SpanEnd
from mesos_gpu.policy.accounts.sums import figures
from mesos_gpu.testing.builders import World, every, gpu, offer


def made() -> World:
    world = World()
    world.register()
    world.node("a1", gpu("g0"), gpu("g1"))
    return world


def records(effects: list[fx.Effect]) -> list[Closed]:
    return [effect.record for effect in every(effects, KeepRecord)]


def kill(world: World, name: str = "j1") -> list[Closed]:
    return records(world.feed(ev.KillRequested(JobId(name))))


def test_a_wait_that_led_to_nothing_is_unmet_demand() -> None:
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


def test_who_waits_for_no_gpu_is_in_no_report() -> None:
    world = made()
    world.submit("j1", gpus=0, cpus=64)
    assert kill(world) == []


def test_who_is_killed_while_it_runs_was_served() -> None:
    world = made()
    world.submit("j1", gpus=1)
    world.offers(offer("o1", "a1", gpus=1))
    world.status("j1.1", "TASK_RUNNING")
    world.tick(10.0)
    assert kill(world) == []
    (record,) = records(world.status("j1.1", "TASK_KILLED"))
    assert record.span.task_id == "j1.1"


def test_what_it_waited_for_again_is_unmet_from_its_last_end_on() -> None:
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
