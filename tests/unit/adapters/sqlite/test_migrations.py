"""States of every earlier schema, each as the last program wrote it that had that schema, are brought to the latest
one with all that they have; a kill in the middle leaves the one or the other, and the way back is told."""

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from mesos_gpu.adapters.hooks.store import HookStore, hooks_of
from mesos_gpu.adapters.sqlite import copies, schema
from mesos_gpu.adapters.sqlite.large import TABLE
from mesos_gpu.adapters.sqlite.seal import SEALED_FROM, SUMMED_FROM
from mesos_gpu.adapters.sqlite.version import version_of
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.engine.state import State
from mesos_gpu.errors import Damaged
from mesos_gpu.model.saves import NOUNS, Noun, Saved, SaveFramework
from tests.unit.adapters.sqlite.children import in_a_child

STATES: Final = Path(__file__).parents[3] / "data" / "states"
LATEST: Final = schema.steps()[-1][0]
EARLIER: Final = range(1, LATEST)
#: Tables that no noun is declared for: what is kept of use and of events.
RECORDS: Final = ("used_accounts", "used_spans", "used_days", "used_waits", "events", "past_jobs")


def old_state(path: Path, version: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as db:
        db.executescript((STATES / f"{version:02}.sql").read_text())
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "scheduler.sqlite"


def rows(path: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(f"SELECT * FROM {table}").fetchall()


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as db:
        return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def version_in(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return version_of(db)


def has_all(new: Any, old: Any) -> bool:
    """Whether what was said is said still; more may be said now."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(name in new and has_all(new[name], old[name]) for name in old)
    if isinstance(old, list):
        return isinstance(new, list) and len(new) == len(old) and all(map(has_all, new, old))
    return bool(new == old)


def plain(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def _without_large(body: str | bytes) -> str | bytes:
    """A body without the mark and the digest of large fields."""
    return body[65:] if body[:1] == b"@" else body


def values_of(saved: Saved, noun: Noun) -> list[Any]:
    values = getattr(saved, noun.plural)
    return [plain(value) for value in (values if noun.key else [values])]


def loaded(path: Path) -> Saved:
    store = SqliteStore(path)
    try:
        return store.load()
    finally:
        store.close()


def test_migration_data_has_rows_in_each_table_of_each_earlier_schema() -> None:
    assert sorted(int(each.stem) for each in STATES.glob("*.sql")) == list(EARLIER)
    declared = {noun.table or noun.plural for noun in NOUNS if noun.key} | {"facts", TABLE, *RECORDS}
    for version in EARLIER:
        with closing(sqlite3.connect(":memory:")) as db:
            db.executescript((STATES / f"{version:02}.sql").read_text())
            assert version_of(db) == version
            names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            assert names <= declared
            empty = [name for name in names if not db.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchall()]
        assert empty == [], f"schema {version}"


@pytest.mark.parametrize("version", EARLIER)
def test_migration_keeps_all_of_a_state_of_an_earlier_schema(version: int, path: Path) -> None:
    old_state(path, version)
    there = {table: rows(path, table) for table in tables(path)}
    saved = loaded(path)
    assert version_in(path) == LATEST
    state = State.restored(5.0, saved)
    for noun in NOUNS:
        if noun.key:
            bodies = [row[-1] for row in there.get(noun.table or noun.plural, ())]
        else:
            bodies = [value for name, value in there["facts"] if name == (noun.table or noun.plural)]
        new = values_of(saved, noun)
        assert not noun.key or len(new) == len(bodies)
        for body in bodies:
            old = json.loads(_without_large(body if version < SEALED_FROM else body[:-9]))
            assert [each for each in new if has_all(each, old)] != [], f"{noun.plural}: {old}"
    for table in RECORDS:
        old = there.get(table, [])
        if (table == "events" and version < SEALED_FROM) or (table == "past_jobs" and version < SUMMED_FROM):
            kept = [(*beside, last[:-9]) for *beside, last in rows(path, table)]
        else:
            kept = rows(path, table)
        width = len(old[0]) if old else 0  # columns of later steps come after those
        assert [row[:width] for row in kept] == old
    kept = dict(there["facts"])["framework_id"]
    assert saved.framework_id == (kept if version < SEALED_FROM else kept[:-9])
    assert set(state.work.jobs) == {row[0] for row in there["jobs"]}
    assert set(state.work.tasks) == {row[0] for row in there["tasks"]}
    assert set(state.cluster.nodes) == {row[0] for row in there["nodes"]}


@pytest.mark.parametrize("version", EARLIER)
def test_migration_leaves_a_state_that_is_written_and_read(version: int, path: Path) -> None:
    saved = loaded(old_state(path, version))
    store = SqliteStore(path)
    store.save([SaveFramework("another")])
    store.close()
    again = loaded(path)
    assert again.framework_id == "another"
    assert (again.jobs, again.tasks, again.nodes) == (saved.jobs, saved.tasks, saved.nodes)


def test_migration_keeps_a_copy_of_the_state_before(path: Path) -> None:
    old_state(path, 7)
    HookStore(hooks_of(path)).close()
    before = {table: rows(path, table) for table in tables(path)}
    loaded(path)
    copy = schema.before(path, LATEST)
    assert copy.name == f"scheduler.sqlite.before-v{LATEST}"
    assert version_in(copy) == 7
    assert {table: rows(copy, table) for table in tables(copy)} == before
    assert hooks_of(copy).is_file()
    assert copy.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    taken = copy.stat().st_mtime_ns
    loaded(path)
    assert copy.stat().st_mtime_ns == taken, "only where there is something to do"


def test_migration_of_a_new_state_copies_no_file(path: Path) -> None:
    loaded(path)
    assert not schema.before(path, LATEST).exists()


def bring_up(path: Path, kill_at: int) -> int:
    """Bring up a state; return the number of statements, or be killed.

    Args:
        path: The state.
        kill_at: Number of the statement at which this process is killed; negative: before the copy is whole.
    """
    count = 0

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def counted(script: str) -> Iterator[str]:
        nonlocal count
        for each in statements_of(script):
            if count == kill_at:
                die()
            count += 1
            yield each

    statements_of = schema._statements
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "_statements", counted)
        if kill_at < 0:
            patch.setattr(copies, "sync", die)
        SqliteStore(path)
    return count


@pytest.fixture(scope="module")
def brought_up(tmp_path_factory: pytest.TempPathFactory) -> tuple[Saved, int]:
    """Bring up a state that is not killed, by a number of statements."""
    path = old_state(tmp_path_factory.mktemp("whole") / "state.sqlite", 3)
    statements = int(in_a_child(lambda: bring_up(path, 1000))[1])
    assert statements > 10
    return loaded(path), statements


@pytest.mark.parametrize("part", [None, 0.0, 0.5, 1.0])
def test_migration_that_is_killed_leaves_the_old_or_the_new_state(
    path: Path, brought_up: tuple[Saved, int], part: float | None
) -> None:
    """Kill it before the copy is whole, or after a part of the statements."""
    whole, statements = brought_up
    old_state(path, 3)
    before = {table: rows(path, table) for table in tables(path)}
    kill_at = -1 if part is None else round(part * (statements - 1))
    assert in_a_child(partial(bring_up, path, kill_at)) == (-signal.SIGKILL, "")
    assert version_in(path) == 3
    assert {table: rows(path, table) for table in tables(path)} == before
    assert loaded(path) == whole
    assert [each.name for each in path.parent.glob(".*.part")] == []


def test_migration_copy_is_named_by_an_earlier_program(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(old_state(path, 7))
    every = schema.steps()
    monkeypatch.setattr(schema, "steps", lambda: every[:7])
    with pytest.raises(Damaged, match=f"has schema {LATEST}, and this program supports 7 at most") as refused:
        SqliteStore(path)
    assert f"mesos-gpu restore {schema.before(path, LATEST)} --state {path}" in refused.value.remedy
    monkeypatch.setattr(schema, "steps", lambda: every[:6])
    with pytest.raises(Damaged) as refused:
        SqliteStore(path)
    assert "restore a backup that has schema 6 at most" in refused.value.remedy, "that copy is too new, too"
    schema.before(path, LATEST).write_bytes(b"no state at all" * 100)
    with pytest.raises(Damaged, match="supports 6 at most"):
        SqliteStore(path)
    monkeypatch.undo()
    assert version_in(path) == LATEST
    assert loaded(path).jobs


def test_migration_step_that_fails_leaves_the_old_state(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_state(path, 5)
    every = schema.steps()
    monkeypatch.setattr(schema, "steps", lambda: [*every, (LATEST + 1, "CREATE TABLE jobs (id TEXT);")])
    with pytest.raises(Damaged, match="already exists"):
        SqliteStore(path)
    assert version_in(path) == 5
    monkeypatch.undo()
    assert loaded(path).jobs
