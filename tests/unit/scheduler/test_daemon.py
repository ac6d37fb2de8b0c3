"""The shell: saves before calls, answers after saves, and a stop that strands nobody."""

import base64
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from mesos_gpu.adapters.pymesos_driver import FatalError
from mesos_gpu.api.asking import job_kill, new_job, new_reset
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.effects import Effect
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.step import step
from mesos_gpu.errors import MesosGpuError, NotFound
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.saves import SaveCard, SaveJob, SaveTask
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.scheduler.__main__ import Sink
from mesos_gpu.scheduler.daemon import MAX_IN_BATCH, Daemon
from mesos_gpu.scheduler.figures import meter
from mesos_gpu.wire.mesos import report
from tests.conftest import wait_until
from tests.doubles.builders import gpu, offer, spec
from tests.doubles.fake_driver import FakeClock, FakeDriver, RecordingStore


class Rig:
    def __init__(self) -> None:
        self.store, self.driver, self.clock = RecordingStore(), FakeDriver(), FakeClock()
        self.daemon = Daemon(
            self.store,
            self.store.load(),
            self.driver,
            self.clock,
            Settings.of("run-executor", "run-monitor", default_user="nobody"),
        )

    def up(self) -> "Rig":
        self.daemon.start()
        self.daemon.put(ev.Registered("fw", "http://m"))
        return self


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig.up()
    rig.daemon.stop()


def test_daemon_saves_a_submitted_job_before_the_answer(rig: Rig) -> None:
    job = rig.daemon.request(new_job(spec(name="train"))).result(60)
    assert job.id.startswith("train-")
    assert any(isinstance(s, SaveJob) and s.job.id == job.id for batch in rig.store.batches for s in batch)


def test_daemon_saves_a_launch_before_it_is_sent(rig: Rig) -> None:
    seen: list[bool] = []

    def look(call: str) -> None:
        if call == "accept":
            saved = [s for batch in rig.store.batches for s in batch if isinstance(s, SaveTask)]
            seen.append(bool(saved))

    rig.driver.on_call = look
    rig.daemon.put(ev.OffersArrived((offer("o1"),)))
    rig.daemon.request(new_job(spec())).result(60)
    offers, infos = rig.driver.wait_for("accept")
    assert offers == ("o1",)
    assert seen == [True]
    assert infos[0]["executor"]["command"]["value"] == "run-executor"
    assert b'"user":"nobody"' in base64.b64decode(infos[0]["data"])


