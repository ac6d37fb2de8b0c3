"""Resources that tasks and their executors take, beside the monitor of a node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.engine.room.footprint import footprint_of
from mesos_gpu.engine.settings import EXECUTOR, MONITOR, Settings
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job
from tests.doubles.builders import World, offer, spec

SETTINGS = Settings.of("executor", "monitor")


def milli_of(cpu_milli: int) -> tuple[int, int]:
    """Return thousandths of CPUs of the task and of its executor."""
    job = Job(JobId("j"), spec(cpus=cpu_milli / 1000), 0.0, 1)
    footprint = footprint_of(job, SETTINGS)
    assert footprint.total.mem_mib == job.spec.mem_mib + EXECUTOR.mem_mib
    return footprint.task.cpu_milli, footprint.executor.cpu_milli


@pytest.mark.parametrize(
    ("asked", "own"),
    [(0, (0, 10)), (5, (5, 5)), (10, (5, 5)), (100, (88, 10)), (1000, (970, 10)), (8000, (7830, 10))],
)
def test_executor_has_its_cpus_from_its_task(asked: int, own: tuple[int, int]) -> None:
    assert milli_of(asked) == own


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_footprint_grows_with_what_is_asked_for(first: int, second: int) -> None:
    less, more = sorted((first, second))
    assert sum(milli_of(less)) <= sum(milli_of(more))
    assert sum(milli_of(more)) <= max(more, EXECUTOR.cpu_milli)


@given(st.lists(st.integers(50, 64_000), min_size=1, max_size=8).filter(lambda tasks: sum(tasks) >= 1000))
def test_tasks_that_ask_for_all_cpus_of_a_node_fit_beside_its_monitor(tasks: list[int]) -> None:
    taken = sum(sum(milli_of(each - each % 50)) for each in tasks)
    assert taken + MONITOR.cpu_milli <= max(sum(tasks), 1000)


@pytest.mark.parametrize(("count", "cpus"), [(4, 1.0), (8, 8.0)])
def test_node_runs_as_many_jobs_as_its_cpus_are_for(count: int, cpus: float) -> None:
    world = World()
    world.register()
    node_cpus = count * cpus
    for number in range(count):
        world.submit(f"j{number}", gpus=0, cpus=cpus)
    world.offers(offer("o1", "a1", cpus=node_cpus - MONITOR.cpus))
    states = [world.job(f"j{number}").state.value for number in range(count)]
    assert states == ["starting"] * count
