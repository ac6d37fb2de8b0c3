"""Cards that are shared: a task of ours holds each in Mesos, for all that have shares of it."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.effects import LaunchTask
from mesos_gpu.engine.gpus.covers import card_of
from mesos_gpu.engine.journal import STATES
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import Conflict
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.job import JobState, OnGpuFailure, Placement
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.offer import Scalar
from mesos_gpu.model.saves import ForgetTask, SaveTask
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.scheduler.launches import to_task_info
from mesos_gpu.wire.mesos.assignment import decode_assignment
from mesos_gpu.wire.mesos.labels import listed_from_json
from tests.doubles.builders import World, every, gpu, offer, only, spec

QUARTER = {"gpus": 1, "gpu_milli": 250}
PLAIN = '{"role":"*"}'


def shared(name: str, memory_mib: int = 81920) -> Gpu:
    """A card whose host can enforce shares."""
    return replace(gpu(name), sharing=Sharing(memory_mib, ((Ability.SHIM, ""),)))


def world_of(*cards: Gpu, **settings: Any) -> World:
    world = World(Settings.of("executor", "monitor").changed(**settings))
    world.register()
    world.node("a1", *cards)
    return world


def rest(world: World, name: str, gpus: float, *, agent: str = "a1", kind: str = "{}") -> list[fx.Effect]:
    """Offer what an agent has left."""
    made = offer(name, agent, cpus=6, gpus=gpus)
    scalars = tuple(replace(scalar, kind=kind) for scalar in made.resources)
    return world.offers(replace(made, resources=scalars))


def submit(world: World, name: str, **fields: object) -> list[fx.Effect]:
    return world.feed(ev.JobSubmitted(JobId(name), spec(**fields)))


def covers_in(effects: list[fx.Effect]) -> list[LaunchTask]:
    items = [item for launch in every(effects, fx.Launch) for item in launch.tasks]
    return [item for item in items if item.task.covers is not None]


def run(world: World, *tasks: Task) -> None:
    for task in tasks:
        world.status(task.id, "TASK_RUNNING", agent=task.agent_id)


def amounts(scalars: tuple[Scalar, ...]) -> dict[str, float]:
    return {scalar.name: scalar.amount for scalar in scalars}


def cover_task(world: World, name: str = "g1") -> Task:
    return world.state.work.tasks[world.state.gpus.covers[GpuId(name)]]


def test_first_share_of_a_card_opens_it_in_the_same_accept() -> None:
    world = world_of(shared("g1"))
    effects = submit(world, "j1", **QUARTER)
    cover, fraction = only(effects, fx.Launch).tasks
    assert (cover.task.covers, cover.spec, cover.task.job_id) == ("g1", None, None)
    assert amounts(cover.resources) == {"cpus": 0.001, "mem": 1, "gpus": 1}
    assert amounts(cover.executor_resources) == {"cpus": 0.01, "mem": 32}
    assert "gpus" not in amounts(fraction.resources)
    assert (fraction.task.gpus, fraction.task.share.memory_mib) == (("g1",), 20480)  # type: ignore[union-attr]
    saved = [save.task.id for save in every(effects, SaveTask)]
    assert saved[:2] == [fraction.task.id, cover.task.id] or saved[:2] == [cover.task.id, fraction.task.id]
    assert world.state.gpus.holders == {}
    assert world.state.gpus.sharers == {"g1": {fraction.task.id: fraction.task.share}}
    assert card_of(cover.task.id) == "g1"


def test_shares_of_an_open_card_need_no_gpu_of_mesos_and_four_quarters_fill_it() -> None:
    world = world_of(shared("g1"))
    world.submit("j1", **QUARTER)
    for n in range(2, 6):
        effects = rest(world, f"o{n}", 0)
        effects += submit(world, f"j{n}", **QUARTER)
        assert covers_in(effects) == []
    assert [world.job(f"j{n}").state for n in range(1, 6)] == [JobState.STARTING] * 4 + [JobState.PENDING]


def test_second_card_joins_the_keeper_with_the_same_executor_info() -> None:
    world = world_of(shared("g1"), shared("g2"))
    world.submit("j1", **{**QUARTER, "gpu_milli": 900})
    first = cover_task(world)
    run(world, first)
    effects = rest(world, "o2", 1) + submit(world, "j2", **{**QUARTER, "gpu_milli": 900})
    (second,) = covers_in(effects)
    assert second.executor_resources == ()
    assert (second.task.executor_id, second.task.keeper) == (first.executor_id, first.keeper)
    assert json.loads(first.keeper)["executor_id"] == {"value": first.executor_id}


def test_cards_of_one_task_have_one_keeper() -> None:
    world = world_of(shared("g1"), shared("g2"))
    effects = submit(world, "j1", gpus=2, gpu_compute_pct=30, gpu_memory_mib=1024)
    first, second = covers_in(effects)
    assert bool(first.executor_resources) != bool(second.executor_resources)
    assert first.task.keeper == second.task.keeper
    assert {first.task.covers, second.task.covers} == {"g1", "g2"}


def test_memory_is_never_promised_twice() -> None:
    """KAI #416: 24 shares of 2,000 MiB on a card of 46,068; Volcano #3616: three of 12 GiB on one of 24 GiB."""
    for memory_mib, size_mib, fit in ((46068, 2000, 23), (24576, 12288, 2)):
        world = world_of(shared("g1", memory_mib))
        for n in range(24):
            world.submit(f"j{n}", gpus=1, gpu_compute_pct=1, gpu_memory_mib=size_mib)
            world.offers(offer(f"o{n}", cpus=20))
        assert len(world.state.gpus.sharers[GpuId("g1")]) == fit


