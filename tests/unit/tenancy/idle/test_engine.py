"""Idle jobs in the engine: warning, notice, end, and withdrawal, and none of them while use is unknown."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.gpu import Gpu, Inventory
from mesos_gpu.model.nodes.gpu_use import TaskUse, Work
from mesos_gpu.model.saves import KeepRecord, SaveIdleness
from mesos_gpu.model.tasks.event import EventKind
from mesos_gpu.model.tasks.idle import IdleState
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tenancy import Idle, IdlePolicy, JobClass, QueueDocument, QueueSpec, Stop
from mesos_gpu.model.usage import SpanEnd
from mesos_gpu.wire.mesos import report
from tests.doubles.builders import World, every, gpu, offer, saved_of

RULES = Idle(warn_after_s=100, return_after_s=200, resume_s=30, start_grace_s=0, policy=IdlePolicy.ALWAYS)


@dataclass
class Host:
    """A host whose monitor counts what its tasks do. A report each ten seconds."""

    world: World
    agent: str
    gpus: tuple[str, ...]
    since: float = 0.0
    counts: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    card: Callable[[str], Gpu] = gpu

    def holders(self) -> list[tuple[TaskId, GpuId]]:
        tasks = map(self.world.state.work.tasks.__getitem__, self.world.state.work.live)
        return [
            (task.id, g) for task in tasks if task.agent_id == self.agent and task.job_id for g in task.gpus
        ]

    def report(self, share: float | None, **of_task: float | None) -> list[fx.Effect]:
        """Report the use of the last ten seconds: `share` of the time at work; None for unknown."""
        uses = []
        for task, card in self.holders():
            part = of_task.get(task.split(".")[0], share)
            seen, busy = self.counts.get((task, card), (0, 0))
            if part is not None:
                seen, busy = seen + 10_000, busy + round(10_000 * part)
            self.counts[task, card] = seen, busy
            uses.append(TaskUse(task, card, self.world.now, 1, 100, Work(self.since, seen, busy)))
        cards = tuple(map(self.card, self.gpus))
        data = report.encode(Inventory(cards, "simulated", task_uses=tuple(uses)))
        monitor = self.world.state.cluster.nodes[AgentId(self.agent)].monitor
        assert monitor is not None
        return self.world.status(monitor, "TASK_RUNNING", agent=self.agent, data=data)


@dataclass
class Rig:
    world: World
    hosts: list[Host]

    def play(self, seconds: float, share: float | None = 0.0, **of_task: float | None) -> list[fx.Effect]:
        """Time passes, and hosts report."""
        effects: list[fx.Effect] = []
        for _ in range(round(seconds / 10)):
            self.world.now += 10
            for host in self.hosts:
                effects += host.report(share, **of_task)
            effects += self.world.feed(ev.Tick())
        return effects

    def state(self, name: str = "j1") -> IdleState:
        known = self.world.state.work.idlenesses.get(self.world.job(name).id)
        return IdleState.ACTIVE if known is None else known.state

    def notice(self, name: str = "j1") -> Notice | None:
        return self.world.state.work.round_of(self.world.job(name))[0].notice

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.world.state.work.events]


def document(rules: Idle | None = RULES, notice_s: float = 20, **more: Any) -> QueueDocument:
    return replace(QueueDocument(queues={"ml": QueueSpec(idle=rules, notice_s=notice_s)}), **more)


def rigged(rules: Idle | None = RULES, agents: int = 1, cards: int = 2, **more: Any) -> Rig:
    world = World()
    world.register()
    world.feed(ev.QueuesChanged(document(rules, **more), 0))
    hosts = []
    for number in range(1, agents + 1):
        names = tuple(f"g{number}{index}" for index in range(cards))
        world.node(f"a{number}", *(gpu(name) for name in names))
        hosts.append(Host(world, f"a{number}", names))
    return Rig(world, hosts)


def run(rig: Rig, name: str = "j1", **fields: object) -> None:
    """A job that runs."""
    rig.world.submit(name, **{"queue": "ml", "gpus": 1, **fields})
    for task in rig.world.state.work.round_of(rig.world.job(name)):
        rig.world.status(task.id, "TASK_STARTING", agent=task.agent_id)
    for task in rig.world.state.work.round_of(rig.world.job(name)):
        rig.world.status(task.id, "TASK_RUNNING", agent=task.agent_id)
    assert rig.world.job(name).state is JobState.RUNNING
    for host in rig.hosts:
        host.report(None)
    rig.world.feed(ev.Tick())


def ended(rig: Rig, name: str = "j1", state: str = "TASK_KILLED", message: str = "") -> list[fx.Effect]:
    effects: list[fx.Effect] = []
    for task in rig.world.state.work.round_of(rig.world.job(name)):
        effects += rig.world.status(task.id, state, agent=task.agent_id, message=message)
    return effects


def test_idle_warned_told_ended_and_not_queued_again() -> None:
    rig = rigged()
    run(rig)
    rig.play(10)
    assert rig.state() is IdleState.SUSPECT
    effects = rig.play(90)
    assert rig.state() is IdleState.WARNED
    notice = rig.notice()
    assert notice is not None
    assert (notice.warning, notice.stands, notice.final) == (True, False, False)
    sent = every(effects, fx.GiveNotice)[0]
    assert sent.notice.warning
    assert sent.signal.value == "none"
    assert "mesos-gpu keep j1" in rig.world.job().message

    rig.play(60)
    assert rig.state() is IdleState.WARNED
    effects = rig.play(10)
    assert rig.state() is IdleState.NOTICE
    assert every(effects, fx.GiveNotice)
    assert not every(effects, fx.Kill)
    effects = rig.play(30)
    assert every(effects, fx.Kill)
    assert rig.state() is IdleState.RETURNED

    effects = ended(rig)
    job = rig.world.job()
    assert (job.state, job.attempts) == (JobState.KILLED, 0)
    assert job.message.startswith("its GPUs have done nothing for")
    assert every(effects, KeepRecord)[-1].record.reason is SpanEnd.IDLE
    assert rig.kinds() == [EventKind.IDLE_WARNING, EventKind.NOTICE, EventKind.END]


def test_idle_job_with_requeue_goes_back_to_its_place() -> None:
    rig = rigged(replace(RULES, requeue=True))
    run(rig)
    rig.play(200)
    ended(rig)
    job = rig.world.job()
    assert (job.state, job.attempts, job.infrastructure_failures) == (JobState.PENDING, 0, 0)


def test_idle_job_that_ends_in_its_notice_is_not_queued_again() -> None:
    rig = rigged()
    run(rig)
    rig.play(170)
    assert rig.state() is IdleState.NOTICE
    ended(rig, state="TASK_FAILED", message="Command exited with status 75")
    assert rig.world.job().state is JobState.KILLED


def test_idle_report_is_the_default_and_gives_no_warning() -> None:
    rig = rigged(replace(RULES, policy=IdlePolicy.REPORT))
    run(rig)
    effects = rig.play(1000)
    assert not every(effects, fx.GiveNotice)
    assert rig.state() is IdleState.SUSPECT
    assert rig.world.state.work.idlenesses[rig.world.job().id].idle_ms == 1_000_000
    assert QueueSpec().idle is None
    assert Idle().policy is IdlePolicy.REPORT


def test_idleness_is_not_kept_without_a_document_of_queues() -> None:
    world = World()
    world.register()
    world.node("a1", gpu("g10"))
    rig = Rig(world, [Host(world, "a1", ("g10",))])
    run(rig, queue="default")
    rig.play(1000)
    assert not world.state.work.idlenesses
    assert not world.state.gpus.gpu_work.counts


def test_busy_job_leaves_no_idleness_behind() -> None:
    rig = rigged()
    run(rig)
    effects = rig.play(500, 0.5)
    assert not rig.world.state.work.idlenesses
    assert not every(effects, SaveIdleness)


def test_idle_rules_of_a_class_come_before_those_of_the_queue() -> None:
    rig = rigged(None, agents=2, classes=(JobClass("notebook", idle=RULES),))
    run(rig, "j1", job_class="notebook")
    run(rig, "j2")
    rig.play(150)
    assert (rig.state("j1"), rig.state("j2")) == (IdleState.WARNED, IdleState.ACTIVE)


def test_idle_jobs_with_exempt_labels_and_instances_are_reported_only() -> None:
    rig = rigged(replace(RULES, exempt_labels=("purpose=demo",)), agents=2)
    run(rig, "j1", labels={"purpose": "demo"})
    run(rig, "j2", labels={"purpose": "test"})
    job = rig.world.job("j1")
    rig.play(150)
    assert (rig.state("j1"), rig.state("j2")) == (IdleState.SUSPECT, IdleState.WARNED)
    assert job.app_version is None


def test_script_that_runs_a_kernel_now_and_then_does_not_save_its_job() -> None:
    rig = rigged()
    run(rig)
    for _ in range(10):
        rig.play(50)
        rig.play(10, 0.07)  # more than idle, less than work
    assert rig.state() in (IdleState.NOTICE, IdleState.RETURNED)


def test_idle_warning_is_called_off_by_work() -> None:
    rig = rigged()
    run(rig)
    rig.play(120)
    effects = rig.play(30, 0.9)
    assert rig.state() is IdleState.ACTIVE
    notice = rig.notice()
    assert notice is not None
    assert (notice.warning, notice.recalled_at is None) == (False, False)
    assert every(effects, fx.GiveNotice)
    assert rig.kinds() == [EventKind.IDLE_WARNING, EventKind.IDLE_OVER]


def test_idle_notice_is_called_off_by_work() -> None:
    rig = rigged(notice_s=60)
    run(rig)
    rig.play(140)
    assert rig.state() is IdleState.NOTICE
    effects = rig.play(30, 0.9)
    assert not every(effects, fx.Kill)
    assert rig.state() is IdleState.ACTIVE
    assert rig.kinds()[-2:] == [EventKind.RECALL, EventKind.IDLE_OVER]
    rig.play(100, 0.9)
    assert rig.world.job().state is JobState.RUNNING


def test_idle_notice_ends_no_job_at_work_for_its_whole_time() -> None:
    rig = rigged(replace(RULES, resume_s=100))
    run(rig)
    rig.play(170)
    assert rig.state() is IdleState.NOTICE
    effects = rig.play(90, 0.9)
    assert not every(effects, fx.Kill)
    assert rig.state() is IdleState.NOTICE, "it is over, and the job is at work"
    effects += rig.play(10, 0.9)
    assert not every(effects, fx.Kill)
    assert (rig.state(), rig.world.job().state) == (IdleState.ACTIVE, JobState.RUNNING)
    assert rig.kinds()[-2:] == [EventKind.RECALL, EventKind.IDLE_OVER]


def test_idle_notice_is_put_off_by_work_at_its_end() -> None:
    rig = rigged(replace(RULES, resume_s=100))
    run(rig)
    rig.play(180)
    effects = rig.play(20, 0.9) + rig.play(10)
    assert not every(effects, fx.Kill)
    assert every(rig.play(10), fx.Kill)


def test_idle_notice_is_called_off_by_work_every_other_window() -> None:
    rig = rigged()
    run(rig)
    rig.play(180)
    effects = rig.play(20, 0.9)
    for _ in range(4):
        effects += rig.play(10) + rig.play(10, 0.9)
    assert not every(effects, fx.Kill)
    assert rig.state() is IdleState.WARNED
    assert rig.world.job().message.endswith("its GPUs are at work")
    rig.play(30)
    assert rig.state() is IdleState.NOTICE, "it idles again"


@pytest.mark.parametrize("at", [0, 50, 120, 170])
def test_idle_time_stands_and_ends_no_job_while_use_is_unknown(at: float) -> None:
    rig = rigged()
    run(rig)
    rig.play(at)
    before = rig.state()
    effects = rig.play(1000, None)
    assert not every(effects, fx.Kill)
    assert rig.state() is (IdleState.WARNED if before is IdleState.NOTICE else before)
    effects = rig.play(210)
    assert every(effects, fx.Kill)


def test_monitor_started_again_reports_nothing_of_the_time_before() -> None:
    rig = rigged()
    run(rig)
    rig.play(50)
    host = rig.hosts[0]
    rig.world.now += 1000
    host.since, host.counts = rig.world.now, {}
    rig.play(20)
    idle_ms = rig.world.state.work.idlenesses[rig.world.job().id].idle_ms
    assert idle_ms <= 70_000
    assert rig.state() is IdleState.SUSPECT


def test_monitor_of_an_earlier_release_reports_no_use_of_tasks() -> None:
    rig = rigged()
    run(rig)
    for _ in range(100):
        rig.world.now += 10
        rig.world.report("a1", gpu("g10"), gpu("g11"))
        rig.world.feed(ev.Tick())
    assert rig.state() is IdleState.ACTIVE


def test_monitor_speaks_of_its_own_tasks_only() -> None:
    rig = rigged(agents=2)
    run(rig)
    task = rig.world.state.work.round_of(rig.world.job())[0]
    other = next(host for host in rig.hosts if host.agent != task.agent_id)
    for number in range(30):
        rig.world.now += 10
        use = TaskUse(task.id, task.gpus[0], rig.world.now, work=Work(0.0, 10_000 * number, 0))
        data = report.encode(Inventory(tuple(map(gpu, other.gpus)), "simulated", task_uses=(use,)))
        monitor = rig.world.state.cluster.nodes[AgentId(other.agent)].monitor
        assert monitor is not None
        rig.world.status(monitor, "TASK_RUNNING", agent=other.agent, data=data)
        rig.world.feed(ev.Tick())
    assert rig.state() is IdleState.ACTIVE


def test_gang_is_idle_when_all_of_it_is() -> None:
    rig = rigged(agents=2, cards=1)
    run(rig, tasks=2)
    busy = rig.hosts[0]
    for _ in range(30):
        rig.world.now += 10
        busy.report(0.5)
        rig.hosts[1].report(0.0)
        rig.world.feed(ev.Tick())
    assert rig.state() is IdleState.ACTIVE
    effects = rig.play(100)
    assert rig.state() is IdleState.WARNED
    assert len({each.task_id for each in every(effects, fx.GiveNotice)}) == 2
    rig.play(100)
    assert rig.state() is IdleState.RETURNED
    ended(rig)
    assert rig.world.job().state is JobState.KILLED


def test_idle_time_does_not_count_in_the_first_time_of_a_job() -> None:
    rig = rigged(replace(RULES, start_grace_s=300))
    run(rig)
    rig.play(300)
    assert rig.state() is IdleState.ACTIVE
    rig.play(110)
    assert rig.state() is IdleState.WARNED


@pytest.mark.parametrize("at", [50, 120, 175])
def test_idleness_goes_on_where_it_was_after_a_restart(at: float) -> None:
    rig = rigged()
    run(rig)
    rig.play(at)
    before, state = rig.state(), rig.world.state
    rig.world.state = State.restored(rig.world.now, saved_of(state))
    rig.world.register()
    assert rig.state() is before
    effects = rig.play(260 - at)
    assert every(effects, fx.Kill)
    assert rig.kinds().count(EventKind.IDLE_WARNING) <= 2


def test_idleness_is_not_saved_at_each_window() -> None:
    rig = rigged(replace(RULES, warn_after_s=1000, return_after_s=2000))
    run(rig)
    effects = rig.play(900)
    assert len(every(effects, SaveIdleness)) <= 11


def test_idle_warning_is_called_off_by_a_document_that_only_reports() -> None:
    rig = rigged()
    run(rig)
    rig.play(120)
    rig.world.feed(ev.QueuesChanged(document(replace(RULES, policy=IdlePolicy.REPORT)), 1))
    rig.play(10)
    assert rig.state() is IdleState.SUSPECT
    assert rig.kinds()[-1] is EventKind.IDLE_OVER


def stop(rig: Rig, how: Stop) -> None:
    """The queue is stopped, or served again."""
    latest = rig.world.state.quota.queues
    queue = replace(latest.queues["ml"], stop=how)
    rig.world.feed(ev.QueuesChanged(replace(latest, queues={"ml": queue}), latest.version))


def test_idle_job_is_ended_by_another_notice_first() -> None:
    rig = rigged()
    run(rig)
    rig.play(120)
    stop(rig, Stop.DRAIN)
    rig.world.tick(1)
    rig.play(60)
    notice = rig.notice()
    assert notice is not None
    assert notice.reason.value == "drain"


PRESSURE = replace(RULES, policy=IdlePolicy.PRESSURE)


def test_idle_warning_comes_when_the_notice_of_a_drain_is_called_off() -> None:
    rig = rigged(notice_s=300)
    run(rig, notice_s=300)
    rig.play(90)
    stop(rig, Stop.DRAIN)
    rig.play(60)
    notice = rig.notice()
    assert notice is not None
    assert (notice.reason, notice.stands) == (NoticeReason.DRAIN, True)
    stop(rig, Stop.NONE)
    rig.play(10)
    notice = rig.notice()
    assert notice is not None
    assert (notice.reason, notice.warning) == (NoticeReason.IDLE, True), "nobody is ended without it"
    assert rig.kinds().count(EventKind.IDLE_WARNING) == 1


def test_gpus_that_work_again_do_not_hide_for_whom_a_job_makes_room() -> None:
    rig = rigged(notice_s=60)
    run(rig, gpus=2, preemptible=True, priority=-5)
    rig.play(120)
    assert rig.state() is IdleState.WARNED
    rig.world.submit("j2", queue="ml", gpus=2, priority=5)
    rig.play(30, 1.0)
    notice = rig.notice()
    assert notice is not None
    assert (rig.state(), notice.reason, notice.stands) == (IdleState.ACTIVE, NoticeReason.PREEMPTION, True)
    assert "it goes on" not in rig.world.job("j1").message
    rig.world.feed(ev.KillRequested(rig.world.job("j2").id))
    assert not every(rig.play(90, 1.0), fx.Kill), "it makes room for a job that is gone"
    assert rig.kinds()[-1] is EventKind.RECALL


def test_idle_pressure_ends_no_job_while_none_waits() -> None:
    rig = rigged(PRESSURE)
    run(rig)
    effects = rig.play(1000)
    assert rig.state() is IdleState.WARNED
    assert not every(effects, fx.Kill)


def test_idle_pressure_ends_a_job_whose_gpus_serve_another() -> None:
    rig = rigged(PRESSURE)
    run(rig, gpus=2)
    rig.play(300)
    rig.world.submit("j2", queue="ml", gpus=1)
    effects = rig.play(10)
    notice = rig.notice()
    assert notice is not None
    assert (rig.state(), notice.by, notice.stands) == (IdleState.NOTICE, "j2", True)
    assert notice.why.endswith("and job j2 waits for them")
    assert not every(effects, fx.Kill)
    assert every(rig.play(40), fx.Kill)
    ended(rig)
    assert rig.world.job("j1").state is JobState.KILLED
    rig.world.offers(offer("o9", "a1", cpus=7, gpus=2))
    assert rig.world.job("j2").state is JobState.STARTING


def test_idle_pressure_ends_no_job_whose_gpus_would_serve_none() -> None:
    rig = rigged(PRESSURE)
    run(rig)
    rig.play(300)
    rig.world.submit("j2", queue="ml", gpus=1, gpu_model=("H100",))
    rig.world.submit("j3", queue="ml", gpus=4)
    rig.play(100)
    assert rig.state() is IdleState.WARNED


def test_idle_pressure_ends_no_job_before_its_time() -> None:
    rig = rigged(PRESSURE)
    run(rig, gpus=2)
    rig.world.submit("j2", queue="ml", gpus=1)
    rig.play(160)
    assert rig.state() is IdleState.WARNED
    rig.play(20)
    assert rig.state() is IdleState.NOTICE


def test_idle_pressure_is_called_off_when_the_waiting_job_is_gone() -> None:
    rig = rigged(PRESSURE)
    run(rig, gpus=2)
    rig.play(300)
    rig.world.submit("j2", queue="ml", gpus=1)
    rig.play(10)
    assert rig.state() is IdleState.NOTICE
    rig.world.feed(ev.KillRequested(rig.world.job("j2").id))
    effects = rig.play(100)
    assert rig.state() is IdleState.WARNED
    assert not every(effects, fx.Kill)


def test_idle_pressure_spares_a_busy_and_an_unknown_job() -> None:
    for share in (0.5, None):
        rig = rigged(PRESSURE)
        run(rig, gpus=2)
        rig.play(300)
        rig.play(50, share)
        rig.world.submit("j2", queue="ml", gpus=1)
        rig.play(100, share)
        assert rig.world.job("j1").state is JobState.RUNNING
        notice = rig.notice()
        assert notice is None or not notice.stands


def test_idle_pressure_does_not_cross_a_fence() -> None:
    queues = {"ml": QueueSpec(idle=PRESSURE, fence=True), "other": QueueSpec()}
    rig = rigged(PRESSURE)
    rig.world.feed(ev.QueuesChanged(QueueDocument(queues=queues), 1))
    run(rig, gpus=2)
    rig.play(300)
    rig.world.submit("j2", queue="other", gpus=1)
    rig.play(100)
    assert rig.state() is IdleState.WARNED


def test_idle_job_ends_before_one_that_works() -> None:
    rig = rigged(PRESSURE, agents=2, cards=1)
    run(rig, "j1", preemptible=True, priority=-5)
    run(rig, "j2", priority=5)
    for _ in range(20):
        rig.play(10, 0.0, j1=0.9)
    rig.world.submit("j3", queue="ml", gpus=1)
    rig.play(20, 0.0, j1=0.9)
    assert rig.state("j2") is IdleState.NOTICE
    first = rig.notice("j1")
    assert first is None
