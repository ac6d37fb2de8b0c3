"""Queues by attained service: their order, the jobs that give way, and those in the way of others."""

from dataclasses import replace
from typing import Any, Final

import pytest

from mesos_gpu.engine.queue.las import AttainedServiceOrder
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.resources import NOTHING
from mesos_gpu.model.served import Served
from mesos_gpu.model.tenancy import QueueOrder, QueueSpec
from mesos_gpu.policy.capacity.node import ENDLESS, Reservation
from mesos_gpu.policy.tenancy.las import HOUR_MS
from tests.doubles.builders import spec
from tests.unit.engine.tenancy.worlds import tree_world

NOW: Final = 1000.0
LEVEL: Final = HOUR_MS * 1000  # service with which a job goes a level down


@pytest.fixture
def state() -> State:
    las = QueueSpec(order=QueueOrder.LAS)
    return tree_world({"las": las, "las2": las, "other": QueueSpec()}).state


def job_of(name: str, queue: str = "las", served: int = 0, at: float = NOW, **fields: Any) -> Job:
    made = spec(**{"queue": queue, "gpus": 1, "priority": 0, "preemptible": True, **fields})
    return Job(JobId(name), made, at, 1, served=Served(served))


def test_only_queues_of_that_order_have_ranks(state: State) -> None:
    attained = AttainedServiceOrder(state, NOW)
    assert attained.any
    assert [attained.orders(job_of("j", queue)) for queue in ("las", "las2", "other")] == [True, True, False]
    assert attained.rank(job_of("j", "other")) == ()
    assert attained.rank(job_of("j", served=LEVEL)) == (0, 0, 1, 1000)
    assert attained.level(job_of("k", served=LEVEL)) == 1
    assert not AttainedServiceOrder(State(started_at=0.0), NOW).any
    assert not AttainedServiceOrder(tree_world({"other": QueueSpec()}).state, NOW).any


def test_line_has_jobs_of_such_a_queue_by_their_service(state: State) -> None:
    jobs = [job_of("old", served=LEVEL), job_of("other", "other", served=LEVEL), job_of("new")]
    assert [job.id for job in AttainedServiceOrder(state, NOW).line(jobs)] == ["new", "other", "old"]
    assert AttainedServiceOrder(State(started_at=0.0), NOW).line(jobs) is jobs


@pytest.mark.parametrize(
    ("runs", "waits", "gives"),
    [
        (job_of("r", served=LEVEL), job_of("w"), True),
        (job_of("r"), job_of("w"), False),
        (job_of("r"), job_of("w", served=LEVEL), False),
        (job_of("r", "las2", served=LEVEL), job_of("w"), False),
        (job_of("r", "other", served=LEVEL), job_of("w", "other"), False),
    ],
)
def test_job_gives_way_within_its_queue_to_one_with_less_service(
    state: State, runs: Job, waits: Job, gives: bool
) -> None:
    attained = AttainedServiceOrder(state, NOW)
    assert attained.gives_way(runs, waits) is gives
    assert attained.moves_on([waits], [runs]) is gives
    ahead, behind = replace(waits, id=JobId("a")), job_of("b", served=9 * LEVEL)
    assert attained.moves_on([behind, ahead, behind], [runs]) is gives
    assert not attained.moves_on([], [runs])


@pytest.mark.parametrize(
    ("job", "queue"),
    [(job_of("j"), "las"), (job_of("j", preemptible=False), ""), (job_of("j", "other"), "")],
)
def test_job_that_gives_way_may_start_on_what_is_kept_in_its_queue(
    state: State, job: Job, queue: str
) -> None:
    assert AttainedServiceOrder(state, NOW).passing(job) == queue


@pytest.mark.parametrize(
    ("job", "ends_at", "at", "kept_for", "in_way"),
    [
        (job_of("j", "other"), 2000.0, 1500.0, job_of("k", "other"), True),
        (job_of("j", "other"), 1500.0, 1500.0, job_of("k", "other"), False),  # it ends in time
        (job_of("j", "other"), 1500.0, ENDLESS, job_of("k", "other"), True),
        (job_of("k", "other"), 2000.0, 1500.0, job_of("k", "other"), False),  # its own
        (job_of("j"), 2000.0, 1500.0, job_of("k"), False),
        (job_of("j", preemptible=False), 2000.0, 1500.0, job_of("k"), True),
        (job_of("j"), 2000.0, 1500.0, job_of("k", "las2"), True),
        (job_of("j"), 2000.0, 1500.0, replace(job_of("k"), room_made_at=900.0), True),
        (job_of("j"), 2000.0, 1500.0, job_of("k", at=NOW - 31 * 86400), True),
    ],
)
def test_job_is_in_the_way_of_what_is_kept_for_others(
    state: State, job: Job, ends_at: float, at: float, kept_for: Job, in_way: bool
) -> None:
    state.work.jobs[kept_for.id] = kept_for
    kept = Reservation(kept_for.id, kept_for.spec.queue, NOTHING, at)
    assert AttainedServiceOrder(state, NOW).in_way(job, ends_at, kept) is in_way
