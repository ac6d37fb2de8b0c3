"""Refusal of a state that a later version of this program has written, whatever that has changed: 65, and a remedy."""

import sqlite3
from pathlib import Path
from typing import Final

import pytest

from mesos_gpu.adapters.sqlite import schema
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.model.saves import SaveFramework
from tests.contract.conftest import Spawn

CHANGED: Final = {
    "its number alone": "",
    "facts in another form": "UPDATE facts SET value = x'00ff00'",
    "facts in another place": "ALTER TABLE facts RENAME TO words",
    "tables of jobs in another form": "DROP TABLE jobs; CREATE TABLE jobs (number INTEGER PRIMARY KEY)",
}
MASTER: Final = ("--master", "127.0.0.1:1", "--port", "0")  # no master is there: it does not come so far


def state_of_later(directory: Path, statements: str) -> Path:
    """Make a state as a later program leaves it, and the copy that it has made before."""
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
def test_newer_state_is_refused_with_the_remedy_and_not_changed(
    spawn: Spawn, changed: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    path, log = state_of_later(tmp_path, CHANGED[changed]), tmp_path / "log"
    before = path.read_bytes()
    code = spawn([*MASTER, "--state", str(path), *more], log).wait(60)
    said = log.read_text()
    assert code == 65, said
    assert "Traceback" not in said
    known, later = schema.latest(), schema.latest() + 1
    assert f"has schema {later}, and this program supports {known} at most" in said
    assert f"mesos-gpu restore {schema.before(path, later)} --state {path}" in said
    assert path.read_bytes() == before
