"""Jobs that ask for shares of GPUs beside jobs that ask for whole ones: nothing starves, `why` says who has what."""

from dataclasses import replace
from typing import Any

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import GpuId, JobId
from mesos_gpu.model.jobs.job import Placement
from mesos_gpu.model.jobs.why import Why
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.shares.request import Isolation
from mesos_gpu.model.tasks.task import TaskState
from tests.doubles.builders import World, gpu, offer, spec

HALF = {"gpus": 1, "gpu_milli": 500}
TENTH = {"gpus": 1, "gpu_milli": 100}


def card(name: str, *usable: Ability) -> Gpu:
    return replace(
        gpu(name), sharing=Sharing(80_000, tuple((each, "") for each in usable or (Ability.SHIM,)))
    )


def world_of(*cards: Gpu, **settings: Any) -> World:
    world = World(Settings.of("executor", "monitor").changed(**settings))
    world.register()
    world.node("a1", *cards)
    return world


def submit(world: World, name: str, **fields: object) -> None:
    world.feed(ev.JobSubmitted(JobId(name), spec(name=name, **fields)))
    rest(world)


def rest(world: World) -> list[fx.Effect]:
    """Let launched tasks run, and offer what the agent has left."""
    tasks = [
        task for task in world.state.work.tasks.values() if not task.ended and (task.gpus or task.covers)
    ]
    for task in tasks:
        if task.state is TaskState.LAUNCHED:
            world.status(task.id, "TASK_RUNNING", agent=task.agent_id)
    whole = sum(len(task.gpus) for task in tasks if task.share is None)
    covered = sum(task.covers is not None for task in tasks)
    (node,) = world.state.cluster.nodes.values()
    world.report("a1", *node.gpus)
    world.serial += 1
    return world.offers(offer(f"r{world.serial}", "a1", gpus=len(node.gpus) - whole - covered, cpus=8))


def why(world: World, name: str) -> Why:
    return explain_job(View(world.state, world.settings, world.now), JobId(name))


def states(world: World, *names: str) -> list[str]:
    return [world.job(name).state.value for name in names]


def test_explanation_names_the_shares_that_a_whole_gpu_waits_for_and_their_end() -> None:
    world = world_of(card("g1"))
    submit(world, "short", timeout_s=60, **HALF)
    submit(world, "long", timeout_s=600, **TENTH)
    submit(world, "whole", gpus=1)
    answer = why(world, "whole")
    assert "lacks 1 GPU: g1 is used by short, long" in answer.summary
    assert answer.estimate is not None
    assert "job long has run" in answer.estimate.basis
    assert answer.can_ever_run


def test_explanation_names_the_dimension_in_which_a_card_is_full() -> None:
    world = world_of(card("g1"))
    submit(world, "memory", gpus=1, gpu_compute_pct=10, gpu_memory_mib=70_000)
    submit(world, "more", gpus=1, gpu_compute_pct=10, gpu_memory_mib=20_000)
    assert (
        "g1 is full by memory: 10000 MiB are free, and 20000 are asked for (it is shared by memory)"
        in why(world, "more").summary
    )
    submit(world, "compute", gpus=1, gpu_compute_pct=95, gpu_memory_mib=1_000)
    assert "g1 is full by compute: 90 % are free, and 95 % are asked for" in why(world, "compute").summary
    submit(world, "turns", gpus=1, gpu_compute_pct=100, gpu_memory_mib=1_000)
    assert (
        "100 % are asked for (a share of memory alone counts as all of the compute;"
        in why(world, "turns").summary
    )


def test_shares_of_memory_alone_have_room_as_the_operator_says() -> None:
    alone = {"gpus": 1, "gpu_compute_pct": 100, "gpu_memory_mib": 20_000}
    for overcommit, fit in ((1.0, 1), (2.0, 2)):
        world = world_of(card("g1"), gpu_compute_overcommit=overcommit)
        names = [f"j{n}" for n in range(3)]
        for name in names:
            submit(world, name, **alone)
        rest(world)
        assert states(world, *names) == ["running"] * fit + ["pending"] * (3 - fit)


