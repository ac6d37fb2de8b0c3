"""Instances that users kill for good: each live one reduces the size of its app once, however often it is named."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.engine import events as ev
from mesos_gpu.model.apps.app import UnreachableStrategy
from mesos_gpu.model.jobs.job import JobState
from tests.doubles.builders import World, offer
from tests.unit.engine.apps.test_engine_apps import WEB, instances, serve, want

#: A request names some instances by their places, also twice, or one that ended long ago; then so many seconds pass.
REQUEST = st.tuples(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(0, 2))


def running(count: int) -> tuple[World, list[str]]:
    world = World()
    world.register()
    want(world, replace(WEB, instances=count))
    serve(world, 4)
    ids = [job.id for job in instances(world)]
    assert len(ids) == count
    return world, [*ids, *(["gone"] * (7 - count))]


def end(world: World, number: int, ids: list[str]) -> None:
    root = world.state.apps.catalog.root
    world.feed(ev.AppsChanged(f"kill{number}", root, force=True, kill={"/web": tuple(ids)}))


def wanted(world: World) -> int:
    (app,) = world.state.apps.catalog.root.all_apps()
    return app.instances


@settings(max_examples=60)
@given(st.integers(1, 7), st.lists(REQUEST, min_size=1, max_size=8))
def test_an_app_gets_smaller_by_the_distinct_live_instances_that_are_named(
    count: int, requests: list[tuple[list[int], int]]
) -> None:
    world, places = running(count)
    named: set[str] = set()
    for number, (chosen, pause_s) in enumerate(requests):
        ids = [places[each] for each in chosen]
        named.update(ids)
        end(world, number, ids)
        assert wanted(world) == count - len(named - {"gone"})
        serve(world, pause_s)
    serve(world, 5)
    assert {job.id for job in instances(world)} == set(places) - named - {"gone"}, "nobody else was ended"
    assert all(job.state is JobState.RUNNING for job in instances(world))


def test_kill_does_not_count_an_instance_that_is_being_replaced() -> None:
    world, (first, *_) = running(3)
    world.feed(ev.KillRequested(instances(world)[0].id))
    end(world, 0, [first])
    assert wanted(world) == 3
    serve(world, 5)
    assert len(instances(world)) == 3


def test_kill_ends_an_instance_that_was_given_up_and_does_not_count_it() -> None:
    world = World()
    world.register()
    want(world, replace(WEB, unreachable_strategy=UnreachableStrategy(5, 600)))
    serve(world, 4)
    world.tick(61)  # before that its agent counts as slow, as it was starting tasks
    cut_off = instances(world)[0]
    assert cut_off.task_id is not None
    world.status(cut_off.task_id, "TASK_UNREACHABLE")
    for _ in range(10):
        world.serial += 1
        world.offers(offer(f"s{world.serial}", cpus=100, mem=1e5))
        world.tick(1)
        for each in instances(world):
            if each.id != cut_off.id and each.task_id is not None:
                world.status(each.task_id, "TASK_RUNNING")
    assert len(instances(world)) == 3, "another one is in its place"
    end(world, 0, [cut_off.id, cut_off.id])
    assert wanted(world) == 2
    world.tick(1)
    assert world.job(cut_off.id).kill_requested
    others = [job for job in instances(world) if job.id != cut_off.id]
    assert [job.state for job in others] == [JobState.RUNNING] * 2
