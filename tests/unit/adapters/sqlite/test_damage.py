"""A state that a disk, a copy or a person has damaged is refused, or it is read as it was written: what runs is never
taken for what does not."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from mesos_gpu.adapters.sqlite import seal
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.errors import BadConfiguration, Damaged
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.saves import KeepEvent, Save, Saved, SaveFramework, SaveJob, SaveNode, SaveTask
from mesos_gpu.model.tasks.event import EventKind, LogEvent
from mesos_gpu.model.tasks.task import Task, TaskState

PAGE: Final = 4096
#: Within a page: its head, the places of its rows, and its rows.
PLACES: Final = (0, 3, 6, 9, 13, 40, 777, 2048, 3000, 4000, 4095)
#: In the file's own head: what it says of its size, its schema and its form.
HEAD: Final = (16, 18, 24, 28, 31, 36, 40, 44, 47, 56, 60, 63, 92, 96)


def batches() -> Iterator[list[Save]]:
    yield [SaveFramework("fw"), *(SaveNode(Node(AgentId(f"a{n}"), f"host-{n}")) for n in range(8))]
    for n in range(40):
        id = JobId(f"job-{n:03}")
        spec = JobSpec(id, command="train", gpus=1, env={"DATA": "x" * 200})
        job = Job(id, spec, 1.0, n, JobState.RUNNING)
        task = Task(
            TaskId(f"{id}.1"), AgentId("a1"), f"{id}.1", id, TaskState.RUNNING, 2.0, gpus=(GpuId(f"g{n}"),)
        )
        yield [SaveJob(job), SaveTask(task), KeepEvent(LogEvent(n, 1.5, EventKind.STARTED, id, "ann"))]


#: Writes it, and ends as a kill does, so that the newest is in the -wal alone.
_KILLED: Final = """
import os, sys
from pathlib import Path
from mesos_gpu.adapters.sqlite_store import SqliteStore
from tests.unit.adapters.sqlite.test_damage import batches
store = SqliteStore(Path(sys.argv[1]))
for batch in batches():
    store.save(batch)
os._exit(0)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state with a -wal."""
    path = tmp_path_factory.mktemp("killed") / "state.sqlite"
    subprocess.run([sys.executable, "-c", _KILLED, str(path)], check=True, timeout=60)
    assert Path(f"{path}-wal").stat().st_size > 20 * PAGE
    return path


@pytest.fixture(scope="module")
def whole(killed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All is in the file, and there is no -wal."""
    path = copy_of(killed, tmp_path_factory.mktemp("whole"))
    SqliteStore(path).close()
    assert not Path(f"{path}-wal").exists()
    assert path.stat().st_size > 10 * PAGE
    return path


def copy_of(path: Path, to: Path) -> Path:
    to.mkdir(exist_ok=True)
    for each in path.parent.glob(f"{path.name}*"):
        if not each.name.endswith((".lock", "-shm")):
            shutil.copyfile(each, to / each.name)
    return to / path.name


def read(path: Path) -> tuple[Saved, list[LogEvent]] | None:
    """Return the state and events that a scheduler begins with, or None if it refuses to start."""
    try:
        store = SqliteStore(path)
    except (Damaged, BadConfiguration) as error:
        assert str(path) in error.what  # noqa: PT017
        assert error.remedy  # noqa: PT017
        return None
    try:
        return store.load(), store.events()
    except Damaged as error:
        assert "restore it from a backup" in error.remedy  # noqa: PT017
        return None
    finally:
        store.close()


