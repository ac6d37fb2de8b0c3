"""Job arrays: how they become jobs, what limits them, and how they end."""

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import NotAccepted, TooMuch
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.quota import Quota
from mesos_gpu.model.saves import ForgetArray, SaveArray, SaveJob
from tests.doubles.builders import World, every, offer, saved_of, spec

ID = JobId("sweep-0a1b2c3d")


def world(cpus: float = 4, **settings: object) -> World:
    made = World(settings=Settings.of("executor", "monitor").changed(**settings))
    made.register()
    made.offers(offer("o1", cpus=cpus))
    return made


def submit(made: World, array: str, **fields: object) -> list[fx.Effect]:
    return made.feed(ev.JobSubmitted(ID, spec(name="sweep", array=array, cpus=0.5, **fields)))


def array_of(made: World) -> JobArray:
    return made.state.work.arrays[ID]


def running(made: World) -> list[int]:
    """The indexes of members that were launched and have not ended, as the state has them."""
    jobs = made.state.work.jobs.values()
    return sorted(
        job.index or 0
        for job in jobs
        if job.array == ID and job.state not in (JobState.PENDING,) and not job.state.ended
    )


def end(made: World, index: int, state: str = "TASK_FINISHED") -> list[fx.Effect]:
    job = made.job(f"sweep.{index}-0a1b2c3d")
    assert job.task_id is not None
    return made.status(job.task_id, state)


def through(made: World, state: str = "TASK_FINISHED", most: int = 1000) -> list[int]:
    """End what runs, in its order, and offer what it held; the indexes in the order in which they ended."""
    ended: list[int] = []
    for number in range(most):
        now = running(made)
        if not now:
            return ended
        for index in now:
            end(made, index, state)
            ended.append(index)
        made.now += 1
        made.offers(offer(f"again{number}", cpus=4))
    raise AssertionError(f"after {most} rounds {running(made)} run")


def test_array_is_one_record_until_a_task_of_it_starts() -> None:
    made = World()
    made.register()
    effects = submit(made, "0-9999%200")
    assert [type(e) for e in effects if isinstance(e, (SaveArray, SaveJob))] == [SaveArray]
    assert len(made.state.work.jobs) == len(made.state.work.queue) == 1
    assert saved_of(made.state).jobs == ()
    assert array_of(made).left == ((0, 9999),)


def test_array_runs_each_index_once_and_keeps_its_limit_at_once() -> None:
    made = world()
    submit(made, "0-9%3")
    assert running(made) == [0, 1, 2]
    assert through(made) == list(range(10))
    array = array_of(made)
    assert (array.finished, array.left, array.outcome) == (((0, 9),), (), JobState.FINISHED)
    assert array.ended_at is not None
    assert len([job for job in made.state.work.jobs.values() if job.array == ID]) == 10


def test_array_tasks_that_fit_start_in_one_match() -> None:
    made = world(cpus=8)
    submit(made, "0-99")
    assert running(made) == list(range(16))  # each takes 0.49, its executor included
    assert len(made.state.work.queue) == 1, "one stands in the queue for those that wait"


def test_array_of_a_list_of_indexes_runs_these() -> None:
    made = world()
    submit(made, "1,5,9-10%2")
    assert through(made) == [1, 5, 9, 10]


def test_tasks_are_told_which_they_are() -> None:
    made = world()
    launches = every(submit(made, "10-30:5%2"), fx.Launch)
    item = next(each for launch in launches for each in launch.tasks if each.task.job_id is not None)
    assert item.env == {**item.env, **{
        "MESOS_GPU_ARRAY_JOB_ID": ID,
        "MESOS_GPU_ARRAY_INDEX": "10",
        "MESOS_GPU_ARRAY_COUNT": "5",
        "MESOS_GPU_ARRAY_FIRST": "10",
        "MESOS_GPU_ARRAY_LAST": "30",
        "MESOS_GPU_ARRAY_STEP": "5",
    }}  # fmt: skip
    assert item.spec is not None
    assert (item.spec.name, item.spec.array) == ("sweep.10", None)


def test_job_submitted_later_waits_behind_all_tasks_of_an_array() -> None:
    made = World()
    made.register()
    submit(made, "0-9")
    made.submit("later", cpus=0.5)
    made.offers(offer("o1", cpus=2.1))
    assert running(made) == [0, 1, 2, 3]
    assert made.job("later").state is JobState.PENDING


def test_array_at_its_limit_lets_others_start() -> None:
    made = world()
    submit(made, "0-9%2")
    made.submit("later", cpus=0.5)
    made.offers(offer("o2"))
    assert made.job("later").state is JobState.STARTING
    assert running(made) == [0, 1]


def test_array_task_requeued_keeps_its_place_and_its_part_of_the_limit() -> None:
    made = world()
    submit(made, "0-9%2")
    end(made, 0, "TASK_LOST")
    assert len([j for j in made.state.work.jobs.values() if j.array == ID and not j.state.ended]) == 2
    made.now += 1
    made.offers(offer("o2"))
    assert running(made) == [0, 1]
    made.now += 1
    assert through(made) == list(range(10))


def test_attempts_are_of_each_task() -> None:
    made = world()
    submit(made, "0-1%1", max_attempts=2)
    end(made, 0, "TASK_FAILED")
    assert array_of(made).failed == ()
    made.now += 5
    made.offers(offer("o2"))
    assert running(made) == [0]
    through(made)
    assert made.job("sweep.0-0a1b2c3d").attempts == 2
    assert array_of(made).outcome is JobState.FINISHED