def test_open_card_without_shares_stays_for_a_while_and_then_goes_back() -> None:
    world = world_of(shared("g1"))
    world.submit("j1", **QUARTER)
    cover = cover_task(world)
    run(world, cover, world.state.work.tasks[TaskId("j1.1")])
    world.status("j1.1", "TASK_FINISHED")
    assert every(world.tick(55), fx.Kill) == []
    assert only(world.tick(6), fx.Kill).task_id == cover.id
    assert every(world.tick(8), fx.Kill) == []
    assert only(world.tick(5), fx.Kill).task_id == cover.id, "it is repeated"
    effects = world.status(cover.id, "TASK_KILLED")
    assert only(effects, ForgetTask).task_id == cover.id
    assert world.state.gpus.covers == {}


def test_job_that_waits_for_a_whole_gpu_has_an_idle_card_closed_at_once() -> None:
    world = world_of(shared("g1"))
    world.submit("j1", **QUARTER)
    cover = cover_task(world)
    run(world, cover, world.state.work.tasks[TaskId("j1.1")])
    world.submit("whole", gpus=1)
    rest(world, "o2", 0)
    assert every(world.tick(5), fx.Kill) == [], "a share runs there"
    effects = world.status("j1.1", "TASK_FINISHED") + world.tick(1)
    assert only(effects, fx.Kill).task_id == cover.id
    world.submit("more", **QUARTER)
    assert world.job("more").state is JobState.PENDING, "it is being closed"
    world.status(cover.id, "TASK_KILLED")
    rest(world, "o3", 1)
    assert world.job("whole").state is JobState.STARTING
    assert world.state.gpus.holders == {"g1": "whole.1"}


def test_card_without_its_keeper_takes_no_shares_until_covered_again() -> None:
    world = world_of(shared("g1"))
    world.submit("j1", **QUARTER)
    cover = cover_task(world)
    run(world, cover, world.state.work.tasks[TaskId("j1.1")])
    world.status(cover.id, "TASK_FAILED", reason="REASON_EXECUTOR_TERMINATED")
    assert world.job("j1").state is JobState.RUNNING
    world.tick(1)
    assert list(world.state.gpus.uncovered) == ["g1"]
    world.submit("j2", **QUARTER)
    rest(world, "o2", 0)
    assert world.job("j2").state is JobState.PENDING
    (again,) = covers_in(rest(world, "o3", 1))
    assert again.task.covers == "g1"
    assert again.task.executor_id != cover.executor_id
    rest(world, "o4", 0)
    assert world.job("j2").state is JobState.STARTING, "a card that is covered takes shares"
    world.tick(1)
    assert world.state.gpus.uncovered == {}


