"""Access documents and tokens as all threads read them: saved first, then in force, then answered."""

from collections.abc import Iterable, Iterator

import pytest

from mesos_gpu.engine.events import AccessChanged, TokenCreated, TokenRevoked
from mesos_gpu.engine.settings import Settings
from mesos_gpu.errors import Conflict, NoRoom, NotFound
from mesos_gpu.model.access.document import AccessDocument, Binding
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.saves import ForgetToken, Save, SaveAccess, SaveToken
from mesos_gpu.scheduler.daemon import Daemon
from mesos_gpu.scheduler.snapshots import USE_S, Uses
from tests.conftest import wait_until
from tests.doubles.fake_driver import FakeClock, FakeDriver, RecordingStore

ADMIN = AccessDocument(bindings=(Binding(("ann",), (), ("admin",)),))
TOKEN = Token("a1", "ann", "5a17", "d", 0.0, 0.0)


class Watched(RecordingStore):
    """Notes what any thread reads while something is being saved."""

    def __init__(self) -> None:
        super().__init__()
        self.daemon: Daemon | None = None
        self.seen: list[tuple[int, list[str]]] = []
        self.full = False

    def save(self, batch: Iterable[Save]) -> None:
        batch = list(batch)
        if self.full:
            raise NoRoom("the disk is full", remedy="make room")
        if self.daemon and any(isinstance(each, SaveAccess | SaveToken | ForgetToken) for each in batch):
            self.seen.append((self.daemon.access.version, list(self.daemon.tokens)))
        super().save(batch)


def made(store: RecordingStore) -> Daemon:
    return Daemon(store, store.load(), FakeDriver(), FakeClock(), Settings.of("e", "m"))


@pytest.fixture
def store() -> Watched:
    return Watched()


@pytest.fixture
def daemon(store: Watched) -> Iterator[Daemon]:
    store.daemon = daemon = made(store)
    daemon.start()
    yield daemon
    daemon.stop()


def test_daemon_access_change_holds_when_saved_and_before_the_answer(daemon: Daemon, store: Watched) -> None:
    assert daemon.access.version == 0
    assert daemon.request(AccessChanged(ADMIN, 0)).result(60).version == 1
    assert (daemon.access.version, daemon.access.bindings) == (1, ADMIN.bindings)
    assert daemon.request(TokenCreated(TOKEN, 60.0)).result(60).id == "a1"
    assert list(daemon.tokens) == ["a1"]
    daemon.request(TokenRevoked("a1")).result(60)
    assert not daemon.tokens
    assert store.seen == [(0, []), (1, []), (1, ["a1"])]


def test_daemon_access_refusal_changes_no_document(daemon: Daemon) -> None:
    with pytest.raises(Conflict):
        daemon.request(AccessChanged(ADMIN, 7)).result(60)
    with pytest.raises(NotFound):
        daemon.request(TokenRevoked("a1")).result(60)
    assert daemon.access.version == 0


def test_daemon_access_document_is_one_object_while_unchanged(daemon: Daemon) -> None:
    daemon.request(AccessChanged(ADMIN, 0)).result(60)
    before = daemon.access
    daemon.request(TokenCreated(TOKEN, 60.0)).result(60)
    assert daemon.access is before
    with pytest.raises(TypeError):
        daemon.tokens["b"] = TOKEN  # type: ignore[index]


def test_daemon_access_after_a_restart_is_what_was_answered(store: Watched) -> None:
    daemon = store.daemon = made(store)
    daemon.start()
    daemon.request(AccessChanged(ADMIN, 0)).result(60)
    daemon.request(TokenCreated(TOKEN, 60.0)).result(60)
    store.full = True
    refused = daemon.request(TokenRevoked("a1"))
    with pytest.raises(NoRoom):
        refused.result(60)
    assert list(daemon.tokens) == ["a1"]  # it is not on disk that it is gone
    daemon.stop()
    again = made(store)
    assert (again.access.version, list(again.tokens)) == (1, ["a1"])


def test_daemon_access_saves_uses_of_tokens_now_and_then(daemon: Daemon, store: Watched) -> None:
    daemon.request(TokenCreated(TOKEN, 60.0)).result(60)
    for _ in range(100):
        daemon.note_token_use("a1", "10.0.0.1")
    daemon.note_token_use("unknown", "10.0.0.1")
    wait_until("the use is kept", lambda: daemon.tokens["a1"].used_from == "10.0.0.1")
    daemon.read(lambda _: None).result(60)
    saves = [each for batch in store.batches for each in batch if isinstance(each, SaveToken)]
    assert len(saves) == 2  # the token, and one use of it


def test_daemon_access_counts_a_token_use_again_after_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("mesos_gpu.scheduler.snapshots.time.monotonic", lambda: now)
    uses, known = Uses(), {"a": TOKEN}
    assert [uses.is_new("a", known) for _ in range(3)] == [True, False, False]
    now += USE_S
    assert uses.is_new("a", known)
    for index in range(10):
        uses.is_new(str(index), {str(index): TOKEN})
    assert len(uses._noted) <= 3
