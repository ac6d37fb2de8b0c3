"""Changes of jobs and arrays in a step: versions that grow, waits that grow, and where tries end."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.saves import SaveJob
from tests.doubles.builders import World, every, gpu, offer, spec


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    world.node("a1", gpu("g0"), gpu("g1"))
    return world


@pytest.fixture
def turn(world: World) -> Turn:
    """A step in which job j1 waits."""
    world.submit("j1", gpus=64)
    return Turn(world.state, world.settings, world.now)


def job(turn: Turn) -> Job:
    return turn.state.work.jobs[JobId("j1")]


def test_version_of_a_job_grows_with_each_change_and_is_published(turn: Turn) -> None:
    first = job(turn).version
    changed = turn.put_job(replace(job(turn), message="one"))
    again = turn.put_job(replace(changed, message="two"))
    assert (changed.version, again.version) == (first + 1, first + 2)
    assert [saved.job.version for saved in every(turn.effects, SaveJob)] == [first + 1, first + 2]
    assert [told.version for told in every(turn.effects, fx.Publish)] == [first + 1, first + 2]


def test_version_of_an_array_grows_with_each_change(world: World) -> None:
    world.feed(ev.JobSubmitted(JobId("a1"), spec(array="0-3", gpus=1)))
    (array,) = world.state.work.arrays.values()
    turn = Turn(world.state, world.settings, world.now)
    assert turn.put_array(array).version == array.version + 1
    assert world.state.work.arrays[array.id].version == array.version + 1


def test_lost_launches_wait_longer_each_time_and_end_after_the_most(turn: Turn) -> None:
    settings, waits = turn.settings, []
    most = settings.tasks.max_infrastructure_failures
    for failures in range(1, most + 1):
        turn.requeue(job(turn), "its agent is gone")
        assert (job(turn).state, job(turn).infrastructure_failures) == (JobState.PENDING, failures)
        waits.append(job(turn).not_before - turn.now)
    wanted = [min(settings.tasks.requeue_first_s * 2**n, settings.tasks.requeue_most_s) for n in range(most)]
    assert waits == pytest.approx(wanted)
    assert job(turn).attempts == 0, "none is used up"
    turn.requeue(job(turn), "its agent is gone")
    assert (job(turn).state, job(turn).infrastructure_failures) == (JobState.FAILED, most + 1)
    assert job(turn).message.startswith(f"gave up after {most + 1} launches")


def test_failed_attempts_wait_longer_each_time_and_end_after_the_last(turn: Turn) -> None:
    turn.put_job(replace(job(turn), spec=replace(job(turn).spec, max_attempts=3)))
    waits = []
    for attempt in 1, 2:
        turn.retry(job(turn), "it failed", 3, final=False)
        assert (job(turn).state, job(turn).attempts, job(turn).exit_code) == (JobState.PENDING, attempt, 3)
        assert job(turn).message.startswith(f"attempt {attempt} of 3: it failed; next in ")
        waits.append(job(turn).not_before - turn.now)
    assert waits == pytest.approx([turn.settings.tasks.retry_first_s, turn.settings.tasks.retry_first_s * 2])
    turn.retry(job(turn), "it failed", 3, final=False)
    assert (job(turn).state, job(turn).attempts, job(turn).exit_code) == (JobState.FAILED, 3, 3)


def test_final_failure_ends_a_job_that_has_attempts_left(turn: Turn) -> None:
    turn.put_job(replace(job(turn), spec=replace(job(turn).spec, max_attempts=3)))
    turn.retry(job(turn), "the master refused it", None, final=True)
    assert (job(turn).state, job(turn).attempts) == (JobState.FAILED, 1)


def test_job_that_gives_way_waits_for_nothing_and_loses_no_attempt(turn: Turn) -> None:
    turn.put_job(replace(job(turn), started_at=5.0, state=JobState.RUNNING))
    turn.give_way(job(turn), "makes room")
    given = job(turn)
    assert (given.state, given.started_at, given.attempts) == (JobState.PENDING, None, 0)
    assert (given.infrastructure_failures, given.not_before) == (0, 0.0)


@pytest.mark.parametrize("way", ["requeue", "give_way"])
def test_adopted_job_cannot_start_again(turn: Turn, way: str) -> None:
    turn.put_job(replace(job(turn), adopted=True))
    getattr(turn, way)(job(turn), "its agent is gone")
    assert job(turn).state is JobState.FAILED
    assert "submit it again" in job(turn).message


def test_job_ends_when_its_last_task_did_or_when_that_is_heard_of(world: World) -> None:
    world.submit("j2", gpus=1)
    world.offers(offer("o2", "a1", gpus=2))
    world.status("j2.1", "TASK_RUNNING")
    world.tick(10.0)
    world.status("j2.1", "TASK_FINISHED")
    assert world.job("j2").ended_at == world.now
    ended = replace(world.job("j2"), state=JobState.RUNNING)
    later = Turn(world.state, world.settings, world.now + 60.0)
    later.end_job(ended, JobState.KILLED, "asked for")
    assert later.state.work.jobs[ended.id].ended_at == world.now + 60.0, "its tasks' end was heard of before"


def test_reports_that_say_the_same_start_no_match(world: World) -> None:
    world.state.match.unmatched = False
    node = world.state.cluster.nodes["a1"]  # type: ignore[index]
    turn = Turn(world.state, world.settings, world.now)
    turn.put_node(replace(node, reported_at=world.now))
    assert not world.state.match.unmatched
    turn.put_node(replace(node, hostname="another"))
    assert world.state.match.unmatched
