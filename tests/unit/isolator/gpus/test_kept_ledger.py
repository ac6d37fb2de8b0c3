"""The connection that is kept to a ledger: opened once, again where the file is another, written back now and then."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from isolator.gpus import kept_ledger
from isolator.gpus.kept_ledger import WRITE_BACK_S, Kept


class Ledgers:
    """Opens ledgers, and knows the connections and their statements."""

    def __init__(self, path: Path) -> None:
        """Make the file."""
        self.path, self.connections, self.statements = path, list[sqlite3.Connection](), list[str]()
        self.make()

    def make(self) -> None:
        with sqlite3.connect(self.path) as db:
            db.execute("CREATE TABLE IF NOT EXISTS cards (gpu)")
        db.close()

    def connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path)
        db.set_trace_callback(self.statements.append)
        self.connections.append(db)
        return db

    @property
    def write_backs(self) -> int:
        return sum("wal_checkpoint" in each for each in self.statements)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(kept_ledger, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture
def ledgers(tmp_path: Path) -> Iterator[Ledgers]:
    made = Ledgers(tmp_path / "ledger")
    yield made
    for db in made.connections:
        db.close()


def test_kept_connection_is_opened_once(ledgers: Ledgers, now: list[float]) -> None:
    kept = Kept()
    for _ in range(3):
        kept.hold(ledgers.path, ledgers.connect)
    assert len(ledgers.connections) == 1


def test_kept_connection_writes_back_at_intervals(ledgers: Ledgers, now: list[float]) -> None:
    kept = Kept()
    counts = []
    for step_s in (0.0, 0.0, WRITE_BACK_S - 0.5, 0.5, 0.5, WRITE_BACK_S):
        now[0] += step_s
        kept.hold(ledgers.path, ledgers.connect)
        counts.append(ledgers.write_backs)
    assert counts == [0, 1, 1, 2, 2, 3]


def test_kept_connection_follows_a_file_that_is_replaced(ledgers: Ledgers, now: list[float]) -> None:
    kept = Kept()
    kept.hold(ledgers.path, ledgers.connect)
    ledgers.path.rename(ledgers.path.with_name("old"))
    ledgers.make()
    kept.hold(ledgers.path, ledgers.connect)
    first, second = ledgers.connections
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        first.execute("SELECT 1")
    assert second.execute("SELECT count(*) FROM cards").fetchone() == (0,)


def test_kept_connection_to_a_file_that_is_gone_or_damaged_is_refused(
    ledgers: Ledgers, now: list[float]
) -> None:
    kept = Kept()
    kept.hold(ledgers.path, ledgers.connect)
    ledgers.path.rename(ledgers.path.with_name("old"))
    with pytest.raises(FileNotFoundError):
        kept.hold(ledgers.path, ledgers.connect)
    ledgers.path.write_bytes(b"no ledger" * 100)
    for _ in range(2):  # it is not taken for the one that is kept
        with pytest.raises(sqlite3.DatabaseError):
            kept.hold(ledgers.path, ledgers.connect)