def test_operator_has_the_shares_of_an_uncovered_card_start_elsewhere() -> None:
    world = world_of(shared("g1"))
    for n in (1, 2):
        submit(world, f"j{n}", **QUARTER)
        rest(world, f"o{n}", 0)
    run(world, cover_task(world), *(world.state.work.tasks[TaskId(f"j{n}.1")] for n in (1, 2)))
    world.status(cover_task(world).id, "TASK_FAILED", reason="REASON_EXECUTOR_TERMINATED")
    world.feed(ev.DrainRequested(Target.GPU, "g1", "uncovered", "ann", 1.0))
    assert every(world.tick(0.5), fx.Kill) == []
    assert {kill.task_id for kill in every(world.tick(1), fx.Kill)} == {"j1.1", "j2.1"}
    for n in (1, 2):
        world.status(f"j{n}.1", "TASK_KILLED")
    assert world.state.gpus.sharers == {}
    assert covers_in(rest(world, "o3", 1)) == [], "nobody has a share of it"
    world.node("a2", shared("h1"))
    world.tick(3)
    for n in (1, 2):
        rest(world, f"p{n}", 1, agent="a2")
    jobs = [world.job(f"j{n}") for n in (1, 2)]
    assert [(job.state, job.attempts, job.launches) for job in jobs] == [(JobState.STARTING, 0, 2)] * 2
    assert set(world.state.gpus.sharers) == {"h1"}
    world.feed(ev.UndrainRequested(Target.GPU, "g1"))
    world.report("a1", shared("g1"))
    world.submit("whole", gpus=1, constraints=(Constraint("hostname", Operator.CLUSTER, "a1.example"),))
    rest(world, "o4", 1)
    assert world.job("whole").state is JobState.STARTING


def test_offers_are_asked_for_while_a_card_is_uncovered() -> None:
    world = world_of(shared("g1"))
    world.submit("j1", **QUARTER)
    cover = cover_task(world)
    run(world, cover, world.state.work.tasks[TaskId("j1.1")])
    world.tick(30)
    assert world.state.mesos.suppressed
    world.status(cover.id, "TASK_FAILED", reason="REASON_EXECUTOR_TERMINATED")
    assert not world.state.mesos.suppressed


def test_keeper_that_does_not_start_is_tried_ever_more_rarely_and_opens_nothing() -> None:
    world = world_of(shared("g1"), shared("g2"))
    world.submit("j1", **{**QUARTER, "gpu_milli": 900})
    tries = 0
    for n in range(100):
        for task_id in list(world.state.gpus.covers.values()):
            tries += 1
            world.status(task_id, "TASK_FAILED", reason="REASON_EXECUTOR_TERMINATED")
        world.tick(0.5)
        rest(world, f"o{n}", 2)
    assert 5 < tries < 15
    world.report("a1", shared("g1"), shared("g2"))
    world.submit("j2", **{**QUARTER, "gpu_milli": 900})
    assert world.job("j2").state is JobState.PENDING
    world.submit("whole", gpus=1)
    assert world.job("whole").state is JobState.STARTING, "whole cards are none of its business"


def test_gpu_memory_that_an_agent_offers_is_taken_as_far_as_it_goes() -> None:
    world = world_of(shared("g1"))
    world.state.cluster.drop_offers()
    world.offers(offer("o2", gpus=1, gpu_mem=30000))
    world.submit("j1", **QUARTER)
    world.offers(offer("o3", gpu_mem=9520))
    launch = only(submit(world, "j2", **QUARTER), fx.Launch)
    assert amounts(launch.tasks[0].resources)["gpu_mem"] == 9520


def test_broken_card_ends_each_of_its_shares_as_its_job_wants() -> None:
    world = world_of(shared("g1"), shared("g2"))
    for n, how in enumerate(OnGpuFailure, 1):
        world.submit(f"j{n}", on_gpu_failure=how, **QUARTER)
        world.offers(offer(f"o{n}", gpus=1))
    tasks = list(world.state.gpus.sharers[GpuId("g1")])
    run(world, *(world.state.work.tasks[task_id] for task_id in tasks))
    effects = world.report("a1", replace(shared("g1"), health=Health.SICK, reason="XID 79"), shared("g2"))
    killed = {effect.task_id for effect in every(effects, fx.Kill)}
    assert killed == {
        TaskId(f"j{n}.1") for n, how in enumerate(OnGpuFailure, 1) if how is OnGpuFailure.RESTART
    }
    told = [n for n, how in enumerate(OnGpuFailure, 1) if how is OnGpuFailure.NOTIFY]
    assert ["XID 79" in world.job(f"j{n}").message for n in told] == [True]


