"""Metrics of the scheduler: each event counts once, and a wait begins when a job joins the queue."""

from typing import Final

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.errors import TooMuch
from mesos_gpu.model.ids import OfferId
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.scheduler.figures import counted
from mesos_gpu.scheduler.figures.counted import OTHERS, Counted
from mesos_gpu.scheduler.figures.meter import Meter
from tests.doubles.builders import World, gpu, offer

LOST: Final = Outcome(signal=9, infrastructure=True)


class Watched(World):
    """A world whose effects are counted."""

    def listen(self) -> "Watched":
        self.meter = Meter()
        self.counted = Counted(self.state, self.meter)
        return self

    def feed(self, *events: ev.Event) -> list[object]:  # type: ignore[override]
        for event in events:
            self.counted.heard(event)
        effects = super().feed(*events)
        self.counted.saved(effects)
        return effects  # type: ignore[return-value]

    def sample(self, name: str, **labels: str) -> float | None:
        values = [
            sample.value
            for metric in self.meter.collect()
            for sample in metric.samples
            if sample.name == f"mesos_gpu_{name}" and sample.labels == labels
        ]
        return values[0] if values else None


@pytest.fixture
def world() -> Watched:
    world = Watched().listen()
    world.register()
    return world


def test_queue_wait_ends_at_the_launch_and_launch_time_when_it_runs(world: Watched) -> None:
    world.submit(gpus=1, queue="vision")
    world.now += 100
    world.node("a1", gpu("g0"))
    world.now += 3
    world.status("j1.1", "TASK_STARTING")
    world.status("j1.1", "TASK_RUNNING")
    world.status("j1.1", "TASK_RUNNING")
    assert world.sample("queue_wait_seconds_sum", queue="vision") == 100
    assert world.sample("queue_wait_seconds_count", queue="vision") == 1
    assert world.sample("launch_duration_seconds_sum") == 3
    assert world.sample("placements_total") == 1
    assert world.sample("offers_total", outcome="received") == 2
    assert world.sample("offers_total", outcome="used") == 2
    world.status("j1.1", "TASK_FINISHED")
    world.status("j1.1", "TASK_FINISHED")
    assert world.sample("task_ends_total", state="finished") == 1


def test_queue_wait_of_a_requeued_job_begins_at_its_end(world: Watched) -> None:
    world.node("a1", gpu("g0"))
    world.submit(gpus=1)
    world.now += 500
    world.status("j1.1", "TASK_RUNNING")
    world.status("j1.1", "TASK_FAILED", outcome=LOST)
    world.tick(30)
    world.node("a2", gpu("g1"))
    assert world.sample("placements_total") == 2
    total = world.sample("queue_wait_seconds_sum", queue="default")
    assert total is not None
    assert 0 < total <= 31


def test_queue_wait_of_restored_jobs_counts_from_their_submission(world: Watched) -> None:
    world.submit(gpus=1)
    world.now += 40
    world.listen()
    world.now += 2
    world.node("a1", gpu("g0"))
    assert world.sample("queue_wait_seconds_sum", queue="default") == 42


def test_preemption_metric_counts_once_with_its_reason(world: Watched) -> None:
    world.node("a1", gpu("g0"))
    world.submit("low", gpus=1, preemptible=True)
    world.status("low.1", "TASK_RUNNING")
    world.report("a1", gpu("g0"))
    world.submit("high", gpus=1, priority=10)
    world.tick(5)
    assert world.job("low").message.startswith("makes room for job high")
    assert world.sample("preemptions_total", reason="preemption") == 1


def test_metrics_count_refusals_and_rescinded_offers(world: Watched) -> None:
    world.counted.refused(TooMuch("too many jobs", remedy="wait"))
    world.counted.heard(ev.OfferRescinded(OfferId("o")))
    assert world.sample("refusals_total", reason="TooMuch") == 1
    assert world.sample("offers_total", outcome="rescinded") == 1


def test_queue_metrics_beyond_the_limit_are_merged(world: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted, "MAX_QUEUES", 2)
    world.node("a1", gpu("g0"))
    for number in range(4):
        world.submit(f"j{number}", queue=f"q{number}")
        world.offers(offer(f"more-{number}", "a1"))
    assert world.sample("queue_wait_seconds_count", queue="q1") == 1
    assert world.sample("queue_wait_seconds_count", queue="q2") is None
    assert world.sample("queue_wait_seconds_count", queue=OTHERS) == 2
