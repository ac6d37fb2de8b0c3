"""Shares of running tasks become larger and smaller: what is asked for, counted, confirmed, refused and lost."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.queue.forecast import Forecast
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import Conflict, NotFound
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.resize import Resize, ResizeAnswer
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import DEFAULT_POOL, Guarantee, Limits, QueueDocument, QueueSpec
from mesos_gpu.wire.mesos.resize import encode_answer
from tests.doubles.builders import World, every, gpu, only, saved_of, spec
from tests.doubles.problems import problems

CARD = replace(gpu("g0"), sharing=Sharing(80000, ((Ability.SHIM, ""),)))
MILLI = {"gpu_milli": 250}
QUARTER = Share(250, 20000, 20000, Method.SHIM_WINDOWS)


@pytest.fixture
def world() -> World:
    world = World()
    world.register()
    world.node("a1", CARD)
    return world


def running(world: World, name: str = "j1", share: Share = QUARTER, **fields: Any) -> list[Task]:
    """A job whose tasks run with that share of the card."""
    job = Job(
        JobId(name),
        spec(**{"name": name, "gpus": 1, **({} if "gpu_compute_pct" in fields else MILLI), **fields}),
        world.now,
        world.state.work.next_sequence,
    )
    count = job.spec.tasks
    ids = [TaskId(f"{name}.1" if count == 1 else f"{name}.1.{rank}") for rank in range(count)]
    world.state.set_job(replace(job, state=JobState.RUNNING, task_id=ids[0], launches=1))
    for rank, task_id in enumerate(ids):
        world.state.set_task(
            Task(
                task_id, AgentId("a1"), task_id, job.id, TaskState.RUNNING, world.now, gpus=(GpuId("g0"),),
                hostname="a1.example", launch=1 if count > 1 else 0, rank=rank, share=share,
            )
        )  # fmt: skip
    return [world.state.work.tasks[task_id] for task_id in ids]


def ask(world: World, name: str = "j1", *, restart: bool = False, **patch: Any) -> list[fx.Effect]:
    return world.feed(ev.ResizeRequested(JobId(name), patch, restart))


def answer(world: World, task: str = "j1.1", **fields: Any) -> list[fx.Effect]:
    """The executor answers the latest request of the task: as it was asked, unless `fields` say otherwise."""
    resize = world.state.work.tasks[TaskId(task)].resize
    assert resize is not None
    share = resize.before if fields.get("refused") else resize.share
    amounts = {
        "number": resize.number, "memory_mib": share.memory_mib, "memory_max_mib": share.memory_max_mib,
        "compute_milli": share.compute_milli,
    }  # fmt: skip
    return world.status(task, "TASK_RUNNING", data=encode_answer(ResizeAnswer(**{**amounts, **fields})))


def granted(world: World, task: str = "j1.1") -> tuple[int, int]:
    share = world.state.work.tasks[TaskId(task)].share
    assert share is not None
    return share.memory_mib, share.compute_milli


def counted(world: World, task: str = "j1.1") -> tuple[int, int]:
    share = world.state.gpus.sharers[GpuId("g0")][TaskId(task)]
    return share.memory_mib, share.compute_milli


def test_resize_counts_growth_at_once_and_grants_it_when_confirmed(world: World) -> None:
    running(world)
    effects = ask(world, gpu_memory_mib=30000, gpu_compute_pct=50)
    told = only(effects, fx.AskResize)
    assert (told.agent_id, told.executor_id, told.resize) == ("a1", "j1.1", Resize(1, 30000, 30000, 500))
    assert (granted(world), counted(world)) == ((20000, 250), (30000, 500))
    version = world.job().version
    answer(world)
    assert (granted(world), counted(world)) == ((30000, 500), (30000, 500))
    spec = world.job().spec
    assert (spec.gpu_memory_mib, spec.gpu_compute_pct) == (30000, 50), "it starts again with that share"
    assert world.job().message == "resized to 30000 MiB and 50 % of each GPU"
    assert world.job().version > version


def test_resize_to_a_part_of_a_gpu_is_of_its_memory_and_compute(world: World) -> None:
    running(world, gpu_compute_pct=25, gpu_memory_mib=20000)
    ask(world, gpu_milli=500, gpu_memory_mib=None, gpu_compute_pct=None)
    answer(world)
    assert granted(world) == (40000, 500)
    assert (world.job().spec.gpu_milli, world.job().spec.gpu_memory_mib) == (500, None)


def test_resize_to_a_part_of_several_gpus_is_refused(world: World) -> None:
    running(world, gpus=2, gpu_compute_pct=25, gpu_memory_mib=20000)
    with pytest.raises(Conflict, match="has parts of 2 GPUs, and a fraction is for one GPU only"):
        ask(world, gpu_milli=500, gpu_memory_mib=None, gpu_compute_pct=None)


def test_resize_frees_what_shrinks_only_when_confirmed(world: World) -> None:
    running(world)
    ask(world, gpu_memory_mib=5000, gpu_compute_pct=10)
    assert counted(world) == (20000, 250)
    answer(world)
    assert counted(world) == granted(world) == (5000, 100)


def test_resize_of_two_amounts_counts_the_larger_of_each(world: World) -> None:
    running(world)
    ask(world, gpu_memory_mib=30000, gpu_compute_pct=10)
    assert counted(world) == (30000, 250)
    answer(world, refused="it cannot")
    assert counted(world) == granted(world) == (20000, 250)


def test_resize_message_that_is_lost_is_sent_again_until_answered(world: World) -> None:
    running(world)
    first = only(ask(world, gpu_memory_mib=10000), fx.AskResize)
    again = every(world.tick(10), fx.AskResize)
    assert 3 <= len(again) <= 5
    assert {effect.resize for effect in again} == {first.resize}
    answer(world)
    assert every(world.tick(10), fx.AskResize) == []


def test_resize_is_not_sent_while_the_master_is_away(world: World) -> None:
    running(world)
    world.feed(ev.Disconnected())
    assert every([*ask(world, gpu_memory_mib=10000), *world.tick(5)], fx.AskResize) == []
    world.register()
    assert only(world.tick(1), fx.AskResize).resize.memory_mib == 10000


def test_answers_that_are_late_repeated_or_unreadable_change_nothing(world: World) -> None:
    running(world)
    ask(world, gpu_memory_mib=10000)
    answer(world, number=7)
    world.status("j1.1", "TASK_RUNNING", data=b'{"resized": {"number": "x"}}')
    assert granted(world) == (20000, 250)
    answer(world)
    ask(world, gpu_memory_mib=12000)
    answer(world, number=1, memory_mib=1)
    assert (granted(world), counted(world)) == ((10000, 250), (12000, 250))


def test_resize_after_a_lost_state_has_a_number_new_to_the_executor(
    world: World,
) -> None:
    running(world)
    ask(world, gpu_memory_mib=10000)
    again = only(answer(world, number=3, memory_mib=15000), fx.AskResize)
    assert again.resize == Resize(4, 10000, 10000, 250)
    assert granted(world) == (20000, 250)
    answer(world)
    assert granted(world) == (10000, 250)


def test_resize_answer_to_a_lost_state_is_not_taken_for_the_present_one(
    world: World,
) -> None:
    running(world)
    ask(world, gpu_memory_mib=10000)
    answer(world, memory_mib=15000, memory_max_mib=15000)
    assert (granted(world), world.job().spec.gpu_memory_mib) == ((20000, 250), None)
    assert only(world.tick(3), fx.AskResize).resize == Resize(2, 10000, 10000, 250)
    answer(world)
    assert (granted(world), world.job().spec.gpu_memory_mib) == ((10000, 250), 10000)


def test_resize_does_not_guess_a_fraction_of_an_unreported_card(world: World) -> None:
    running(world)
    world.report("a1", replace(CARD, sharing=None))
    with pytest.raises(Conflict, match="does not report how much memory"):
        ask(world, gpu_compute_pct=10)
    ask(world, gpu_memory_mib=10000)
    answer(world)
    ask(world, gpu_compute_pct=10)
    answer(world)
    assert granted(world) == (10000, 100)


def test_resize_grants_an_executor_no_more_than_its_card_counts(world: World) -> None:
    running(world)
    ask(world, gpu_memory_mib=10000)
    answer(world, memory_mib=79000, compute_milli=1000)
    assert counted(world) == (20000, 250)


def test_resize_that_is_refused_leaves_all_as_it_was_and_names_the_reason(world: World) -> None:
    running(world)
    ask(world, gpu_memory_mib=5000)
    answer(world, refused="it uses 7000 MiB", used_mib=7000)
    assert granted(world) == counted(world) == (20000, 250)
    resize = world.state.work.tasks[TaskId("j1.1")].resize
    assert resize is not None
    assert (resize.pending, resize.refused, resize.used_mib) == (False, "it uses 7000 MiB", 7000)
    assert world.job().message == "not resized: it uses 7000 MiB"
    assert world.job().spec.gpu_memory_mib is None
    assert only(ask(world, gpu_memory_mib=8000), fx.AskResize).resize.number == 2


CONFLICTS = [
    ({"gpu_memory_mib": 60001}, "g0 has 40000 MiB free, and 40001 MiB more are asked for"),
    ({"gpu_compute_pct": 76}, "g0 has 50 % of its compute free, and 51 % more are asked for"),
    (
        {"gpu_memory_mib": 9000, "gpu_memory_max_mib": 8000},
        "gpu_memory_max_mib 8000 is less than its share of 9000",
    ),
]


@pytest.mark.parametrize(("patch", "words"), CONFLICTS)
def test_share_grows_within_its_card_only(world: World, patch: dict[str, Any], words: str) -> None:
    running(world)
    running(world, "j2")
    with pytest.raises(Conflict, match=words):
        ask(world, **patch)
    assert world.state.work.tasks[TaskId("j1.1")].resize is None, "nothing is half done"
    ask(world, gpu_memory_mib=60000, gpu_compute_pct=75)
    with pytest.raises(Conflict, match="g0 has 0 MiB free"):
        ask(world, "j2", gpu_memory_mib=20001)


def with_queues(world: World, queues: dict[str, QueueSpec], **more: Any) -> None:
    """Let an operator write a tree of queues."""
    document = QueueDocument(queues=queues, **more)
    world.feed(ev.QueuesChanged(document, world.state.quota.queues.version))


def test_share_grows_into_nothing_that_another_queue_does_not_lend(world: World) -> None:
    owed, lent = {DEFAULT_POOL: Guarantee(500)}, {DEFAULT_POOL: 0}
    with_queues(world, {"dev": QueueSpec(guarantee_gpus=owed, lend_limit_gpus=lent), "lab": QueueSpec()})
    running(world, queue="lab", preemptible=True)
    with pytest.raises(
        Conflict, match=r"0\.75 GPUs are free, and of these queues keep 0\.5 .* lend_limit_gpus"
    ):
        ask(world, gpu_compute_pct=60)
    assert every(ask(world, gpu_compute_pct=50), fx.AskResize)


def test_share_grows_within_the_limit_of_its_user(world: World) -> None:
    with_queues(world, {"lab": QueueSpec()}, users={"ann": Limits(max_gpus=0.5)})
    running(world, queue="lab", user="ann")
    with pytest.raises(Conflict, match=r"user ann may hold 0\.5 GPUs, and holds 0\.25"):
        ask(world, gpu_compute_pct=60)
    assert every(ask(world, gpu_compute_pct=50), fx.AskResize)


def test_share_grows_within_the_limit_of_its_queue(world: World) -> None:
    world.settings = world.settings.changed(queue_limits={"lab": 1})
    running(world, queue="lab", tasks=2)
    running(world, "j2", queue="lab")
    with pytest.raises(Conflict, match=r"queue lab would hold 1\.05 GPUs, and its limit is 1"):
        ask(world, gpu_compute_pct=40)
    ask(world, gpu_compute_pct=35)


def test_share_of_a_card_that_is_too_full_may_shrink(world: World) -> None:
    running(world, share=replace(QUARTER, compute_milli=700))
    running(world, "j2", share=replace(QUARTER, compute_milli=700))  # while more compute could be promised
    ask(world, gpu_compute_pct=50)
    answer(world)
    assert granted(world) == (20000, 500)


def test_resize_that_cannot_be_is_refused_with_a_reason(world: World) -> None:
    with pytest.raises(NotFound):
        ask(world, "nobody", gpu_memory_mib=1)
    world.submit("whole", gpus=2)  # which waits
    with pytest.raises(Conflict, match="has no share"):
        ask(world, "whole", gpu_memory_mib=1)
    running(world)
    world.state.set_task(replace(world.state.work.tasks[TaskId("j1.1")], state=TaskState.STARTING))
    with pytest.raises(Conflict, match="only a running one"):
        ask(world, gpu_memory_mib=1)
    world.state.set_task(replace(world.state.work.tasks[TaskId("j1.1")], state=TaskState.RUNNING))
    running(world, "exact", gpu_compute_pct=25, gpu_memory_mib=20000)
    for gone in ("gpu_memory_mib", "gpu_compute_pct"):
        with pytest.raises(Conflict, match="would have no share"):
            world.feed(ev.ResizeRequested(JobId("exact"), {gone: None}))
    ask(world, gpu_memory_mib=10000)
    with pytest.raises(Conflict, match="is being resized for 0 s already"):
        ask(world, gpu_memory_mib=11000)
    answer(world)
    world.feed(ev.DrainRequested(Target.GPU, "g0", "a new fan", "ann"))
    with pytest.raises(Conflict, match="g0 is drained by ann: a new fan"):
        ask(world, gpu_memory_mib=11000)


@pytest.mark.parametrize(
    ("method", "patch", "words"),
    [
        (Method.SHIM_MPS2, {"gpu_compute_pct": 50}, "fixed when it starts"),
        (Method.MIG, {"gpu_memory_mib": 10000}, "its memory is that of a MIG instance"),
        (Method.MIG, {"gpu_compute_pct": 50}, "its compute is that of a MIG instance"),
    ],
)
def test_resize_that_needs_a_restart_is_refused_or_restarts_the_job(
    world: World, method: Method, patch: dict[str, Any], words: str
) -> None:
    running(world, share=replace(QUARTER, method=method))
    with pytest.raises(Conflict, match=words) as refused:
        ask(world, **patch)
    assert "mesos-gpu resize j1 --restart" in refused.value.remedy
    assert "ask for less" not in refused.value.remedy, "that would not help"
    effects = ask(world, restart=True, **patch)
    assert only(effects, fx.Kill).task_id == "j1.1"
    assert every(effects, fx.AskResize) == []
    job = world.job()
    assert {key: getattr(job.spec, key) for key in patch} == patch
    world.status("j1.1", "TASK_KILLED")
    job = world.job()
    assert (job.state in (JobState.PENDING, JobState.STARTING), job.attempts) == (True, 0)


def test_limit_counts_a_restarting_share_in_full_until_it_has_ended() -> None:
    """Found by chaos: the launch that was being ended counted as the size asked for."""
    world = World(Settings.of("executor", "monitor").changed(queue_limits={"default": 1}))
    world.register()
    world.node("a1", CARD)
    running(world, share=replace(QUARTER, compute_milli=700), gpu_compute_pct=70, gpu_memory_mib=20000)
    ask(world, restart=True, gpu_compute_pct=5)
    answer(world, refused="the limit is fixed here", restart=True)  # from now on it is being ended
    running(world, "j2", share=replace(QUARTER, compute_milli=200), gpu_compute_pct=20, gpu_memory_mib=20000)
    with pytest.raises(Conflict, match=r"queue default would hold 1\.1 GPUs"):
        ask(world, "j2", gpu_compute_pct=40)


@pytest.mark.parametrize("restart", [False, True])
def test_resize_restarts_no_job_for_what_no_card_has(world: World, restart: bool) -> None:
    running(world)
    with pytest.raises(Conflict, match="no GPU has 80001 MiB for a share; the largest has 80000") as refused:
        ask(world, restart=restart, gpu_memory_mib=80001)
    assert refused.value.remedy == "ask for less"
    assert world.state.work.tasks[TaskId("j1.1")].evicted == ""
    running(world, "j2", share=replace(QUARTER, memory_mib=10000))
    assert only(ask(world, restart=True, gpu_memory_mib=75000), fx.Kill).task_id == "j1.1"


def test_memory_of_an_mps_share_changes_while_it_runs(world: World) -> None:
    running(world, share=replace(QUARTER, method=Method.SHIM_MPS2))
    assert only(ask(world, gpu_memory_mib=10000), fx.AskResize).resize.memory_mib == 10000


def test_resize_that_an_executor_cannot_do_may_restart_its_job(world: World) -> None:
    running(world)
    ask(world, restart=True, gpu_memory_mib=10000)
    effects = answer(world, refused="the limit is fixed here", restart=True)
    assert only(effects, fx.Kill).task_id == "j1.1"
    assert world.job().spec.gpu_memory_mib == 10000


def test_gang_is_resized_as_a_whole_or_not_at_all(world: World) -> None:
    running(world, tasks=2)
    assert len(every(ask(world, gpu_memory_mib=10000), fx.AskResize)) == 2
    answer(world, "j1.1.0")
    assert world.job().spec.gpu_memory_mib is None, "one of two has answered"
    back = only(answer(world, "j1.1.1", refused="it uses 15000 MiB", used_mib=15000), fx.AskResize)
    assert (back.task_id, back.resize) == ("j1.1.0", Resize(2, 20000, 20000, 250))
    assert (granted(world, "j1.1.0")[0], counted(world, "j1.1.0")[0]) == (10000, 20000)
    answer(world, "j1.1.0")
    assert granted(world, "j1.1.0") == granted(world, "j1.1.1") == (20000, 250)
    assert world.job().spec.gpu_memory_mib is None
    assert world.job().message == "not resized: it uses 15000 MiB"
    ask(world, gpu_memory_mib=16000)
    answer(world, "j1.1.1")
    answer(world, "j1.1.0")
    assert world.job().spec.gpu_memory_mib == 16000


def test_card_counts_all_tasks_of_a_gang_that_grows(world: World) -> None:
    running(world, tasks=2)
    with pytest.raises(Conflict, match="g0 has 40000 MiB free, and 40002 MiB more") as refused:
        ask(world, gpu_memory_mib=40001)
    assert refused.value.remedy.startswith("ask for less, or let it start again")
    ask(world, gpu_memory_mib=40000)


def test_resize_under_way_outlives_the_scheduler(world: World) -> None:
    running(world)
    ask(world, gpu_memory_mib=30000)
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()
    assert counted(world) == (30000, 250)
    assert only(world.tick(3), fx.AskResize).resize == Resize(1, 30000, 30000, 250)
    answer(world)
    assert granted(world) == (30000, 250)


def test_resized_task_that_ends_frees_both_sizes(world: World) -> None:
    running(world)
    ask(world, gpu_memory_mib=30000)
    world.status("j1.1", "TASK_FINISHED")
    assert world.state.gpus.sharers == {}
    assert every(world.tick(5), fx.AskResize) == []


def test_resize_answer_of_a_launch_given_up_changes_no_ended_job(
    world: World,
) -> None:
    """Found by chaos: an agent came back and reported the resize of a job that was killed meanwhile."""
    running(world)
    ask(world, gpu_memory_mib=30000)
    world.status("j1.1", "TASK_UNREACHABLE")
    world.tick(world.settings.mesos.unreachable_timeout_s + 2)
    world.feed(ev.KillRequested(JobId("j1")))
    ended = world.job("j1")
    assert ended.state is JobState.KILLED
    answer(world)
    assert (world.job("j1"), granted(world)) == (ended, (30000, 250))


def test_growth_counts_in_the_limit_of_a_queue_before_it_is_confirmed() -> None:
    world = World(Settings.of("executor", "monitor").changed(queue_limits={"default": 1}))
    world.register()
    world.node("a1", CARD)
    running(world, gpu_compute_pct=25, gpu_memory_mib=20000)
    running(world, "j2", gpu_compute_pct=25, gpu_memory_mib=20000)
    ask(world, gpu_compute_pct=50)
    submitted = world.submit("j3", gpus=1, gpu_compute_pct=30, gpu_memory_mib=1000)
    assert submitted.state is JobState.PENDING
    with pytest.raises(Conflict, match=r"queue default would hold 1\.05 GPUs"):
        ask(world, "j2", gpu_compute_pct=55)
    answer(world, refused="no")
    world.feed(ev.KillRequested(JobId("j3")))  # else its part is kept
    ask(world, "j2", gpu_compute_pct=55)


def test_card_is_whole_for_a_waiting_job_when_a_growing_share_ends() -> None:
    world = World()
    world.register()
    world.node("a1", CARD)
    running(world, timeout_s=100.0)
    world.submit("whole", gpus=1)
    before = Forecast(world.state, world.settings, world.now)
    before.before(JobId("whole"))
    ask(world, gpu_compute_pct=50)
    now = Forecast(world.state, world.settings, world.now)
    now.before(JobId("whole"))
    assert now.estimate(world.job("whole")).at == before.estimate(world.job("whole")).at is not None


def withdraw(world: World, name: str = "j1") -> list[fx.Effect]:
    return world.feed(ev.ResizeWithdrawn(JobId(name)))


def test_resize_is_withdrawn_and_both_sizes_count_until_its_host_says_what_it_has(world: World) -> None:
    running(world)
    ask(world, gpu_memory_mib=30000, gpu_compute_pct=10)
    asked = only(withdraw(world), fx.AskResize)
    assert asked.resize == Resize(2, 20000, 20000, 250)
    assert (granted(world), counted(world)) == ((20000, 250), (30000, 250))
    assert withdraw(world) == [], "once is enough"
    answer(world, number=1, memory_mib=30000, compute_milli=100)
    assert (granted(world), counted(world)) == ((20000, 250), (30000, 250)), "of the first request, and late"
    assert {effect.resize for effect in every(world.tick(10), fx.AskResize)} == {asked.resize}
    answer(world)
    assert granted(world) == counted(world) == (20000, 250)
    assert (world.job().message, world.job().spec.gpu_memory_mib) == ("its resize is withdrawn", None)
    assert withdraw(world) == [], "its first answer may have been lost"
    assert only(ask(world, gpu_memory_mib=10000), fx.AskResize).resize.number == 3


def test_resize_withdrawal_is_refused_for_a_job_that_is_not_resized(world: World) -> None:
    with pytest.raises(NotFound):
        withdraw(world)
    running(world)
    with pytest.raises(Conflict, match="is not being resized"):
        withdraw(world)
    ask(world, gpu_memory_mib=30000)
    answer(world)
    with pytest.raises(Conflict, match="is not being resized"):
        withdraw(world)


def test_withdrawn_resize_stays_where_it_is_in_use_already(world: World) -> None:
    running(world)
    ask(world, gpu_memory_mib=30000)
    withdraw(world)
    answer(world, refused="it uses 25000 MiB", used_mib=25000, memory_mib=30000, memory_max_mib=30000)
    assert granted(world) == counted(world) == (30000, 250)
    assert world.job().spec.gpu_memory_mib == 30000
    assert world.job().message.endswith("it cannot be undone: it uses 25000 MiB")


def test_withdrawn_resize_of_a_gang_goes_back_for_tasks_already_resized(world: World) -> None:
    running(world, tasks=3)
    ask(world, gpu_memory_mib=10000)
    answer(world, "j1.1.0")
    answer(world, "j1.1.1", refused="it uses 15000 MiB")
    asked = {effect.task_id: effect.resize for effect in every(withdraw(world), fx.AskResize)}
    assert asked == {name: Resize(2, 20000, 20000, 250) for name in ("j1.1.0", "j1.1.2")}
    assert [granted(world, f"j1.1.{rank}")[0] for rank in range(3)] == [10000, 20000, 20000]
    answer(world, "j1.1.2")
    answer(world, "j1.1.0")
    assert {granted(world, f"j1.1.{rank}") for rank in range(3)} == {(20000, 250)}
    assert (world.job().message, world.job().spec.gpu_memory_mib) == ("its resize is withdrawn", None)


def test_withdrawn_resize_takes_back_nothing_that_another_job_has(world: World) -> None:
    """Found by chaos: one task of a gang had shrunk, and another job had what it gave back."""
    running(world, tasks=2)
    ask(world, gpu_memory_mib=1000)
    answer(world, "j1.1.0")
    before = 80000 - 1000 - world.state.gpus.sharers[GpuId("g0")][TaskId("j1.1.1")].memory_mib
    running(world, "j2", share=replace(QUARTER, memory_mib=before, memory_max_mib=before))
    with pytest.raises(Conflict, match=r"cannot be withdrawn any more: g0 has 0 MiB free"):
        world.feed(ev.ResizeWithdrawn(JobId("j1")))
    answer(world, "j1.1.1", refused="it uses all of it")
    assert counted(world, "j1.1.0")[0] == 1000
    assert not problems(world.state)


def test_resize_of_a_gang_that_one_task_refuses_is_not_reported_done(world: World) -> None:
    running(world, tasks=2)
    ask(world, gpu_memory_mib=30000)
    answer(world, "j1.1.0", refused="no room")
    withdraw(world)
    answer(world, "j1.1.1", refused="it uses 25000 MiB", memory_mib=30000, memory_max_mib=30000)
    assert [granted(world, f"j1.1.{rank}")[0] for rank in range(2)] == [20000, 30000]
    assert world.job().spec.gpu_memory_mib is None
    assert world.job().message.startswith("its resize is only partly withdrawn")


def test_withdrawn_resize_outlives_the_scheduler(world: World) -> None:
    running(world)
    ask(world, gpu_memory_mib=30000)
    withdraw(world)
    world.state = State.restored(world.now, saved_of(world.state))
    world.register()
    assert counted(world) == (30000, 250)
    assert only(world.tick(3), fx.AskResize).resize == Resize(2, 20000, 20000, 250)


def test_resize_without_an_answer_is_repeated_ever_more_rarely_for_ever(world: World) -> None:
    running(world)
    ask(world, gpu_memory_mib=10000)
    assert 20 < len(every(world.tick(600), fx.AskResize)) < 60
    assert len(every(world.tick(60), fx.AskResize)) == 2


def test_share_does_not_grow_into_what_is_kept_for_a_job_that_waits() -> None:
    world = World(Settings.of("executor", "monitor").changed(queue_limits={"lab": 1}))
    world.register()
    world.node("a1", CARD)
    running(
        world, "stays", share=replace(QUARTER, compute_milli=100), gpu_compute_pct=10, gpu_memory_mib=20000
    )
    running(world, "ends", share=replace(QUARTER, memory_mib=40000, memory_max_mib=40000), timeout_s=60.0)
    world.status("cover", "TASK_RUNNING")
    waits = world.submit("waits", gpus=1, gpu_memory_mib=50000, gpu_compute_pct=50)
    assert waits.state is JobState.PENDING
    words = "job waits waits, and g0 has 10000 MiB free beside its share, and 15000 MiB more are asked for"
    with pytest.raises(Conflict, match=words) as refused:
        ask(world, "stays", gpu_memory_mib=35000)
    assert "until waits has started" in refused.value.remedy
    with pytest.raises(Conflict, match="g0 has 40 % of its compute free beside its share, and 45 % more"):
        ask(world, "stays", gpu_compute_pct=55)
    ask(world, "stays", gpu_memory_mib=30000, gpu_compute_pct=50)
    ask(world, "ends", gpu_memory_mib=45000)  # it is what the other waits for


def test_share_does_not_grow_into_what_its_queue_keeps_for_a_job_that_waits() -> None:
    world = World(Settings.of("executor", "monitor").changed(queue_limits={"default": 1}))
    world.register()
    world.node("a1", CARD)
    small = replace(QUARTER, memory_mib=8000, memory_max_mib=8000)
    running(world, "stays", share=small)
    running(world, "ends", share=small, timeout_s=60.0)
    waits = world.submit("waits", gpus=1, gpu_milli=700)
    assert waits.state is JobState.PENDING
    with pytest.raises(
        Conflict, match=r"waits waits, and queue default has 0\.05 GPUs beside it, and 0\.15 more"
    ):
        ask(world, "stays", gpu_compute_pct=40)
    ask(world, "stays", gpu_compute_pct=30)