def test_drain_deadline_ends_all_shares_and_a_reset_names_all_tenants() -> None:
    world = world_of(shared("g1"))
    for n in (1, 2):
        world.submit(f"j{n}", **QUARTER)
        world.offers(offer(f"o{n}", gpus=0))
    run(world, *(world.state.work.tasks[TaskId(f"j{n}.1")] for n in (1, 2)), cover_task(world))
    with pytest.raises(Conflict, match=r"(?s)g1 is held by j1, j2.*until all of them have ended"):
        world.feed(ev.ResetRequested(GpuId("g1"), "r1", "why"))
    world.feed(ev.DrainRequested(Target.GPU, "g1", "why", deadline_s=1))
    assert {effect.task_id for effect in every(world.tick(2), fx.Kill)} == {"j1.1", "j2.1"}
    for n in (1, 2):
        world.status(f"j{n}.1", "TASK_KILLED")
    assert {effect.task_id for effect in every(world.tick(1), fx.Kill)} == {cover_task(world).id}, (
        "no use to wait"
    )


def test_unreachable_cover_is_there_when_its_agent_is_back() -> None:
    world = world_of(shared("g1"))
    world.submit("j1", **QUARTER)
    cover = cover_task(world)
    run(world, cover, world.state.work.tasks[TaskId("j1.1")])
    for task_id in (cover.id, "j1.1"):
        world.status(task_id, "TASK_UNREACHABLE", uuid=None)
    world.tick(200)
    assert world.state.work.tasks[TaskId("j1.1")].state is TaskState.ABANDONED
    assert cover_task(world).state is TaskState.UNREACHABLE
    world.submit("j2", **QUARTER)
    rest(world, "o2", 1)
    assert world.job("j2").state is JobState.PENDING
    world.report("a1", shared("g1"))
    assert world.job("j2").state is JobState.PENDING
    world.status(cover.id, "TASK_RUNNING")
    assert world.job("j2").state is JobState.STARTING


def test_cover_that_the_state_does_not_know_is_taken_up_by_its_id() -> None:
    world = world_of(shared("g1"), shared("g2"))
    world.submit("j1", **QUARTER)
    effects = world.status("gpu-cover.7.1.g2", "TASK_RUNNING")
    assert every(effects, fx.Kill) == []
    assert cover_task(world, "g2").id == "gpu-cover.7.1.g2"
    assert only(world.status("gpu-cover.7.2.g1", "TASK_RUNNING"), fx.Kill).task_id == "gpu-cover.7.2.g1"
    assert only(world.tick(62), fx.Kill).task_id == "gpu-cover.7.1.g2", "nobody shares it"


def test_job_of_whole_gpus_has_no_cover_or_share() -> None:
    world = world_of(shared("g1"), role="gpu")
    launch = only(submit(world, "j1", gpus=1), fx.Launch)
    assert len(launch.tasks) == 1
    assert (launch.reserve, launch.unreserve) == ((), ())
    assert (world.state.gpus.covers, world.state.gpus.sharers, world.state.gpus.idle) == ({}, {}, {})


def test_share_waits_a_moment_for_the_offer_of_an_open_card_before_another_is_opened() -> None:
    world = world_of(shared("g1"))
    world.submit("j1", **QUARTER)
    world.node("a2", shared("g2"))
    world.submit("j2", **QUARTER)
    assert world.job("j2").state is JobState.PENDING
    rest(world, "o2", 0)
    assert world.state.work.tasks[TaskId("j2.1")].gpus == ("g1",)
    world.submit("j3", **QUARTER)
    assert world.job("j3").state is JobState.PENDING
    world.tick(3)
    assert world.state.work.tasks[TaskId("j3.1")].gpus == ("g2",), "no longer than that"


