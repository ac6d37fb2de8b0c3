"""Cards on their way between shares and whole use: nothing that waits for them is passed over meanwhile."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.tasks.task import Task
from tests.doubles.builders import World, every, offer
from tests.unit.engine.gpus.test_covers import (
    QUARTER,
    cover_task,
    covers_in,
    rest,
    run,
    shared,
    submit,
    world_of,
)


def share_of(world: World, name: str) -> Task:
    task_id = world.job(name).task_id
    assert task_id is not None, f"{name} is {world.job(name).state.value}"
    return world.state.work.tasks[task_id]


def test_reservation_for_a_job_stays_while_a_card_is_closed() -> None:
    world = world_of(shared("g1"), shared("g2"))
    submit(world, "j1", **QUARTER)
    run(world, cover_task(world), share_of(world, "j1"))
    submit(world, "large", gpus=2)
    rest(world, "o1", 1)
    submit(world, "small", gpus=1)
    closed = every(world.status(share_of(world, "j1").id, "TASK_FINISHED"), fx.Kill)
    assert [kill.task_id for kill in closed] == [cover_task(world).id]
    world.tick(2)
    assert (world.job("large").state, world.job("small").state) == (JobState.PENDING, JobState.PENDING)
    world.status(cover_task(world).id, "TASK_KILLED")
    rest(world, "o2", 2)
    assert share_of(world, "large").gpus == (GpuId("g1"), GpuId("g2"))


def test_reservation_for_a_job_stays_however_long_a_card_takes_to_close() -> None:
    """Found by chaos: what a node had is remembered for a while only, and the status of the end was lost."""
    world = world_of(shared("g1"), shared("g2"))
    submit(world, "j1", **QUARTER)
    run(world, cover_task(world), share_of(world, "j1"))
    submit(world, "large", gpus=2)
    world.status(share_of(world, "j1").id, "TASK_FINISHED")
    world.tick(400)
    world.report("a1", shared("g1"), shared("g2"))
    submit(world, "small", gpus=1)
    rest(world, "o1", 1)
    assert (world.job("large").state, world.job("small").state) == (JobState.PENDING, JobState.PENDING)


def test_reservation_for_a_job_stays_while_a_card_is_uncovered() -> None:
    world = world_of(shared("g1"), shared("g2"))
    submit(world, "j1", **QUARTER, timeout_s=500.0)
    run(world, cover_task(world), share_of(world, "j1"))
    submit(world, "large", gpus=2)
    rest(world, "o1", 1)
    submit(world, "small", gpus=1)
    world.status(cover_task(world).id, "TASK_FAILED")
    assert covers_in(rest(world, "o2", 2)) == []  # its keeper is started a moment later
    assert (world.job("large").state, world.job("small").state) == (JobState.PENDING, JobState.PENDING)
    (cover,) = covers_in(world.tick(1))
    assert cover.task.covers == GpuId("g1")
    rest(world, "o3", 1)
    assert (world.job("large").state, world.job("small").state) == (JobState.PENDING, JobState.PENDING)


def test_card_being_closed_is_waited_for_without_further_victims() -> None:
    world = world_of(shared("g1"))
    submit(world, "j1", **QUARTER, preemptible=True)
    run(world, cover_task(world), share_of(world, "j1"))
    world.node("a2", shared("h1"))
    submit(world, "j2", gpus=1, preemptible=True, kill_grace_s=60.0)
    run(world, share_of(world, "j2"))
    submit(world, "first", gpus=1, priority=1)
    world.tick(4)
    victim, other = ("j1", "j2") if share_of(world, "j1").evicted else ("j2", "j1")
    assert (victim, bool(share_of(world, other).evicted)) == ("j1", False)  # a quarter is less work
    world.tick(40)  # longer than a choice stands
    for agent, card in (("a1", "g1"), ("a2", "h1")):
        world.report(agent, shared(card))
    world.status(share_of(world, "j1").id, "TASK_KILLED")
    world.tick(3)
    assert not share_of(world, "j2").evicted, "one card is on its way"


def test_idle_card_of_an_unreachable_agent_is_let_go() -> None:
    world = world_of(shared("g1"))
    submit(world, "j1", **QUARTER)
    cover = cover_task(world)
    run(world, cover, share_of(world, "j1"))
    world.status(share_of(world, "j1").id, "TASK_FINISHED")
    world.feed(ev.AgentLost(AgentId("a1")))
    world.status(cover.id, "TASK_UNREACHABLE")
    world.tick(world.settings.mesos.unreachable_timeout_s - 1)
    assert GpuId("g1") in world.state.gpus.covers
    world.tick(2)
    world.node("a2", shared("g1"))  # it has come up as another agent
    submit(world, "whole", gpus=1)
    rest(world, "o1", 1, agent="a2")
    assert share_of(world, "whole").gpus == (GpuId("g1"),)
    back = every(world.status(cover.id, "TASK_RUNNING"), fx.Kill)
    assert [kill.task_id for kill in back] == [cover.id]


def test_card_with_a_share_of_an_unreachable_agent_stays_held() -> None:
    world = world_of(shared("g1"))
    submit(world, "j1", **QUARTER)
    cover, share = cover_task(world), share_of(world, "j1")
    run(world, cover, share)
    world.feed(ev.AgentLost(AgentId("a1")))
    for task in (cover, share):
        world.status(task.id, "TASK_UNREACHABLE")
    world.tick(world.settings.mesos.unreachable_timeout_s + 2)
    assert (list(world.state.gpus.covers), list(world.state.gpus.sharers)) == ([GpuId("g1")], [GpuId("g1")])


def test_card_is_opened_as_soon_as_a_keeper_may_be_started_again() -> None:
    world = world_of(shared("g1"), shared("g2"))
    submit(world, "j1", **QUARTER)
    cover, share = cover_task(world), share_of(world, "j1")
    run(world, share)
    for number in range(5):
        world.status(cover.id, "TASK_FAILED")
        (until,) = (until for _, until in world.state.gpus.keeper_failures.values())
        world.tick(until - world.now)
        (item,) = covers_in(rest(world, f"o{number}", 2))
        cover = item.task
    world.status(share.id, "TASK_FINISHED")
    world.status(cover.id, "TASK_FAILED")
    (until,) = (until for _, until in world.state.gpus.keeper_failures.values())
    submit(world, "j2", **QUARTER)
    rest(world, "o9", 2)
    world.tick(until - world.now - 0.5)
    assert world.job("j2").state is JobState.PENDING
    world.tick(2)
    assert world.job("j2").state is JobState.STARTING


def idle_world(*more: str, **settings: object) -> World:
    """A card that is open, and that nobody has a share of; `more`: of the same agent, which are used wholly."""
    world = world_of(shared("g1"), *map(shared, more), **settings)
    submit(world, "j1", **QUARTER)
    run(world, cover_task(world), share_of(world, "j1"))
    for n, _ in enumerate(more):
        rest(world, f"of {n}", len(more) - n)
        submit(world, f"holds{n}", gpus=1)
        run(world, share_of(world, f"holds{n}"))
    world.status(share_of(world, "j1").id, "TASK_FINISHED")
    assert list(world.state.gpus.covers) == ["g1"]
    rest(world, "idle", 0)
    return world


def closed_for(world: World, **wanted: object) -> list[str]:
    """Return the tasks that are ended for a job that waits."""
    kills = every([*submit(world, "waits", **wanted), *world.tick(3)], fx.Kill)
    assert world.job("waits").state is JobState.PENDING
    return [kill.task_id for kill in kills]


def test_idle_card_stays_open_for_a_job_that_its_gpu_alone_does_not_help() -> None:
    for wanted in (
        {"gpus": 2},
        {"gpus": 1, "mem_mib": 10**6},
        {"gpus": 1, "gpu_model": ("other",)},
        {"gpus": 1, "tasks": 2},
    ):
        assert closed_for(idle_world(), **wanted) == []
    busy = idle_world("g2")
    assert closed_for(busy, gpus=2) == [], "the other GPU is in use"
    effects = [*busy.status(share_of(busy, "holds0").id, "TASK_FINISHED"), *rest(busy, "o9", 1)]
    assert [kill.task_id for kill in every(effects, fx.Kill)] == [cover_task(busy).id], "and now it is not"


def test_idle_card_stays_open_for_a_job_held_by_the_limit_of_its_queue() -> None:
    world = idle_world("g2", queue_limits={"lab": 1, "default": 9})
    assert closed_for(world, gpus=2, queue="lab") == []


def test_idle_card_is_closed_for_one_job_and_not_for_each_that_waits() -> None:
    world = world_of(shared("g1"), shared("g2"))
    for name in ("j1", "j2"):
        submit(world, name, gpus=1, gpu_milli=900)
        rest(world, f"after {name}", 1)
    for gpu_id in ("g1", "g2"):
        run(world, world.state.work.tasks[world.state.gpus.covers[GpuId(gpu_id)]])
    run(world, share_of(world, "j1"), share_of(world, "j2"))
    world.status(share_of(world, "j1").id, "TASK_FINISHED")
    world.status(share_of(world, "j2").id, "TASK_FINISHED")
    assert len(closed_for(world, gpus=1)) == 1
    assert len(every([*submit(world, "second", gpus=1), *world.tick(3)], fx.Kill)) == 1
    assert every([*submit(world, "third", gpus=1), *world.tick(3)], fx.Kill) == []


def test_idle_cards_of_several_agents_are_closed_for_a_gang() -> None:
    world = world_of(shared("g1"))
    world.node("a2", shared("h1"))
    for name in ("j1", "j2"):
        submit(world, name, gpus=1, gpu_milli=900)
    for gpu_id in ("g1", "h1"):
        run(world, world.state.work.tasks[world.state.gpus.covers[GpuId(gpu_id)]])
    run(world, share_of(world, "j1"), share_of(world, "j2"))
    world.status(share_of(world, "j1").id, "TASK_FINISHED")
    world.status(share_of(world, "j2").id, "TASK_FINISHED")
    for agent in ("a1", "a2"):
        rest(world, f"{agent} again", 0, agent=agent)
    assert set(closed_for(world, gpus=1, tasks=2)) == set(world.state.gpus.covers.values())


def test_young_share_that_waits_for_an_open_card_keeps_no_older_one_from_opening_its_own() -> None:
    world = world_of(shared("g1"))
    submit(world, "j1", **QUARTER)
    run(world, cover_task(world), share_of(world, "j1"))
    rest(world, "left", 0)
    submit(world, "large", gpus=2, tasks=2)  # so that what a1 has is seen
    world.feed(ev.KillRequested(JobId("large")))
    world.state.cluster.drop_offers()  # what is left of a1 is on its way
    old = {"gpus": 1, "gpu_milli": 250}
    submit(world, "old", **old)
    world.now += 5
    world.state.set_task(replace(share_of(world, "j1"), launched_at=world.now))
    for name in ("young", "younger"):  # a place is kept for the first of them
        submit(world, name, priority=5, **old)
    world.node("a2", shared("h1"))
    states = [world.job(name).state for name in ("young", "younger", "old")]
    assert states == [JobState.PENDING, JobState.PENDING, JobState.STARTING]
    assert share_of(world, "old").gpus == (GpuId("h1"),)


@pytest.mark.parametrize(("waiting", "closed", "said"), [(0, 1, Stage.GPUS), (1, 0, Stage.KEPT)])
def test_idle_card_stays_open_for_a_share_that_it_is_kept_for(waiting: int, closed: int, said: Stage) -> None:
    world = world_of(shared("g1"))
    submit(world, "j1", **QUARTER)
    run(world, cover_task(world), share_of(world, "j1"))
    submit(world, "busy", gpus=0, cpus=3)
    rest(world, "left", 0)
    run(world, share_of(world, "busy"))
    world.status(share_of(world, "j1").id, "TASK_FINISHED")
    world.offers(offer("idle", "a1", cpus=3, gpus=0))
    for _ in range(waiting):
        submit(world, "first", priority=5, cpus=4, **QUARTER)
        assert world.job("first").state is JobState.PENDING, "it waits for processors"
    assert len(closed_for(world, gpus=1)) == closed
    why = why_of(world.state, world.settings, world.now, world.job("waits"))
    assert [each.reason for each in why.funnel] == [said]


def test_closing_of_idle_cards_is_tried_for_few_kinds_of_jobs_a_match() -> None:
    for hopeless, closed in ((15, 1), (16, 0)):
        world = idle_world()
        for n in range(hopeless):
            submit(world, f"large{n}", gpus=1, mem_mib=10**6 + n)
        assert len(closed_for(world, gpus=1)) == closed
