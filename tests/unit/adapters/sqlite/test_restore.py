"""A backup in place of a state: whole or not at all, never under a scheduler that runs, and what was there is kept."""

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from mesos_gpu.adapters.hooks.store import HookStore, hooks_of
from mesos_gpu.adapters.sqlite import placing, schema
from mesos_gpu.adapters.sqlite.copies import backup
from mesos_gpu.adapters.sqlite.version import version_of
from mesos_gpu.adapters.sqlite_store import SqliteStore, restore
from mesos_gpu.cli import main
from mesos_gpu.errors import BadConfiguration, Conflict, Damaged, NotFound
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.saves import SaveFramework, SaveJob
from mesos_gpu.model.tasks.hook import Hook
from tests.unit.adapters.sqlite.children import in_a_child

LATEST: Final = schema.steps()[-1][0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.sqlite"


def write(path: Path, *names: str) -> None:
    """Jobs of those names, each a batch."""
    store = SqliteStore(path)
    store.save([SaveFramework("fw")])
    for number, name in enumerate(names):
        store.save([SaveJob(Job(JobId(name), JobSpec(name, command="true"), 1.0, number))])
    store.close()


def jobs_in(path: Path) -> list[str]:
    store = SqliteStore(path)
    try:
        return sorted(job.id for job in store.load().jobs)
    finally:
        store.close()


def kept_beside(path: Path) -> list[Path]:
    return sorted(
        each
        for each in path.parent.glob(f"{path.name}.replaced-*")
        if each.suffix not in (".mark", ".hooks", ".lock")
    )


def add_hook(path: Path, name: str) -> None:
    hooks = HookStore(hooks_of(path))
    hooks.put(Hook(name, "http://127.0.0.1:1/", by="ann", at=1.0), b"secret")
    hooks.close()


def hooks_in(path: Path) -> list[str]:
    hooks = HookStore(hooks_of(path))
    try:
        return [hook.name for hook in hooks.latest.hooks]
    finally:
        hooks.close()


@pytest.fixture
def copy(path: Path, tmp_path: Path) -> Path:
    """A backup that has a job and a webhook; the state has others since."""
    write(path, "old")
    add_hook(path, "old")
    backup(path, tmp_path / "copy")
    write(path, "new")
    add_hook(path, "new")
    return tmp_path / "copy"


def test_restore_puts_the_backup_in_place_and_the_old_state_beside(path: Path, copy: Path) -> None:
    placed, followed = restore(copy, path)
    assert (placed.has_hooks, followed) == (True, False)
    assert (jobs_in(path), hooks_in(path)) == (["old"], ["old"])
    assert kept_beside(path) == [placed.kept]
    assert placed.kept is not None
    assert (jobs_in(placed.kept), hooks_in(placed.kept)) == (["new", "old"], ["new", "old"])
    assert jobs_in(copy) == ["old"]
    assert [
        each.name for each in path.parent.iterdir() if ".restoring" in each.name or ".restore" in each.name
    ] == []


def test_restored_state_is_doubtful_until_reconciled(path: Path, copy: Path) -> None:
    restore(copy, path)
    store = SqliteStore(path)  # without --accept-older-state
    assert store.load().doubtful
    store.close()


def test_restore_makes_the_replaced_state_the_older_one(path: Path, copy: Path) -> None:
    placed, _ = restore(copy, path)
    assert placed.kept is not None
    placed.kept.replace(path)
    with pytest.raises(BadConfiguration, match="an older copy"):
        SqliteStore(path)
    restore(copy, path)
    assert jobs_in(path) == ["old"]


def test_restore_keeps_the_write_ahead_log_of_the_replaced_state(path: Path, copy: Path) -> None:

    def write() -> None:
        store = SqliteStore(path)
        store.save([SaveFramework("in the wal")])
        os.kill(os.getpid(), signal.SIGKILL)

    in_a_child(write)
    assert Path(f"{path}-wal").stat().st_size > 0
    placed, _ = restore(copy, path)
    assert not Path(f"{path}-wal").exists(), "of the state that was there: it would be read into the new one"
    assert placed.kept is not None
    with closing(sqlite3.connect(placed.kept)) as db:
        (framework,) = db.execute("SELECT value FROM facts WHERE name = 'framework_id'").fetchone()
    assert framework.startswith("in the wal")


def test_restore_under_a_running_scheduler_is_refused(path: Path, copy: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(Conflict, match="another scheduler uses the state"):
        restore(copy, path)
    store.save([SaveFramework("it goes on")])
    store.close()
    assert jobs_in(path) == ["new", "old"]


def a_later_schema(copy: Path) -> None:
    with closing(sqlite3.connect(copy)) as db:
        db.execute(f"PRAGMA user_version={LATEST + 1}")


def a_torn_one(copy: Path) -> None:
    copy.write_bytes(copy.read_bytes()[: copy.stat().st_size // 2])


def no_state(copy: Path) -> None:
    copy.write_bytes(b"no state " * 1000)


def another_database(copy: Path) -> None:
    copy.unlink()
    with closing(sqlite3.connect(copy)) as db:
        db.execute("CREATE TABLE pictures (id INTEGER)")


def an_empty_file(copy: Path) -> None:
    copy.write_bytes(b"")


def torn_hooks(copy: Path) -> None:
    hooks_of(copy).write_bytes(b"no webhooks " * 1000)


@pytest.mark.parametrize(
    "harm",
    [a_later_schema, a_torn_one, no_state, another_database, an_empty_file, torn_hooks],
    ids=lambda f: f.__name__,
)
def test_restore_of_an_unreadable_backup_changes_no_file(path: Path, copy: Path, harm: object) -> None:
    harm(copy)  # type: ignore[operator]
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with pytest.raises(Damaged) as refused:
        restore(copy, path)
    assert str(copy) in refused.value.what
    assert ".restore/" not in str(refused.value), "the name of a file that nobody knows"
    after = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    assert after == before
    assert jobs_in(path) == ["new", "old"]


def test_restore_needs_a_backup_and_a_directory(path: Path, copy: Path, tmp_path: Path) -> None:
    for source, target, error in (
        (tmp_path / "none", path, NotFound),
        (path, path, Conflict),
        (copy, tmp_path / "none" / "state", NotFound),
    ):
        with pytest.raises(error):
            restore(source, target)
    new = tmp_path / "new"
    new.mkdir(mode=0o700)
    placed, _ = restore(copy, new / "state.sqlite")
    assert placed.kept is None
    assert (jobs_in(new / "state.sqlite"), hooks_in(new / "state.sqlite")) == (["old"], ["old"])


def test_restore_of_a_backup_without_webhooks_brings_none(path: Path, copy: Path) -> None:
    hooks_of(copy).unlink()
    placed, _ = restore(copy, path)
    assert (placed.has_hooks, hooks_in(path)) == (False, [])
    assert placed.kept is not None
    assert hooks_in(placed.kept) == ["new", "old"]


def test_restore_brings_up_a_state_of_an_earlier_schema(path: Path, copy: Path, tmp_path: Path) -> None:
    old = tmp_path / "first"
    with closing(sqlite3.connect(old)) as db:
        db.executescript((Path(__file__).parents[3] / "data" / "states" / "03.sql").read_text())
    restore(old, path)
    assert jobs_in(path) == ["j1"]
    with closing(sqlite3.connect(old)) as db:
        assert version_of(db) == 3, "the backup is left as it is"


def test_restored_state_follows_no_log(path: Path, tmp_path: Path) -> None:
    write(path, "one")
    store = SqliteStore(path)
    store.follow(store.key(), {"history": "h1", "history_begun": "h1"})
    key = store.key()
    store.close()
    backup(path, tmp_path / "copy")
    _, followed = restore(tmp_path / "copy", path)
    assert followed
    store = SqliteStore(path)
    assert (store.fact("history"), store.fact("history_begun"), store.key()) == (None, None, key)
    store.close()


def restore_or_die(copy: Path, path: Path, kill_at: int) -> int:
    """Restore a state and return the number of changes of the file system, or be killed before one of them."""
    count = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*words: object, **more: object) -> object:
            nonlocal count
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            return real(*words, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (os, "link"), (Path, "unlink"), (Path, "rename"), (Path, "touch"), (placing, "sync")
        ):  # fmt: skip
            patch.setattr(owner, name, counted(getattr(owner, name)))
        restore(copy, path)
    return count


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ("middle", {"refused"}),
        ("last", {"old"}),
        pytest.param("all", {"new old", "old", "refused"}, marks=pytest.mark.long),
    ],
)
def test_restore_killed_at_any_point_leaves_the_old_the_new_or_no_state(
    copy: Path, tmp_path: Path, points: str, expected: set[str]
) -> None:
    """Kill it, and restore again."""
    write(tmp_path / "whole" / "state.sqlite", "old", "new")
    add_hook(tmp_path / "whole" / "state.sqlite", "new")

    def ended(name: str, kill_at: int = -1) -> tuple[Path, tuple[int, str]]:
        path = shutil.copytree(tmp_path / "whole", tmp_path / name) / "state.sqlite"
        return path, in_a_child(partial(restore_or_die, copy, path, kill_at))

    count = int(ended("not killed")[1][1])
    assert count > 12
    outcomes = set()
    for point in {"middle": [count // 2], "last": [count - 1], "all": range(count)}[points]:
        path, end = ended(str(point), point)
        assert end == (-signal.SIGKILL, "")
        outcomes.add(_after_a_kill(path, copy))
    assert outcomes == expected


def _after_a_kill(path: Path, copy: Path) -> str:
    try:
        has = " ".join(jobs_in(path))
        assert hooks_in(path) == (["new"] if has == "new old" else ["old"])
    except BadConfiguration as error:
        assert f"repeat it: mesos-gpu restore FILE --state {path}" in str(error)  # noqa: PT017
        has = "refused"
    restore(copy, path)
    assert (jobs_in(path), hooks_in(path)) == (["old"], ["old"])
    assert ["new", "old"] in [jobs_in(each) for each in kept_beside(path)], "what was there is never lost"
    return has


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root can write where another user can")
def test_restore_as_root_refuses_directories_of_other_users(path: Path, copy: Path) -> None:
    os.chown(path.parent, 12345, -1)
    with pytest.raises(BadConfiguration, match="belongs to another user") as refused:
        restore(copy, path)
    assert "sudo -u '#12345' mesos-gpu restore" in refused.value.remedy


def call(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*words])
    return done.exit_code, done.output


def test_restore_command_prints_its_result(path: Path, copy: Path) -> None:
    store = SqliteStore(path)
    code, said = call("restore", str(copy), "--state", str(path))
    assert (code, "another scheduler uses the state" in said) == (73, True)
    store.follow(store.key(), {"history": "h1"})
    store.close()
    backup(path, copy.with_name("of-several"))
    code, said = call("restore", str(copy), "--state", str(path), "--json")
    assert code == 0
    told = json.loads(said)
    (kept,) = kept_beside(path)
    assert told == {
        "file": str(copy), "state": str(path), "kept": str(kept), "hooks": True, "followed_log": False,
    }  # fmt: skip
    code, said = call("restore", str(copy.with_name("of-several")), "--state", str(path))
    assert code == 0
    assert "start the scheduler" in said
    assert "give each another path in --ha" in said
    assert ".replaced-" in said