def test_share_that_is_to_be_apart_waits_for_no_open_card() -> None:
    world = world_of(shared("g1"))
    world.submit("j1", **QUARTER)
    world.node("a2", shared("g2"))
    world.submit("j2", placement=Placement.SPREAD, **QUARTER)
    assert world.state.work.tasks[TaskId("j2.1")].gpus == ("g2",)


def info_of(world: World, item: LaunchTask) -> dict[str, Any]:
    info = to_task_info(item, world.settings)
    info["labels"] = {label["key"]: label["value"] for label in info["labels"]["labels"]}
    return info


def test_task_info_of_a_share_and_of_its_cover() -> None:
    world = world_of(shared("g1"))
    item = spec(labels={"mesos_gpu.share": "1", "team": "vision"}, **QUARTER)
    cover, fraction = only(world.feed(ev.JobSubmitted(JobId("j1"), item)), fx.Launch).tasks
    info = info_of(world, cover)
    assert (info["name"], info["labels"]) == (
        "shared-g1",
        {"mesos_gpu.role": "cover", "mesos_gpu.gpu": "g1"},
    )
    assert info["executor"] == json.loads(cover.task.keeper)
    assert {each["name"]: each["scalar"]["value"] for each in info["executor"]["resources"]} == {
        "cpus": 0.01,
        "mem": 32,
    }
    info = info_of(world, fraction)
    assert info["labels"]["mesos_gpu.gpu"] == "g1"
    assert info["labels"]["mesos_gpu.share"] == "0.25"
    assert info["labels"]["mesos_gpu.memory_mib"] == "20480"
    assert "memory: cooperative" in info["labels"]["mesos_gpu.guarantee"]
    assert info["labels"]["team"] == "vision"
    assigned = decode_assignment(base64.b64decode(info["data"]))
    assert (assigned.gpus, assigned.share) == (("g1",), fraction.task.share)


def test_keeper_executor_info_survives_a_start_with_other_settings() -> None:
    world = world_of(shared("g1"), shared("g2"))
    world.submit("j1", **{**QUARTER, "gpu_milli": 900})
    run(world, cover_task(world))
    world.settings = world.settings.changed(keeper_command="another", executor_env={"K": "v"})
    effects = rest(world, "o2", 1) + submit(world, "j2", **{**QUARTER, "gpu_milli": 900})
    (second,) = covers_in(effects)
    assert info_of(world, second)["executor"] == json.loads(cover_task(world).keeper)


def test_state_without_shares_takes_them_up_by_labels_and_covers_by_ids() -> None:
    world = world_of(shared("g1"))
    cover, fraction = only(submit(world, "j1", user="ann", **QUARTER), fx.Launch).tasks
    tasks = [
        {"id": item.task.id, "slave_id": "a1", "state": "TASK_RUNNING", "name": "n",
         "labels": to_task_info(item, world.settings)["labels"]["labels"], "resources": {"cpus": 1.0, "mem": 128.0}}
        for item in (cover, fraction)
    ]  # fmt: skip
    listed = listed_from_json(
        tasks, [{"id": "a1", "hostname": "a1.example", "pid": "slave(1)@10.0.0.1:5051"}]
    )
    later = world_of(shared("g1"), shared("g2"))
    later.feed(ev.TasksListed(tuple(listed)))
    assert later.state.gpus.covers == {"g1": cover.task.id}
    assert later.state.gpus.sharers == {"g1": {fraction.task.id: fraction.task.share}}
    later.feed(ev.UnknownAdopted(fraction.task.id))
    job = later.job("j1")
    share = later.state.work.tasks[fraction.task.id].share
    assert share is not None
    assert (job.state, job.spec.gpu_milli, share.compute_milli, share.memory_mib) == (
        JobState.RUNNING,
        250,
        250,
        20480,
    )
    later.submit("j2", gpus=1)
    assert later.state.gpus.holders == {"g2": "j2.1"}


def test_journal_from_before_shares_is_read() -> None:
    later = json.loads(STATES.encode(State(1.5)))
    for name in ("sharers", "covers", "idle", "uncovered", "gone_covers", "keeper_failures", "keepers"):
        del later[name]
    assert STATES.decode(json.dumps(later).encode()) == State(1.5)


