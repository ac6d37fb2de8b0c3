"""History of the tests that passed at their second try, over the runs of a user on this machine.

One unlucky try says little. A test that needed its second try twice within `MAX_RUNS` runs has a race: the run is red.
"""

import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import platformdirs

VARIABLE = "MESOS_GPU_TEST_HISTORY"
ARTEFACT = Path(__file__).parents[2] / "build" / "retried.jsonl"
MAX_RUNS = 20  # that are remembered
ALLOWED = 1  # second tries of a test in these runs


class Run(msgspec.Struct, frozen=True):
    """One run of tests.

    Attributes:
        at: Time of the end of the run, ISO 8601, UTC, for who reads the file.
        retried: Node ids of the tests that passed at the second try.
    """

    at: str
    retried: list[str]


class Retried(msgspec.Struct, frozen=True):
    """One test that passed at the second try, with the text of its first failure."""

    test: str
    failure: str


def default_path() -> Path:
    """Return the file of the history: `MESOS_GPU_TEST_HISTORY`, or one of the user's."""
    given = os.environ.get(VARIABLE)
    return Path(given) if given else platformdirs.user_state_path("mesos-gpu-tests") / "runs.jsonl"


def artefact_for(path: Path) -> Path:
    """Return the file of the retried tests of a run: in build/, or beside a history that was given."""
    return path.with_name(ARTEFACT.name) if os.environ.get(VARIABLE) else ARTEFACT


def read(path: Path) -> list[Run]:
    """Read a history; lines that another version wrote are left out."""
    runs = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            runs.append(msgspec.json.decode(line, type=Run))
        except msgspec.DecodeError:
            continue
    return runs


def record(failures: Mapping[str, str], path: Path, artefact: Path) -> list[str]:
    """Add a run to a history and write its retried tests to a file.

    Args:
        failures: Text of the first failure of each test that passed at the second try, by node id.
        path: File of the history.
        artefact: File of the retried tests of this run.

    Returns:
        The retried tests that needed a second try too often lately.
    """
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        runs = [*read(path), Run(now, sorted(failures))][-MAX_RUNS:]
        _write(path, runs)
    _write(artefact, [Retried(name, text) for name, text in sorted(failures.items())])
    counts = {name: sum(name in run.retried for run in runs) for name in sorted(failures)}
    return [name for name, count in counts.items() if count > ALLOWED]


def _write(path: Path, rows: list[Run] | list[Retried]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    new.replace(path)
