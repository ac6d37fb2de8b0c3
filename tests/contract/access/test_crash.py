"""A scheduler that dies when a change is on disk and not yet answered: it is made, and who asks again learns of it."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from mesos_gpu.adapters.sqlite.copies import backup
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.engine.events import AccessChanged, TokenCreated, TokenRevoked
from mesos_gpu.engine.settings import Settings
from mesos_gpu.errors import Conflict, MesosGpuError, NotFound
from mesos_gpu.model.access.document import AccessDocument, Binding
from mesos_gpu.model.access.token import Token
from mesos_gpu.model.saves import ForgetToken, Save, SaveAccess, SaveToken
from mesos_gpu.scheduler.daemon import Daemon
from tests.doubles.fake_driver import FakeClock, FakeDriver

ADMIN = AccessDocument(by="boss", bindings=(Binding(("ann",), (), ("admin",)),))
TOKEN = Token("0123456789ab", "ann", "5a17", "d1" * 32, 0.0, 0.0)


class Dying(SqliteStore):
    """Ends the scheduler when such a change is on disk."""

    dies_at: type[Save] | None = None

    def save(self, batch: Iterable[Save]) -> None:
        batch = list(batch)
        super().save(batch)
        if any(type(each) is self.dies_at for each in batch):
            raise RuntimeError("the power is cut")


class Life:
    """A scheduler's lives, one after the other, on one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.daemon: Daemon | None = None
        self.begin()

    def begin(self, dies_at: type[Save] | None = None) -> Daemon:
        self.end()
        store = Dying(self.path)
        store.dies_at = dies_at
        self.daemon = daemon = Daemon(store, store.load(), FakeDriver(), FakeClock(), Settings.of("e", "m"))
        daemon.start()
        return daemon

    def end(self) -> None:
        if self.daemon:
            self.daemon.stop()


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    life = Life(tmp_path / "state" / "scheduler.sqlite")
    yield life
    life.end()


def test_a_document_that_was_saved_is_there_and_asking_again_is_a_conflict(life: Life) -> None:
    daemon = life.begin(SaveAccess)
    lost = daemon.request(AccessChanged(ADMIN, 0))
    with pytest.raises(MesosGpuError, match="the scheduler is stopping"):
        lost.result(60)
    assert daemon.access.version == 0  # nobody has seen it
    daemon = life.begin()
    assert (daemon.access.version, daemon.access.bindings) == (1, ADMIN.bindings)
    with pytest.raises(Conflict, match="is at version 1, and version 0 was read"):
        daemon.request(AccessChanged(AccessDocument(), 0)).result(60)


def test_a_token_whose_secret_nobody_was_shown_can_be_revoked(life: Life) -> None:
    lost = life.begin(SaveToken).request(TokenCreated(TOKEN, 60.0))
    with pytest.raises(MesosGpuError):
        lost.result(60)
    daemon = life.begin()
    assert list(daemon.tokens) == [TOKEN.id]
    daemon.request(TokenRevoked(TOKEN.id)).result(60)
    assert not life.begin().tokens


def test_a_token_whose_end_was_saved_proves_nothing_ever_after(life: Life) -> None:
    life.begin().request(TokenCreated(TOKEN, 60.0)).result(60)
    lost = life.begin(ForgetToken).request(TokenRevoked(TOKEN.id))
    with pytest.raises(MesosGpuError):
        lost.result(60)
    daemon = life.begin()
    assert not daemon.tokens
    with pytest.raises(NotFound):
        daemon.request(TokenRevoked(TOKEN.id)).result(60)


def test_a_backup_has_both(life: Life, tmp_path: Path) -> None:
    daemon = life.begin()
    daemon.request(AccessChanged(ADMIN, 0)).result(60)
    daemon.request(TokenCreated(TOKEN, 60.0)).result(60)
    backup(life.path, tmp_path / "copy.sqlite")
    copy = SqliteStore(tmp_path / "copy.sqlite", accept_older=True)
    try:
        saved = copy.load()
    finally:
        copy.close()
    assert [each.version for each in saved.access_versions] == [1]
    assert [(each.id, each.digest) for each in saved.tokens] == [(TOKEN.id, TOKEN.digest)]