def test_job_of_higher_priority_ends_all_shares_of_a_card_and_then_has_it_whole() -> None:
    world = world_of(shared("g1"))
    for n in (1, 2):
        world.submit(f"j{n}", preemptible=True, **QUARTER)
        rest(world, f"o{n}", 0)
    cover = cover_task(world)
    run(world, cover, *(world.state.work.tasks[TaskId(f"j{n}.1")] for n in (1, 2)))
    world.submit("whole", gpus=1, priority=5)
    rest(world, "o3", 0)
    world.report("a1", shared("g1"))
    killed = {effect.task_id for effect in every(world.tick(5), fx.Kill)}
    assert killed == {"j1.1", "j2.1"}
    effects = world.status("j1.1", "TASK_KILLED")
    assert every(effects + world.tick(0.5), fx.Kill) == [], "the other share is still there"
    effects = world.status("j2.1", "TASK_KILLED")
    assert [effect.task_id for effect in every(effects + world.tick(0.5), fx.Kill)] == [cover.id]
    world.status(cover.id, "TASK_KILLED")
    rest(world, "o4", 1)
    assert world.state.gpus.holders == {"g1": "whole.1"}
    assert world.job("j1").state is JobState.PENDING


def test_share_of_a_waiting_job_may_end_one_of_lower_priority_and_no_other() -> None:
    world = world_of(shared("g1"))
    for n, milli in ((1, 250), (2, 500), (3, 250)):
        world.submit(f"j{n}", gpus=1, gpu_milli=milli, preemptible=True)
        rest(world, f"o{n}", 0)
    run(world, cover_task(world), *(world.state.work.tasks[TaskId(f"j{n}.1")] for n in (1, 2, 3)))
    world.submit("urgent", gpus=1, gpu_milli=500, priority=5)
    rest(world, "o4", 0)
    world.report("a1", shared("g1"))
    assert [effect.task_id for effect in every(world.tick(5), fx.Kill)] == ["j2.1"]


@pytest.mark.parametrize("state", ["TASK_FAILED", "TASK_GONE"])
def test_cover_end_reported_by_the_master_is_enough_and_its_keeper_stays(state: str) -> None:
    """Found by chaos: a share was placed on a card whose cover had ended, by an answer to reconciliation."""
    world = world_of(shared("g1"))
    world.settings = world.settings.changed(sealed=True)
    world.submit("j1", **QUARTER)
    cover = cover_task(world)
    assert cover.sealed
    update = Status(cover.id, state, AgentId("a1"), "REASON_RECONCILIATION", "SOURCE_MASTER")
    effects = world.feed(ev.StatusArrived(update))
    assert every(effects, fx.Shutdown) == [], "it may hold other cards"
    assert world.state.gpus.covers == {}


def test_keeper_that_served_until_its_card_was_closed_has_not_failed() -> None:
    world = world_of(shared("g1"))
    for n in range(5):
        world.submit(f"j{n}", **QUARTER)
        rest(world, f"o{n}", 1)
        run(world, cover_task(world))
        world.status(cover_task(world).id, "TASK_FAILED", reason="REASON_EXECUTOR_TERMINATED")
        world.tick(0.3)
        world.report("a1", shared("g1"))
        rest(world, f"p{n}", 1)
        run(world, cover_task(world), world.state.work.tasks[TaskId(f"j{n}.1")])
        world.status(f"j{n}.1", "TASK_FINISHED")
        world.tick(61)
        world.status(cover_task(world).id, "TASK_KILLED")
        world.report("a1", shared("g1"))
    assert world.state.gpus.keeper_failures == {}


def test_card_given_back_returns_the_offers_of_its_agent_too() -> None:
    world = world_of(shared("g1"))
    world.submit("j1", **QUARTER)
    rest(world, "o2", 0)
    effects = world.status(cover_task(world).id, "TASK_FAILED", reason="REASON_EXECUTOR_TERMINATED")
    given_back = only(effects, fx.Decline)
    assert (given_back.offer_ids, given_back.refuse_s) == (("o2",), 0.0)
    assert world.state.cluster.offers == {}
