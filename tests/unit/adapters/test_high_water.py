"""The mark beside the state: an older, torn or empty file is refused, and left as it was found."""

import logging
import os
import shutil
import stat
from pathlib import Path

import pytest

from mesos_gpu.adapters.hooks.store import HookStore, hooks_of
from mesos_gpu.adapters.sqlite.copies import backup
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.errors import BadConfiguration, Conflict, Damaged, NotFound
from mesos_gpu.model.saves import SaveFramework, SaveTrust
from tests.unit.adapters.sqlite.children import in_a_child

BATCHES = 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.sqlite"


def killed(path: Path) -> str:
    """Write some batches in a process that ends as if it were killed; return the key of the state."""
    open_stores = list[SqliteStore]()

    def write() -> str:
        open_stores.append(store := SqliteStore(path))
        for _ in range(BATCHES):
            store.save([SaveFramework("fw")])
        return store.key().hex()

    _, key = in_a_child(write)
    assert Path(f"{path}-wal").stat().st_size > 0
    return key


def bytes_of(path: Path) -> dict[str, bytes]:
    files = {p.name: p.read_bytes() for p in path.parent.iterdir() if not p.name.endswith("-shm")}
    return {name: body for name, body in files.items() if body or not name.endswith("-wal")}


@pytest.mark.parametrize("harm", ["lost", "torn", "empty", "another"])
def test_high_water_refuses_an_older_state_and_leaves_it(path: Path, tmp_path: Path, harm: str) -> None:
    killed(path)
    wal = Path(f"{path}-wal")
    if harm == "lost":
        wal.unlink()
    elif harm == "torn":
        with wal.open("r+b") as file:
            file.seek(wal.stat().st_size // 2)
            file.write(os.urandom(50_000))
    elif harm == "empty":
        path.write_bytes(b"")
    else:
        other = tmp_path / "other" / "state.sqlite"
        store = SqliteStore(other)
        for _ in range(2 * BATCHES):
            store.save([SaveFramework("another-framework")])
        store.close()
        wal.unlink()
        shutil.copyfile(other, path)
    before = bytes_of(path)
    for _ in range(2):
        with pytest.raises(BadConfiguration, match=str(path)) as refused:
            SqliteStore(path)
        assert "--accept-older-state" in refused.value.remedy
        assert refused.value.exit_code == 78
    assert bytes_of(path) == before


def test_high_water_older_state_may_be_accepted_by_an_operator(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = killed(path)
    path.write_bytes(b"")
    store = SqliteStore(path, accept_older=True)
    saved = store.load()
    assert (saved.framework_id, saved.doubtful) == ("fw", True), "its tasks are found by the framework's id"
    assert store.key().hex() == key, "and believed by its key"
    assert "older than its last commit" in caplog.text
    store.close()
    store = SqliteStore(path)
    assert store.load().doubtful, "until the master's tasks were looked through"
    store.save([SaveTrust()])
    store.close()
    store = SqliteStore(path, accept_older=True)
    assert not store.load().doubtful
    assert "remove it" in caplog.text
    store.close()


def test_high_water_refuses_the_replaced_state_after_a_rollback(path: Path, tmp_path: Path) -> None:
    killed(path)
    backup(path, tmp_path / "newest")
    path.write_bytes(b"")
    SqliteStore(path, accept_older=True).close()
    shutil.copyfile(tmp_path / "newest", path)
    with pytest.raises(BadConfiguration):
        SqliteStore(path)


def test_high_water_kill_between_commit_and_mark_loses_no_state(path: Path) -> None:
    killed(path)
    mark = Path(f"{path}.mark")
    mark.write_bytes(
        mark.read_bytes().replace(f'"batch":{BATCHES}'.encode(), f'"batch":{BATCHES - 1}'.encode())
    )
    store = SqliteStore(path)
    assert not store.load().doubtful
    store.close()


def test_high_water_kill_before_the_first_mark_loses_no_state(path: Path) -> None:
    store = SqliteStore(path)
    store._mark.write = lambda mark: None  # type: ignore[method-assign]  # killed before it
    store.save([SaveFramework("fw")])
    store.close()
    again = SqliteStore(path)
    assert (again.load().framework_id, again.load().doubtful) == ("fw", False)
    again.close()


def test_high_water_state_without_a_mark_is_doubted(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A copy on another machine has no mark."""
    killed(path)
    Path(f"{path}.mark").unlink()
    store = SqliteStore(path)
    assert store.load().doubtful
    assert "no mark" in caplog.text
    store.close()


def test_high_water_mark_that_is_malformed_is_refused(path: Path) -> None:
    killed(path)
    Path(f"{path}.mark").write_text("what is this")
    with pytest.raises(Damaged, match=r"state\.sqlite\.mark"):
        SqliteStore(path)
    SqliteStore(path, accept_older=True).close()
    SqliteStore(path).close()


def test_high_water_files_are_private_from_the_first_moment(path: Path) -> None:
    old = os.umask(0)
    try:
        killed(path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()} == dict.fromkeys(
        [f"state.sqlite{end}" for end in ("", "-wal", "-shm", ".lock", ".mark")], 0o600
    )


def test_high_water_leaves_the_mode_of_a_shared_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    tmp_path.chmod(0o755)
    (tmp_path / "somebody else's").touch()
    SqliteStore(tmp_path / "state.sqlite").close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert caplog.text == ""
    tmp_path.chmod(0o777)
    SqliteStore(tmp_path / "state.sqlite").close()
    assert "other users may write" in caplog.text


def test_high_water_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    (tmp_path / "target").touch(mode=0o644)
    Path(f"{path}.mark").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic link"):
        SqliteStore(path)
    assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == 0o644


def test_backup_is_whole_while_the_store_is_written(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    store.save([SaveFramework("fw")])
    backup(path, tmp_path / "copy")
    store.save([SaveFramework("later")])
    store.close()
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
    again = SqliteStore(tmp_path / "copy")
    assert again.load().framework_id == "fw"
    again.close()
    with pytest.raises(Conflict, match="exists"):
        backup(path, tmp_path / "copy")
    HookStore(hooks_of(path)).close()
    with pytest.raises(Conflict, match="copy exists"):
        backup(path, tmp_path / "copy")
    assert not hooks_of(tmp_path / "copy").exists(), "neither or both"
    hooks_of(tmp_path / "copy3").touch()
    with pytest.raises(Conflict, match=r"copy3\.hooks exists"):
        backup(path, tmp_path / "copy3")
    assert not (tmp_path / "copy3").exists()
    with pytest.raises(NotFound):
        backup(tmp_path / "none", tmp_path / "copy2")
    (tmp_path / "text").write_text("not a state " * 100)
    with pytest.raises(Damaged):
        backup(tmp_path / "text", tmp_path / "copy2")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        p for p in sorted(os.listdir(tmp_path)) if ".part" not in p
    ]
