"""The ledger: one holder for each GPU, the dead recognised, damage refused."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.gpus.ledger import Claimed, Holding, Ledger, Owner, Refused, Stale, Trace
from mesos_gpu.errors import Damaged, NotFound, Unavailable
from mesos_gpu.model.ids import GpuId

A, B, C = GpuId("GPU-a"), GpuId("GPU-b"), GpuId("GPU-c")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "node" / "ledger.sqlite")


@pytest.fixture
def me() -> Owner:
    return Owner.of(os.getpid())


@pytest.fixture
def other() -> Iterator[Owner]:
    process = subprocess.Popen(["sleep", "600"])
    yield Owner.of(process.pid)
    process.kill()
    process.wait()


def dead_owner() -> Owner:
    process = subprocess.Popen(["sleep", "600"])
    owner = Owner.of(process.pid)
    process.kill()
    process.wait()
    return owner


def test_a_claim_is_all_or_nothing(ledger: Ledger, me: Owner, other: Owner) -> None:
    assert ledger.claim("t1", [A, B], me) == Claimed()
    refused = ledger.claim("t2", [B, C], other)
    assert isinstance(refused, Refused)
    assert [(held.gpus, held.task) for held in refused.held] == [((A, B), "t1")]
    assert [held.gpus for held in ledger.holdings()] == [(A, B)]
    ledger.release("t1", me)
    assert ledger.claim("t2", [B, C], other) == Claimed()


def test_a_repeated_claim_of_the_same_task_is_one_claim(ledger: Ledger, me: Owner) -> None:
    ledger.claim("t1", [A], me)
    assert ledger.claim("t1", [A], me) == Claimed()
    assert len(ledger.holdings()) == 1


def test_the_dead_stand_in_the_way_until_they_are_dropped(ledger: Ledger, me: Owner) -> None:
    gone = dead_owner()
    ledger.claim("t1", [A], gone)
    stale = ledger.claim("t2", [A, B], me)
    assert isinstance(stale, Stale)
    assert [held.task for held in stale.dead] == ["t1"]
    assert [held.gpus for held in ledger.holdings()] == [(A,)], "nothing of t2 is claimed yet"
    ledger.drop(stale.dead[0])
    assert ledger.claim("t2", [A, B], me) == Claimed()


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another boot"}])
def test_a_pid_taken_by_another_process_does_not_revive_the_dead(
    ledger: Ledger, me: Owner, change: dict[str, object]
) -> None:
    ledger.claim("t1", [A], replace(me, **change))  # type: ignore[arg-type]
    assert isinstance(ledger.claim("t2", [A], me), Stale)


def test_a_late_release_does_not_take_from_the_next_owner(ledger: Ledger, me: Owner) -> None:
    gone = dead_owner()
    ledger.claim("t1", [A], gone)
    ledger.drop(ledger.holdings()[0])
    ledger.claim("t1", [A], me)
    ledger.release("t1", gone)
    assert [held.owner for held in ledger.holdings()] == [me]


@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage", "newer", "foreign"])
@pytest.mark.parametrize("keep", [False, True])
def test_damage_is_refused_and_nothing_is_declared_free(
    tmp_path: Path, me: Owner, damage: str, keep: bool
) -> None:
    path = tmp_path / "ledger.sqlite"
    keeper, ledger = Ledger(path, keep=keep), Ledger(path)
    for number in range(50):  # so large that some of them are in the file itself, and not in its log alone
        keeper.claim("t1", [A], me, traces=[Trace("nodes", f"{number:02}" * 50_000)])
    ledger.claim("t1", [A], me)
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:5000])
    elif damage == "garbage":
        path.write_bytes(b"x" * 8192)
    else:
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version=7" if damage == "newer" else "DROP TABLE claims")
        db.close()
    for call in (lambda: ledger.claim("t2", [B], me), ledger.holdings):
        with pytest.raises(Damaged, match="ledger"):
            call()


def test_a_kept_connection_spares_others_the_end_of_the_log(tmp_path: Path, me: Owner) -> None:
    path = tmp_path / "ledger.sqlite"
    log, ledger = tmp_path / "ledger.sqlite-wal", Ledger(path)
    ledger.claim("t1", [A], me)
    assert not log.exists()
    keeper = Ledger(path, keep=True)
    keeper.holdings()
    ledger.claim("t2", [B], me)
    assert log.stat().st_size > 0
    assert {each.task for each in keeper.holdings()} == {"t1", "t2"}


def test_a_kept_connection_writes_the_log_back_now_and_then(
    tmp_path: Path, me: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.sqlite"
    keeper, ledger = Ledger(path, keep=True), Ledger(path)
    keeper.holdings()
    ledger.claim("t1", [A], me, traces=[Trace("nodes", "what is in the log")])
    assert b"what is in the log" not in path.read_bytes()
    monkeypatch.setattr("isolator.gpus.kept_ledger.WRITE_BACK_S", 0.0)
    keeper.holdings()
    assert b"what is in the log" in path.read_bytes()


def test_a_log_whose_ledger_was_removed_is_damage(tmp_path: Path, me: Owner) -> None:
    path = tmp_path / "ledger.sqlite"
    keeper, ledger = Ledger(path, keep=True), Ledger(path)
    keeper.claim("t1", [A], me)
    path.unlink()
    for one in (keeper, ledger):
        with pytest.raises(Damaged, match="was removed, but its log was not"):
            one.holdings()


def test_a_ledger_that_was_replaced_is_the_one_that_is_kept(tmp_path: Path, me: Owner) -> None:
    path = tmp_path / "ledger.sqlite"
    keeper, ledger = Ledger(path, keep=True), Ledger(path)
    keeper.claim("t1", [A], me)
    for each in tmp_path.glob("ledger.sqlite*"):
        each.unlink()
    assert keeper.holdings() == ()
    ledger.claim("t2", [B], me)
    assert (tmp_path / "ledger.sqlite-wal").stat().st_size > 0
    assert [each.task for each in keeper.holdings()] == ["t2"]


def test_an_owner_in_another_pid_namespace_cannot_be_judged_and_so_holds(ledger: Ledger, me: Owner) -> None:
    ledger.claim("t1", [A], replace(dead_owner(), pid_namespace=1))
    assert isinstance(ledger.claim("t2", [A], me), Refused)
    ledger.claim("t3", [B], replace(dead_owner(), pid_namespace=1, boot_id="another boot"))
    assert isinstance(ledger.claim("t2", [B], me), Stale), "no process outlives its boot"


def test_two_owners_of_one_task_are_two(ledger: Ledger, me: Owner, other: Owner) -> None:
    ledger.claim("t1", [A], other)
    assert isinstance(ledger.claim("t1", [A], me), Refused)


def test_a_ledger_that_stays_locked_is_not_called_damaged(
    tmp_path: Path, me: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger(path).holdings()
    monkeypatch.setattr("isolator.gpus.ledger.BUSY_TIMEOUT_S", 0.05)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(Unavailable, match="locked"):
            Ledger(path).claim("t1", [A], me)
    finally:
        db.close()
    assert Ledger(path).holdings() == ()


def test_a_claimer_that_dies_in_the_middle_leaves_nothing(tmp_path: Path, me: Owner) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger(path).holdings()
    code = "import os, sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None)"
    code += "; db.execute('BEGIN IMMEDIATE'); db.execute(\"INSERT INTO claims VALUES ('GPU-a',1)\")"
    subprocess.run([sys.executable, "-c", code + "; os.kill(os.getpid(), 9)", str(path)], check=False)
    assert Ledger(path).holdings() == ()
    assert Ledger(path).claim("t1", [A], me) == Claimed()


def test_ledger_has_traces_of_a_claim(ledger: Ledger, me: Owner) -> None:
    traces = (Trace("nodes", "/dev/x"), Trace("cgroup1", "/sys/y"))
    ledger.claim("t1", [], me, container="c-1", traces=traces)
    (held,) = ledger.holdings()
    assert (held.task, held.gpus, held.container, held.traces) == ("t1", (), "c-1", traces)
    ledger.claim("t1", [A], me, container="c-1", traces=traces[:1])
    (held,) = ledger.holdings()
    assert (held.gpus, held.traces) == ((A,), traces[:1])
    ledger.release("t1", me)
    assert ledger.holdings() == ()


def elsewhere(owner: Owner) -> Owner:
    return replace(owner, pid_namespace=1)


def test_the_lock_tells_of_an_owner_in_another_pid_namespace(ledger: Ledger, me: Owner) -> None:
    """A pid says nothing across namespaces; a lock that its holder's death opens does."""
    fd = ledger.lock("c-1")
    ledger.claim("t1", [A], elsewhere(me), container="c-1")
    assert isinstance(ledger.claim("t2", [A], me), Refused)
    os.close(fd)
    stale = ledger.claim("t2", [A], me)
    assert isinstance(stale, Stale)
    ledger.drop(stale.dead[0])
    assert not list((ledger.directory / "owners").iterdir())