def test_array_of_which_a_task_failed_has_failed() -> None:
    made = world()
    submit(made, "0-3")
    end(made, 2, "TASK_FAILED")
    assert array_of(made).ended_at is None
    assert through(made) == [0, 1, 3]
    assert (array_of(made).outcome, array_of(made).failed) == (JobState.FAILED, ((2, 2),))


def test_array_range_that_waits_is_killed_at_once_and_for_good() -> None:
    made = world()
    submit(made, "0-9%2")
    effects = made.feed(ev.ArrayKillRequested(ID, "3-7"))
    assert every(effects, SaveArray)[-1].array.killed == ((3, 7),)
    assert every(effects, fx.Kill) == []
    again = World(settings=made.settings, now=made.now, state=State.restored(made.now, saved_of(made.state)))
    assert again.state.work.arrays[ID].left == ((2, 2), (8, 9))
    assert through(made) == [0, 1, 2, 8, 9]
    assert array_of(made).outcome is JobState.KILLED


def test_array_range_of_which_some_run_is_killed_by_the_executor() -> None:
    made = world()
    submit(made, "0-9%2")
    effects = made.feed(ev.ArrayKillRequested(ID, "1-9"))
    assert [kill.task_id for kill in every(effects, fx.Kill)] == [made.job("sweep.1-0a1b2c3d").task_id]
    end(made, 1, "TASK_KILLED")
    end(made, 0)
    assert (array_of(made).killed, array_of(made).finished) == (((1, 9),), ((0, 0),))
    assert array_of(made).ended_at is not None


def test_array_task_not_yet_started_may_be_killed_as_any_job() -> None:
    made = World()
    made.register()
    submit(made, "0-3")
    made.feed(ev.KillRequested(JobId("sweep.0-0a1b2c3d")))
    assert (array_of(made).killed, array_of(made).left) == (((0, 0),), ((1, 3),))
    made.feed(ev.ArrayKillRequested(ID))
    assert array_of(made).killed == ((0, 3),)
    assert array_of(made).ended_at == made.now
    assert made.state.work.queue == []


def test_array_limit_holds_after_a_restart_and_no_index_runs_twice() -> None:
    made = world()
    submit(made, "0-19%4")
    end(made, 1)
    made.offers(offer("o2"))
    before = running(made)
    assert before == [0, 2, 3, 4]
    made.state = State.restored(made.now, saved_of(made.state))
    made.register()
    made.offers(offer("o3", "a2"))
    assert running(made) == before
    assert sorted([*through(made), 1]) == list(range(20))


def test_many_tasks_that_wait_cost_a_match_one_job() -> None:
    made = world(cpus=4)
    submit(made, "0-9999")
    assert len(made.state.work.queue) == 1
    for each in range(3):
        made.now += 2
        made.offers(offer(f"x{each}", f"b{each}", cpus=1.1))
        assert len(made.state.work.queue) == 1
    assert len(running(made)) == 8 + 3 * 2


def test_arrays_larger_than_the_operator_allows_are_refused() -> None:
    made = world(max_array=100)
    with pytest.raises(NotAccepted) as refused:
        submit(made, "0-100")
    assert refused.value.faults == (("/array", "has 101 indexes, and 100 are allowed"),)
    assert made.state.work.arrays == {}


def test_names_of_tasks_must_be_names() -> None:
    made = world()
    with pytest.raises(NotAccepted) as refused:
        made.feed(ev.JobSubmitted(ID, spec(name="n" * 60, array="0-9999")))
    assert refused.value.faults[0][0] == "/name"


def test_array_tasks_count_as_jobs_that_wait() -> None:
    made = World(settings=Settings.of("executor", "monitor").changed(user_quota=Quota(pending=100)))
    made.register()
    submit(made, "0-98")
    with pytest.raises(TooMuch, match="102 jobs would be pending, and 100 are allowed"):
        made.feed(ev.JobSubmitted(JobId("b-1"), spec(name="b", array="0-2")))
    made.submit("one")
    made.feed(ev.ArrayKillRequested(ID, "10-98"))
    made.feed(ev.JobSubmitted(JobId("b-1"), spec(name="b", array="0-2")))
    again = State.restored(made.now, saved_of(made.state))
    World(settings=made.settings, now=made.now, state=again).register()
    assert again.quota.uses["user", ""].pending == made.state.quota.uses["user", ""].pending == 10 + 1 + 3


def test_array_that_ended_long_ago_is_forgotten_after_its_tasks() -> None:
    made = world(keep_ended_jobs=1)
    submit(made, "0-2")
    through(made)
    assert ID in made.state.work.arrays
    made.feed(ev.JobSubmitted(JobId("b-1"), spec(name="b", array="5")))
    made.feed(ev.ArrayKillRequested(JobId("b-1")))
    made.submit("later")
    effects = made.feed(ev.KillRequested(JobId("later")))
    effects += made.tick(2)
    assert [e.array_id for e in every(effects, ForgetArray)] == [ID]


def test_array_index_is_killed_once() -> None:
    made = world()
    submit(made, "0-3%1")
    made.feed(ev.ArrayKillRequested(ID, "0-1"))
    effects = made.feed(ev.ArrayKillRequested(ID, "0-1"))
    assert (every(effects, fx.Kill), every(effects, SaveArray)) == ([], [])