def flips(size: int) -> Iterator[tuple[int, int]]:
    """Yield places of the file, and bits of the byte there."""
    for place in HEAD:
        yield place, 0x01
    for page in range(size // PAGE):
        for place in PLACES:
            yield page * PAGE + place, 0xFF if place % 2 else 0x04


@pytest.mark.long
def test_state_damage_of_a_bit_in_any_page_is_noticed_or_harmless(whole: Path, tmp_path: Path) -> None:
    expected, body = read(copy_of(whole, tmp_path / "whole")), whole.read_bytes()
    path = copy_of(whole, tmp_path / "flipped")
    mark = Path(f"{path}.mark").read_bytes()
    refused = 0
    for place, bits in flips(len(body)):
        Path(f"{path}-wal").unlink(missing_ok=True)
        path.write_bytes(body[:place] + bytes([body[place] ^ bits]) + body[place + 1 :])
        Path(f"{path}.mark").write_bytes(mark)
        seen = read(path)
        assert seen in (None, expected), f"byte {place % PAGE} of page {place // PAGE + 1}"
        refused += seen is None
    assert refused > len(body) // PAGE * 4, "most of it says something"


#: Every so many pages are damaged.
STEPS: Final = [13, pytest.param(1, marks=pytest.mark.long)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("harm", ["cut in the middle of a page", "cut between pages", "zeros"])
def test_state_damage_of_missing_pages_is_noticed(whole: Path, tmp_path: Path, harm: str, step: int) -> None:
    body, path = whole.read_bytes(), copy_of(whole, tmp_path / "harmed")
    for page in range(0, len(body) // PAGE, step):
        at = page * PAGE
        path.write_bytes(
            {
                "cut in the middle of a page": body[: at + 1000],
                "cut between pages": body[: at or 512],
                "zeros": body[:at] + bytes(PAGE) + body[at + PAGE :],
            }[harm]
        )
        assert read(path) is None, f"page {page + 1}"


def test_state_damage_of_the_write_ahead_log_is_noticed(killed: Path, tmp_path: Path) -> None:
    wal = Path(f"{killed}-wal").read_bytes()
    harmed = [b"", bytes(len(wal)), wal[: len(wal) // 2], wal[:100], wal[: len(wal) - PAGE], wal[:32]]
    for place in range(0, len(wal), len(wal) // 16):
        harmed.append(wal[:place] + bytes([wal[place] ^ 0x10]) + wal[place + 1 :])
    expected = read(copy_of(killed, tmp_path / "whole"))
    for number, each in enumerate(harmed):
        path = copy_of(killed, tmp_path / str(number))
        Path(f"{path}-wal").write_bytes(each)
        assert read(path) in (None, expected), number
        if number < 4:
            assert read(path) is None
    path = copy_of(killed, tmp_path / "lost")
    Path(f"{path}-wal").unlink()
    assert read(path) is None


def test_state_without_mark_and_log_is_doubted(killed: Path, tmp_path: Path) -> None:
    """Nothing is launched before the master has said what runs."""
    path = copy_of(killed, tmp_path / "lost")
    for end in ("-wal", ".mark"):
        Path(f"{path}{end}").unlink()
    seen = read(path)
    assert seen is None or seen[0].doubtful or seen[0].framework_id is None


def test_state_file_that_is_empty_is_noticed(killed: Path, whole: Path, tmp_path: Path) -> None:
    for number, state in enumerate((killed, whole)):
        path = copy_of(state, tmp_path / str(number))
        os.truncate(path, 0)
        assert read(path) is None


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE tasks SET job_id = 'job-001' WHERE id = 'job-000.1'",
        "UPDATE tasks SET launched_at = 3.0",
        "UPDATE jobs SET id = 'job-100' WHERE id = 'job-000'",
        "UPDATE jobs SET body = CAST(replace(CAST(body AS TEXT), '\"running\"', '\"pending\"') AS BLOB)",
        "UPDATE nodes SET body = CAST('{}' AS BLOB)",
        "UPDATE facts SET value = 'f2' WHERE name = 'framework_id'",
        "UPDATE facts SET value = '100' WHERE name = 'batch'",
        "UPDATE events SET number = 1000 WHERE number = 1",
        "DELETE FROM jobs WHERE id = 'job-001'",
        "DELETE FROM tasks",
        "DELETE FROM events WHERE number = 39",
        "DELETE FROM facts WHERE name = 'sum'",
    ],
)
def test_state_damage_of_a_row_is_noticed(whole: Path, tmp_path: Path, change: str) -> None:
    path = copy_of(whole, tmp_path / "changed")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute(change).rowcount > 0
    assert read(path) is None


@pytest.mark.parametrize("step", STEPS)
def test_state_damage_of_swapped_pages_is_noticed_or_harmless(whole: Path, tmp_path: Path, step: int) -> None:
    """A disk that has lost a write leaves it so, or one that has put one where another belongs."""
    path = copy_of(whole, tmp_path / "later")
    old = path.read_bytes()
    store = SqliteStore(path)
    for batch in list(batches())[1:30:3]:
        store.save([replaced(save) for save in batch])
    store.close()
    new, mark = path.read_bytes(), Path(f"{path}.mark").read_bytes()
    assert len(new) == len(old)
    expected = read(path)
    count = len(new) // PAGE
    pages = range(0, count, step)
    stale = [(page, old[page * PAGE :][:PAGE]) for page in pages]
    misplaced = [(page, new[(page + by) % count * PAGE :][:PAGE]) for page in pages for by in (1, 5)]
    refused = 0
    for page, body in [*stale, *misplaced]:
        Path(f"{path}-wal").unlink(missing_ok=True)
        path.write_bytes(new[: page * PAGE] + body + new[(page + 1) * PAGE :])
        Path(f"{path}.mark").write_bytes(mark)
        seen = read(path)
        assert seen in (None, expected), f"page {page + 1}"
        refused += seen is None and body != new[page * PAGE :][:PAGE]
    assert refused > len(pages), "most of them say something"


def replaced(save: Save) -> Save:
    """Return a save of the same size: of the task at another time, or of the event for another owner."""
    if isinstance(save, SaveTask):
        return SaveTask(replace(save.task, launched_at=9.0))
    if isinstance(save, KeepEvent):
        return KeepEvent(replace(save.event, owner="bob"))
    return save


def test_state_damage_of_an_index_is_noticed(whole: Path, tmp_path: Path) -> None:
    """By it the tasks of a job are forgotten: those that it misses would be there again after a restart."""
    path = copy_of(whole, tmp_path / "index")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema=ON")
        db.execute(
            "UPDATE sqlite_schema SET sql = 'CREATE INDEX tasks_by_job ON tasks (id)' WHERE name = 'tasks_by_job'"
        )
    assert read(path) is None


def test_state_seal_covers_columns_as_sqlite_returns_them() -> None:
    data = seal.sealed("t", ("id", 2, None, 1.5), b"{}")
    assert seal.opened("t", ("id", 2.0, None, 1.5), data) == b"{}"
    for columns in (("id", 2, None, 1.25), ("id", 2, "", 1.5), ("ie", 2, None, 1.5), ("id", 2, None)):
        with pytest.raises(sqlite3.DatabaseError, match="wrong checksum"):
            seal.opened("t", columns, data)
    with pytest.raises(sqlite3.DatabaseError, match="a row of u"):
        seal.opened("u", ("id", 2, None, 1.5), data)


def test_state_rows_that_are_sealed_are_not_sealed_again() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE t (id TEXT, body BLOB)")
        db.execute("INSERT INTO t VALUES ('a', CAST('{}' AS BLOB))")
        table = seal.Unsealed("t", "SELECT id, body FROM t", "UPDATE t SET body = ? WHERE id IS ?")
        seal.seal_all(db, table)
        ((body,),) = db.execute("SELECT body FROM t").fetchall()
        assert seal.opened("t", ("a",), body) == b"{}"
        with pytest.raises(sqlite3.DatabaseError, match="has a checksum, although"):
            seal.seal_all(db, table)
