"""While nothing can be saved: who looks is shown what is saved, and nobody is told what may never be true."""

import threading
from collections.abc import Iterable, Iterator

import pytest

from mesos_gpu.adapters.replicated.log import NotLeader
from mesos_gpu.api.asking import job_kill, new_job
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.errors import MesosGpuError, NoRoom
from mesos_gpu.model.access.document import AccessDocument, Binding
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.saves import Save
from mesos_gpu.scheduler import daemon as daemons
from mesos_gpu.scheduler.daemon import Daemon
from tests.conftest import wait_until
from tests.doubles.builders import offer, spec
from tests.doubles.fake_driver import FakeClock, FakeDriver, RecordingStore

ADMIN = AccessDocument(bindings=(Binding(("ann",), (), ("admin",)),))


class Away(RecordingStore):
    """Refuses as ZooKeeper does that does not answer, and says in the end that another leads, or keeps all."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses = False
        self.refused = threading.Event()
        self.deposed = False

    def save(self, batch: Iterable[Save]) -> None:
        batch = list(batch)
        if self.deposed:
            raise NotLeader("another leads")
        if self.refuses:
            self.refused.set()
            raise NoRoom("ZooKeeper is away", remedy="bring it back")
        super().save(batch)

    def confirm(self) -> None:
        if self.deposed:
            raise NotLeader("another leads")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Away:
    monkeypatch.setattr(daemons, "NO_ROOM_S", 0.05)
    return Away()


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def daemon(store: Away, driver: FakeDriver) -> Iterator[Daemon]:
    made = Daemon(store, store.load(), driver, FakeClock(), Settings.of("e", "m", default_user="nobody"))
    made.start()
    made.put(ev.Registered("fw", "http://m"))
    wait_until("it is connected", lambda: made.read(lambda view: view.connected).result(60))
    yield made
    made.stop()


def job_names(daemon: Daemon) -> list[str]:
    return daemon.read(lambda view: [job.spec.name for job in view.jobs.values()]).result(60)


def refuse(store: Away, daemon: Daemon) -> None:
    """From now on nothing is kept; a job that was submitted then is decided, and not kept."""
    store.refuses = True
    with pytest.raises(NoRoom, match="kept in memory"):
        daemon.request(new_job(spec(name="unsaved"))).result(60)


def test_unsaved_job_is_not_shown_until_it_is_saved(store: Away, daemon: Daemon) -> None:
    daemon.request(new_job(spec(name="saved"))).result(60)
    refuse(store, daemon)
    assert job_names(daemon) == ["saved"]
    store.refuses = False
    wait_until("it is kept", lambda: job_names(daemon) == ["saved", "unsaved"])


def test_unsaved_jobs_are_not_shown_by_a_leader_that_is_deposed(store: Away, daemon: Daemon) -> None:
    daemon.request(new_job(spec(name="saved"))).result(60)
    refuse(store, daemon)
    shown = job_names(daemon)
    store.deposed = True
    assert daemon.wait(60)
    assert isinstance(daemon.failure, NotLeader)
    assert shown == [job.spec.name for job in store.load().jobs]


def test_unsaved_launch_is_neither_shown_nor_sent(store: Away, daemon: Daemon, driver: FakeDriver) -> None:
    job = daemon.request(new_job(spec(name="saved"))).result(60)
    store.refuses = True
    daemon.put(ev.OffersArrived((offer("o1"),)))
    assert store.refused.wait(60)
    assert daemon.read(lambda view: view.jobs[job.id].state).result(60) is JobState.PENDING
    assert not daemon.read(lambda view: len(view.tasks)).result(60)
    assert "accept" not in [name for name, _ in driver.calls]
    store.refuses = False
    driver.wait_for("accept")
    assert daemon.read(lambda view: view.jobs[job.id].state).result(60) is JobState.STARTING


def test_unsaved_state_does_not_hide_the_connection(store: Away, daemon: Daemon) -> None:
    refuse(store, daemon)
    seen = daemon.read(
        lambda view: (view.connected, view.master_url, view.framework_id, bool(view.unsaved))
    ).result(60)
    assert seen == (True, "http://m", "fw", True)


def test_unsaved_change_answers_a_conflict_only_when_saved(store: Away, daemon: Daemon) -> None:
    """A conflict in an answer tells the caller that the other change is saved."""
    gate = threading.Event()
    daemon.read(lambda view: gate.wait(60))
    first, second = daemon.request(ev.AccessChanged(ADMIN, 0)), daemon.request(ev.AccessChanged(ADMIN, 0))
    store.refuses = True
    gate.set()
    for each in (first, second):
        with pytest.raises(NoRoom):
            each.result(60)
    assert daemon.read(lambda view: len(view.access_versions)).result(60) == 0
    store.refuses = False
    wait_until("it is kept", lambda: daemon.read(lambda view: len(view.access_versions)).result(60) == 1)


def test_unsaved_request_of_a_deposed_leader_fails_with_a_remedy(store: Away, daemon: Daemon) -> None:
    store.deposed = True
    with pytest.raises(MesosGpuError) as told:
        daemon.request(new_job(spec(name="unsaved"))).result(60)
    assert "is unknown" in told.value.what
    assert "check" in told.value.remedy
    assert daemon.wait(60)


def test_deposed_leader_does_not_answer_with_a_refusal_that_was_not_saved(
    store: Away, daemon: Daemon
) -> None:
    """A request that changes no state is not written, so no write is refused."""
    store.deposed = True
    with pytest.raises(MesosGpuError, match="is unknown"):
        daemon.request(job_kill(JobId("elsewhere"))).result(60)
    assert daemon.wait(60)
    assert isinstance(daemon.failure, NotLeader)
