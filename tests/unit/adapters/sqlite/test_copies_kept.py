"""Copies of a state that are made of themselves are few: three of each kind, the latest."""

from pathlib import Path

import pytest

from mesos_gpu.adapters.hooks.store import hooks_of
from mesos_gpu.adapters.sqlite.copies import backup
from mesos_gpu.adapters.sqlite.files import MAX_COPIES, keep_few
from mesos_gpu.adapters.sqlite_store import SqliteStore, restore
from mesos_gpu.model.saves import SaveFramework

OTHERS = (
    "s.sqlite.before-vacation",
    "s.sqlite.replaced-by-hand",
    "s.sqlite2.before-v1",
    "as.sqlite.before-v1",
)

TIMES = (("20251231", ""), ("20260101", ""), ("20260101", "-1"), ("20260102", ""), ("20270101", ""))


def names(directory: Path) -> set[str]:
    return {each.name for each in directory.iterdir()}


@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        ("before-v", ["9", "10", "11", "14", "102"]),
        ("replaced-", [f"{day}T000000Z{more}" for day, more in TIMES]),
    ],
)
def test_kept_copies_are_removed_oldest_first_with_their_files(
    tmp_path: Path, kind: str, ends: list[str]
) -> None:
    beside = ("", "-wal", ".hooks", ".hooks-wal", ".hooks-shm")
    mine = [[f"s.sqlite.{kind}{end}{more}" for more in beside] for end in ends]
    for name in (*OTHERS, *(each for copy in mine for each in copy)):
        (tmp_path / name).touch()
    gone = keep_few(tmp_path / "s.sqlite", kind)
    assert [each.name for each in gone] == [copy[0] for copy in mine[:-MAX_COPIES]]
    assert names(tmp_path) == {*OTHERS, *(each for copy in mine[-MAX_COPIES:] for each in copy)}
    assert keep_few(tmp_path / "s.sqlite", kind) == []


def test_kept_copies_of_restores_are_the_latest(tmp_path: Path) -> None:
    state = tmp_path / "state.sqlite"
    for number in range(MAX_COPIES + 2):
        store = SqliteStore(state)
        store.save([SaveFramework(f"f{number}")])
        store.close()
        backup(state, copy := tmp_path / f"backup-{number}")
        restore(copy, state)
    kept = sorted(name for name in names(tmp_path) if ".replaced-" in name and not name.endswith("-wal"))
    assert len(kept) == MAX_COPIES
    store = SqliteStore(tmp_path / kept[-1], accept_older=True)
    assert store.load().framework_id == f"f{MAX_COPIES + 1}", "the latest is there"
    store.close()
    assert not hooks_of(state).exists()
