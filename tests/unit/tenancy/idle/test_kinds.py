"""Idle GPUs of apps' instances and of shares; and what `why` says of idle GPUs."""

from dataclasses import replace

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.queue_why import queue_why
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.model.apps.app import App, GpuOptions, Group
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.tasks.event import EventKind
from mesos_gpu.model.tasks.idle import IdleState
from mesos_gpu.model.tenancy import Idle, IdlePolicy, QueueDocument, QueueSpec, Reclaim
from mesos_gpu.model.words import clock
from tests.doubles.builders import World, every, gpu, offer
from tests.unit.tenancy.idle.test_engine import PRESSURE, RULES, Host, Rig, document, ended, rigged, run

APP = App(
    "/web",
    cmd="serve",
    instances=1,
    cpus=0.1,
    mem_mib=32,
    gpus=1,
    port_definitions=(),
    gpu=GpuOptions(queue="ml"),
)


def serving(rules: Idle) -> tuple[Rig, str]:
    """An app with one instance that runs; its id."""
    rig = rigged(rules)
    rig.world.feed(ev.AppsChanged("d1", Group("/", (APP,))))
    rig.world.tick(3)
    rig.world.offers(offer("o9", "a1", cpus=7, gpus=2))
    (job_id,) = rig.world.state.apps.instances["/web"]
    (task,) = rig.world.state.work.round_of(rig.world.state.work.jobs[job_id])
    for state in ("TASK_STARTING", "TASK_RUNNING"):
        rig.world.status(task.id, state, agent=task.agent_id)
    rig.play(10, None)
    return rig, str(job_id)


def test_idle_instance_is_reported_only() -> None:
    rig, name = serving(RULES)
    effects = rig.play(1000)
    assert not every(effects, fx.GiveNotice)
    assert rig.state(name) is IdleState.SUSPECT
    assert rig.world.state.work.idlenesses[JobId(name)].idle_ms >= 1_000_000


def test_idle_instance_is_replaced_where_apps_are_not_spared() -> None:
    rig, name = serving(replace(RULES, apps=True))
    rig.play(110)
    assert rig.state(name) is IdleState.WARNED
    assert every(rig.play(100), fx.Kill)
    ended(rig, name)
    rig.world.tick(2)
    (another,) = rig.world.state.apps.instances["/web"]
    assert another != name
    assert rig.world.state.work.jobs[another].state is not JobState.KILLED
    assert rig.state(another) is IdleState.ACTIVE
    assert EventKind.IDLE_WARNING in rig.kinds()


def shared(name: str) -> Gpu:
    return replace(gpu(name), sharing=Sharing(81920, ((Ability.SHIM, ""),)))


def sharing() -> Rig:
    world = World()
    world.register()
    world.feed(ev.QueuesChanged(document(), 0))
    world.node("a1", shared("g1"))
    return Rig(world, [Host(world, "a1", ("g1",), card=shared)])


def test_idle_share_is_idle_whatever_others_do_on_its_card() -> None:
    rig = sharing()
    run(rig, "j1", gpu_milli=250)
    rig.world.offers(offer("o9", "a1", cpus=6, gpus=0))
    run(rig, "j2", gpu_milli=250)
    assert rig.world.state.work.round_of(rig.world.job("j1"))[0].gpus == ("g1",)
    rig.play(110, 0.0, j2=0.9)
    assert (rig.state("j1"), rig.state("j2")) == (IdleState.WARNED, IdleState.ACTIVE)
    killed = {each.task_id for each in every(rig.play(100, 0.0, j2=0.9), fx.Kill)}
    assert killed == {rig.world.state.work.round_of(rig.world.job("j1"))[0].id}
    ended(rig, "j1")
    assert rig.world.job("j1").state is JobState.KILLED
    assert rig.world.job("j2").state is JobState.RUNNING


def why(rig: Rig, name: str = "j1") -> str:
    return why_of(rig.world.state, rig.world.settings, rig.world.now, rig.world.job(name)).summary


def test_explanation_of_a_running_job_names_its_idle_time() -> None:
    rig = rigged(replace(RULES, max_keep_s=1000))
    run(rig)
    world = rig.world
    assert why(rig) == "it is running"
    rig.play(60)
    warns, ends = (clock(world.now + seconds, world.now) for seconds in (40, 140))
    assert f"nothing for 60 s; if they stay so it is warned at {warns}, and ends at {ends}" in why(rig)
    rig.play(60)
    warned, ends = (clock(world.now + seconds, world.now) for seconds in (-20, 80))
    assert why(rig) == (
        f"it is running; its GPUs have done nothing for 120 s; it was warned at {warned}, and ends at {ends} "
        "at the earliest"
    )
    rig.play(50)
    notice = rig.notice()
    assert notice is not None
    assert f"it was given notice at {clock(notice.at, world.now)}, and ends at" in why(rig)
    world.feed(ev.KeepAsked(JobId("j1"), 500, None, "ann"))
    until = clock(world.now + 500, world.now)
    assert why(rig) == f"it is running; kept by ann from being ended for idle GPUs until {until}"
    world.feed(ev.KeepWithdrawn(JobId("j1")))
    rig.play(210)
    assert rig.state() is IdleState.RETURNED
    assert "it is being ended for that since" in why(rig)
    ended(rig)
    assert why(rig).startswith("it was killed: its GPUs have done nothing for")


def test_explanation_names_idle_time_that_is_only_reported() -> None:
    rig = rigged(replace(RULES, policy=IdlePolicy.REPORT))
    run(rig)
    rig.play(1000)
    assert why(rig).endswith("its GPUs have done nothing for 1000 s; that is only reported")


def test_explanation_of_a_waiting_job_names_idle_gpus_that_may_be_returned() -> None:
    rig = rigged(PRESSURE)
    run(rig, gpus=2)
    rig.play(120)
    rig.world.submit("j2", queue="ml", gpus=1)
    at = clock(rig.world.now + 80, rig.world.now)
    words = f"1 job was warned for its idle GPUs, and may be ended for it from {at} on"
    assert why(rig, "j2").endswith(words)
    assert f"ends at {at} at the earliest if another job needs them" in why(rig)
    first = queue_why(rig.world.state, rig.world.settings, "ml", rig.world.now).first
    assert first is not None
    assert first.summary.endswith(words)


NOT_HIS = {
    "of another model": ({"gpu_model": ("H100",)}, QueueSpec(idle=PRESSURE)),
    "no GPU is asked for": ({"gpus": 0, "cpus": 10000}, QueueSpec(idle=PRESSURE)),
    "his queue takes from nobody": ({}, QueueSpec(idle=PRESSURE, reclaim=Reclaim.NEVER)),
    "it only is reported": ({}, QueueSpec(idle=replace(PRESSURE, policy=IdlePolicy.REPORT))),
    "a fence is between": ({"queue": "other"}, QueueSpec(idle=PRESSURE, fence=True)),
}


@pytest.mark.parametrize(("fields", "queue"), NOT_HIS.values(), ids=NOT_HIS)
def test_explanation_of_a_waiting_job_leaves_out_idle_gpus_it_cannot_use(
    fields: dict[str, object], queue: QueueSpec
) -> None:
    rig = rigged(PRESSURE)
    rig.world.feed(ev.QueuesChanged(QueueDocument(queues={"ml": queue, "other": QueueSpec()}), 1))
    run(rig, gpus=2)
    rig.play(120)
    rig.world.submit("j2", **{"queue": "ml", "gpus": 1, **fields})
    assert "idle GPUs" not in why(rig, "j2")
