"""What this program says of a state that a later one has written, whatever that one has changed: 65, and the remedy."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from mesos_gpu.adapters.sqlite import schema
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.model.saves import SaveFramework

CHANGED = {
    "its number alone": "",
    "facts in another form": "UPDATE facts SET value = x'00ff00'",
    "facts in another place": "ALTER TABLE facts RENAME TO words",
    "tables of jobs in another form": "DROP TABLE jobs; CREATE TABLE jobs (number INTEGER PRIMARY KEY)",
}
MASTER = ("--master", "127.0.0.1:1", "--port", "0")  # nobody is there: it does not come so far


def state_of_later(directory: Path, statements: str) -> Path:
    """A state as a later program leaves it, and the copy that it has made before."""
    path = directory / "state.sqlite"
    store = SqliteStore(path)
    store.save([SaveFramework("f1")])
    store.close()
    later = schema.latest() + 1
    schema.before(path, later).write_bytes(path.read_bytes())
    db = sqlite3.connect(path)
    db.executescript(f"{statements}; PRAGMA user_version={later}")
    db.close()
    Path(f"{path}.mark").write_bytes(b"a later form")
    return path


@pytest.mark.parametrize("changed", CHANGED)
@pytest.mark.parametrize("more", [(), ("--accept-older-state",)])
def test_a_scheduler_refuses_it_with_the_remedy_and_changes_nothing(
    changed: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    path = state_of_later(tmp_path, CHANGED[changed])
    before = path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "mesos_gpu.scheduler", *MASTER, "--state", str(path), *more],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 65, done.stderr
    assert "Traceback" not in done.stderr
    known, later = schema.latest(), schema.latest() + 1
    assert f"has schema {later}, and this program knows {known} at most" in done.stderr
    assert f"mesos-gpu restore {schema.before(path, later)} --state {path}" in done.stderr
    assert path.read_bytes() == before