def test_explanation_names_the_abilities_that_a_host_lacks_for_a_share() -> None:
    world = world_of(card("g1"))
    submit(world, "strict", isolation=Isolation.STRICT, **HALF)
    answer = why(world, "strict")
    assert "cannot enforce a share with isolation strict (dmem: not reported" in answer.summary
    assert not answer.can_ever_run


def test_explanation_names_the_user_of_a_card_kept_by_mps() -> None:
    world = world_of(card("g1", Ability.SHIM, Ability.MPS2))
    submit(world, "alices", user="alice", **TENTH)
    submit(world, "bobs", user="bob", **TENTH)
    assert states(world, "alices", "bobs") == ["running", "pending"]
    assert "g1 is user alice's alone, as long as it has MPS shares" in why(world, "bobs").summary


def test_share_takes_nothing_kept_for_a_whole_gpu_that_it_would_outlast() -> None:
    world = world_of(card("g1"))
    submit(world, "first", timeout_s=600, **HALF)
    submit(world, "whole", gpus=1)
    submit(world, "endless", **TENTH)
    submit(world, "longer", timeout_s=900, **TENTH)
    submit(world, "shorter", timeout_s=60, **TENTH)
    assert states(world, "first", "whole", "endless", "longer", "shorter") == [
        "running", "pending", "pending", "pending", "running",
    ]  # fmt: skip
    assert "keeps room for job whole" in why(world, "endless").summary
    for name in ("first", "shorter"):
        world.status(f"{name}.1", "TASK_FINISHED")
    cover = world.state.gpus.covers[GpuId("g1")]
    world.tick(1)
    world.status(cover, "TASK_KILLED")
    rest(world)
    assert states(world, "whole", "endless") == ["starting", "pending"]


def test_share_that_waits_has_its_part_kept_and_no_more() -> None:
    world = world_of(card("g1"))
    submit(world, "first", timeout_s=600, **HALF)
    submit(world, "waits", gpus=1, gpu_milli=800)
    for name in ("one", "two", "three"):
        submit(world, name, **TENTH)
    assert states(world, "waits", "one", "two", "three") == ["pending", "running", "running", "pending"]
    assert "keeps room for job waits" in why(world, "three").summary, "two tenths are to spare beside it"
    world.status("first.1", "TASK_FINISHED")
    rest(world)
    assert states(world, "waits", "three") == ["running", "pending"]


def test_shares_of_lower_priority_are_ended_for_a_whole_gpu_all_of_one_card() -> None:
    world = world_of(card("g1"), card("g2"))
    for name, size in (("a", 600), ("b", 600), ("c", 300)):
        submit(world, name, preemptible=True, gpus=1, gpu_milli=size)
    world.tick(100)
    placed = {task.id: task.gpus for task in world.state.work.tasks.values() if task.share}
    submit(world, "high", gpus=1, priority=10)
    world.tick(world.settings.queue.preempt_after_s + 1)
    world.tick(1)
    rest(world)
    evicted = {task.job_id for task in world.state.work.tasks.values() if task.preempted_for == "high"}
    assert evicted in ({"a"}, {"b"}), f"one share is on one card and two are on the other: {placed}"


def test_demand_of_late_counts_shares_in_two_dimensions() -> None:
    world = world_of(card("g1"), card("g2"), placement=Placement.FRAGMENTATION)
    for n in range(4):
        submit(world, f"m{n}", gpus=1, gpu_compute_pct=10, gpu_memory_mib=32_000)
        submit(world, f"c{n}", gpus=1, gpu_compute_pct=40, gpu_memory_mib=8_000)
    names = [f"{kind}{n}" for kind in "mc" for n in range(4)]
    assert states(world, *names) == ["running"] * 8, "eight jobs on two cards"