def test_daemon_takes_all_waiting_events_before_a_match(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, matches = Rig(), list[ev.Event]()

    def counted(state: State, event: ev.Event, now: float, settings: Settings) -> list[Effect]:
        matches.extend([event] if isinstance(event, ev.Match) else [])
        return step(state, event, now, settings)

    monkeypatch.setattr(meter, "step", counted)
    rig.daemon.put(ev.Registered("fw", "http://m"))
    rig.daemon.request(new_job(spec()))
    for number in range(4 * MAX_IN_BATCH):
        rig.daemon.put(ev.StatusArrived(Status(TaskId(f"gone{number}"), "TASK_FINISHED", AgentId("a1"))))
    rig.daemon.put(ev.OffersArrived((offer("o1"),)))
    rig.daemon.start()
    try:
        rig.driver.wait_for("accept")
        assert len(matches) == 1
    finally:
        rig.daemon.stop()


def test_daemon_listeners_hear_of_each_change(rig: Rig) -> None:
    heard: list[tuple[JobId, int]] = []
    unlisten = rig.daemon.listen(lambda job_id, version: heard.append((job_id, version)))
    job = rig.daemon.request(new_job(spec())).result(60)
    rig.daemon.request(job_kill(job.id)).result(60)
    assert [each for each in heard if each[0]] == [(job.id, 1), (job.id, 2)]
    log = [version for job_id, version in heard if not job_id]
    assert log == [event.number for event in rig.daemon.happened.after(0)], "and of each event"
    unlisten()
    rig.daemon.request(new_job(spec())).result(60)
    assert len(heard) == 4


def test_daemon_refuses_to_kill_an_unknown_job(rig: Rig) -> None:
    with pytest.raises(NotFound, match="no job nope"):
        rig.daemon.request(job_kill(JobId("nope"))).result(60)
    assert rig.daemon.read(lambda view: view.connected).result(60)


def test_daemon_reader_that_fails_disturbs_no_other(rig: Rig) -> None:
    future: Future[float] = rig.daemon.read(lambda view: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        future.result(60)
    assert rig.daemon.read(lambda view: len(view.jobs)).result(60) == 0


def test_daemon_caller_that_has_gone_disturbs_no_other(rig: Rig) -> None:
    gate = threading.Event()
    blocker = rig.daemon.read(lambda view: gate.wait(60))
    gone = rig.daemon.read(lambda view: 1)
    assert gone.cancel()
    gate.set()
    assert blocker.result(60)
    assert rig.daemon.read(lambda view: 2).result(60) == 2


def test_daemon_explains_that_agents_without_gpus_cannot_run_a_job(rig: Rig) -> None:
    rig.daemon.put(ev.OffersArrived((offer("o1", "plain"),)))
    job = rig.daemon.request(new_job(spec(gpus=4))).result(60)
    why = rig.daemon.read(lambda view: explain_job(view, job.id)).result(60)
    assert not why.can_ever_run
    assert why.nodes[0].reasons == ("has only 0 GPUs",)


def test_daemon_goes_on_after_a_call_that_fails(rig: Rig) -> None:
    rig.driver.down = True
    rig.daemon.put(ev.OffersArrived((offer("o1"),)))
    job = rig.daemon.request(new_job(spec())).result(60)
    assert rig.daemon.read(lambda view: view.jobs[job.id].state).result(60) is JobState.STARTING
    rig.driver.down = False
    rig.daemon.put(ev.StatusArrived(Status(TaskId(f"{job.id}.1"), "TASK_GONE", AgentId("a1"))))
    assert rig.daemon.read(lambda view: view.jobs[job.id].state).result(60) is JobState.PENDING


def test_daemon_refuses_one_request_and_does_the_others(rig: Rig) -> None:
    gate = threading.Event()
    rig.daemon.read(lambda view: gate.wait(60))
    refused = rig.daemon.request(ev.DrainRequested(Target.GPU, "g9", "why"))
    gone = rig.daemon.request(ev.DrainRequested(Target.GPU, "g9", "why"))
    assert gone.cancel()
    job = rig.daemon.request(new_job(spec()))
    gate.set()
    with pytest.raises(NotFound, match="no GPU g9"):
        refused.result(60)
    assert job.result(60).state is JobState.PENDING, "of the same batch"


def test_daemon_sends_a_reset_to_the_monitor_after_it_is_saved(rig: Rig) -> None:
    rig.daemon.put(ev.OffersArrived((offer("o1", gpus=1),)))
    (monitor,) = rig.daemon.read(lambda view: list(view.tasks)).result(60)
    data = report.encode(Inventory((gpu("g0"),), "simulated"))
    rig.daemon.put(ev.StatusArrived(Status(monitor, "TASK_RUNNING", AgentId("a1"), data=data)))
    request = rig.daemon.request(new_reset(GpuId("g0"), "stuck", by="ann")).result(60)
    agent, executor, message = rig.driver.wait_for("message")
    assert (agent, executor) == ("a1", monitor)
    assert json.loads(message) == {"reset": "g0", "request": request}
    assert any(isinstance(s, SaveCard) and s.card.reset for batch in rig.store.batches for s in batch)


def test_daemon_on_a_full_disk_ends_without_a_call() -> None:
    rig = Rig().up()
    rig.daemon.read(lambda view: None).result(60)
    rig.store.full = True
    future = rig.daemon.request(new_job(spec()))
    with pytest.raises(MesosGpuError, match="stopping"):
        future.result(60)
    assert rig.daemon.wait(60)
    assert isinstance(rig.daemon.failure, OSError)
    assert not any(call == "accept" for call, _ in rig.driver.calls)
    rig.daemon.stop()


def test_daemon_ends_at_a_fatal_driver_error() -> None:
    rig = Rig().up()
    rig.daemon.fail(MesosGpuError("Framework has been removed", remedy="start anew"))
    assert rig.daemon.wait(60)
    assert "removed" in str(rig.daemon.failure)
    rig.daemon.stop()


def test_daemon_forgets_a_removed_framework_before_it_ends(rig: Rig) -> None:
    job = rig.daemon.request(new_job(spec())).result(60)
    sink = Sink(rig.clock.now)
    sink.daemon = rig.daemon
    sink(FatalError("Framework has been removed"))
    assert rig.daemon.wait(60)
    assert "start it again" in str(rig.daemon.failure)
    saved = rig.store.load()
    assert saved.framework_id is None
    assert [each.id for each in saved.jobs] == [job.id]


def test_daemon_keeps_its_framework_when_failed_over(rig: Rig) -> None:
    rig.daemon.read(lambda view: None).result(60)
    sink = Sink(rig.clock.now)
    sink.daemon = rig.daemon
    sink(FatalError("Framework failed over"))
    assert rig.daemon.wait(60)
    assert rig.store.load().framework_id == "fw"


def test_daemon_answers_all_waiting_callers_at_a_stop() -> None:
    rig = Rig().up()
    rig.daemon.stop(teardown=True)
    assert ("stop", True) in rig.driver.calls
    with pytest.raises(MesosGpuError, match="stopping"):
        rig.daemon.request(new_job(spec())).result(60)


def test_offers_whose_answer_was_lost_are_given_back(rig: Rig) -> None:
    """The master would keep them for us, and nobody could use what they hold."""
    rig.daemon.request(new_job(spec())).result(60)
    rig.driver.down = True
    rig.daemon.put(ev.OffersArrived((offer("o1"),)))
    wait_until("it was tried", lambda: rig.daemon.read(lambda view: len(view.tasks)).result(60) == 1)
    rig.driver.down = False
    assert rig.driver.wait_for("decline") == (("o1",), 0.0)


def test_offers_of_an_earlier_subscription_are_void(rig: Rig) -> None:
    rig.daemon.request(new_job(spec())).result(60)
    rig.driver.down = True
    rig.daemon.put(ev.OffersArrived((offer("o1"),)))
    wait_until("it was tried", lambda: rig.daemon.read(lambda view: len(view.tasks)).result(60) == 1)
    rig.daemon.put(ev.Disconnected())
    rig.daemon.put(ev.Registered("fw", "http://m"))
    rig.daemon.read(lambda view: view.connected).result(60)
    rig.driver.down = False
    rig.daemon.read(lambda view: view.connected).result(60)
    assert not [call for call, _ in rig.driver.calls if call == "decline"]
