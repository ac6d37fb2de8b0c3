"""Refusal of a state that a later version of this program has written, whatever that has changed: 65, and a remedy."""

import contextlib
import io
import json
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from mesos_gpu.adapters.sqlite import schema
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.model.saves import SaveFramework

CHANGED: Final = {
    "its number alone": "",
    "facts in another form": "UPDATE facts SET value = x'00ff00'",
    "facts in another place": "ALTER TABLE facts RENAME TO words",
    "tables of jobs in another form": "DROP TABLE jobs; CREATE TABLE jobs (number INTEGER PRIMARY KEY)",
}
OPTIONS: Final[Sequence[tuple[str, ...]]] = ((), ("--accept-older-state",))
MASTER: Final = ("--master", "127.0.0.1:1", "--port", "0")  # no master is there: it does not come so far


def state_of_later(directory: Path, statements: str) -> Path:
    """Make a state as a later program leaves it, and the copy that it has made before."""
    directory.mkdir()
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


def starts() -> None:
    """Start a scheduler in this process for each list of options in standard input; print exit codes and words."""
    from mesos_gpu.scheduler.__main__ import main

    results = []
    for words in json.load(sys.stdin):
        sys.argv = ["scheduler", *words]
        code: object = 0
        with contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                main()
            except SystemExit as end:
                code = end.code
        results.append((code, said.getvalue()))
    json.dump(results, sys.stdout)


@dataclass(frozen=True, slots=True)
class Start:
    """A start on a state.

    Attributes:
        path: The state.
        before: Its bytes before the start.
        code: Exit code.
        said: Standard error.
    """

    path: Path
    before: bytes
    code: int
    said: str


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, tuple[str, ...]], Start]:
    """A start for each change and options, all in one process: imports take most of the time."""
    directory = tmp_path_factory.mktemp("states")
    cases = [(changed, more) for changed in CHANGED for more in OPTIONS]
    paths = [state_of_later(directory / str(n), CHANGED[changed]) for n, (changed, _) in enumerate(cases)]
    before = [path.read_bytes() for path in paths]
    words = [[*MASTER, "--state", str(path), *more] for path, (_, more) in zip(paths, cases, strict=True)]
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import starts; starts()"],
        input=json.dumps(words),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    return {
        case: Start(path, content, code, said)
        for case, path, content, (code, said) in zip(cases, paths, before, results, strict=True)
    }


@pytest.mark.parametrize("changed", CHANGED)
@pytest.mark.parametrize("more", OPTIONS)
def test_newer_state_is_refused_with_the_remedy_and_not_changed(
    started: Mapping[tuple[str, tuple[str, ...]], Start], changed: str, more: tuple[str, ...]
) -> None:
    start = started[changed, more]
    assert start.code == 65, start.said
    assert "Traceback" not in start.said
    known, later = schema.latest(), schema.latest() + 1
    assert f"has schema {later}, and this program knows {known} at most" in start.said
    assert f"mesos-gpu restore {schema.before(start.path, later)} --state {start.path}" in start.said
    assert start.path.read_bytes() == start.before