def test_a_ledger_of_version_1_is_brought_up(tmp_path: Path, me: Owner) -> None:
    path = tmp_path / "ledger.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(
            """CREATE TABLE claims (gpu TEXT PRIMARY KEY, task TEXT NOT NULL, pid INTEGER NOT NULL,
               start_ticks INTEGER NOT NULL, boot_id TEXT NOT NULL, pid_namespace INTEGER NOT NULL,
               claimed_at REAL NOT NULL) WITHOUT ROWID"""
        )
        for gpu, task, at in ((A, "t1", 5.0), (B, "t1", 4.0), (C, "t2", 6.0)):
            row = (gpu, task, me.pid, me.start_ticks, me.boot_id, me.pid_namespace, at)
            db.execute("INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        db.execute("PRAGMA user_version=1")
    db.close()
    ledger = Ledger(path)
    assert ledger.holdings() == (
        Holding("t1", me, (A, B), since=4.0),
        Holding("t2", me, (C,), since=6.0),
    )
    ledger.release("t1", me)
    assert [held.gpus for held in Ledger(path).holdings()] == [(C,)]


def test_ledger_puts_later_traces_first_to_be_undone_last(ledger: Ledger, me: Owner, other: Owner) -> None:
    ledger.claim("a.1", [A], me, traces=[Trace("docker", "engine box")])
    ledger.claim("b.1", [B], other, traces=[Trace("nodes", "/b")])
    ledger.leave("a.1", me, Trace("container", "0123"))
    ledger.leave("a.1", me, Trace("limit", "GPU-a /c"))
    first, second = ledger.holdings()
    assert first.traces == (
        Trace("limit", "GPU-a /c"),
        Trace("container", "0123"),
        Trace("docker", "engine box"),
    )
    assert second.traces == (Trace("nodes", "/b"),)
    with pytest.raises(NotFound, match=r"a\.1 holds nothing"):
        ledger.leave("a.1", other, Trace("container", "0123"))


@pytest.mark.parametrize("name", ["plain", "a b?c#d%e&f", "ü", os.fsdecode(b"\xff")])
def test_a_ledger_is_where_its_path_says(tmp_path: Path, name: str) -> None:
    Ledger(tmp_path / name / "ledger.sqlite").holdings()
    assert [path.name for path in (tmp_path / name).glob("*.sqlite")] == ["ledger.sqlite"]
