"""The ledger: one holder for each GPU, the dead recognised, damage refused."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.ledger import Claimed, Ledger, Owner, Refused, Stale
from mesos_gpu.errors import Damaged, Unavailable
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
    assert [(c.gpu, c.task) for c in refused.held] == [(B, "t1")]
    assert {c.gpu for c in ledger.claims()} == {A, B}
    ledger.release("t1", me)
    assert ledger.claim("t2", [B, C], other) == Claimed()


def test_a_repeated_claim_of_the_same_task_is_one_claim(ledger: Ledger, me: Owner) -> None:
    ledger.claim("t1", [A], me)
    assert ledger.claim("t1", [A], me) == Claimed()
    assert len(ledger.claims()) == 1


def test_the_dead_stand_in_the_way_until_they_are_dropped(ledger: Ledger, me: Owner) -> None:
    gone = dead_owner()
    ledger.claim("t1", [A], gone)
    stale = ledger.claim("t2", [A, B], me)
    assert isinstance(stale, Stale)
    assert [c.task for c in stale.dead] == ["t1"]
    assert [c.gpu for c in ledger.claims()] == [A], "nothing of t2 is claimed yet"
    ledger.drop(stale.dead)
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
    ledger.drop(ledger.claims())
    ledger.claim("t1", [A], me)
    ledger.release("t1", gone)
    assert [c.owner for c in ledger.claims()] == [me]


@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage", "newer", "foreign"])
def test_damage_is_refused_and_nothing_is_declared_free(tmp_path: Path, me: Owner, damage: str) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
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
    for call in (lambda: ledger.claim("t2", [B], me), ledger.claims):
        with pytest.raises(Damaged, match="ledger"):
            call()


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
    Ledger(path).claims()
    monkeypatch.setattr("isolator.ledger.BUSY_TIMEOUT_S", 0.05)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(Unavailable, match="locked"):
            Ledger(path).claim("t1", [A], me)
    finally:
        db.close()
    assert Ledger(path).claims() == ()


def test_a_claimer_that_dies_in_the_middle_leaves_nothing(tmp_path: Path, me: Owner) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger(path).claims()
    code = "import os, sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None)"
    code += (
        "; db.execute('BEGIN IMMEDIATE'); db.execute(\"INSERT INTO claims VALUES ('GPU-a','t',1,1,'b',1,0)\")"
    )
    subprocess.run([sys.executable, "-c", code + "; os.kill(os.getpid(), 9)", str(path)], check=False)
    assert Ledger(path).claims() == ()
    assert Ledger(path).claim("t1", [A], me) == Claimed()
