"""The second try: one unlucky test does not make a run red, and no fault hides behind it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.runner import again
from tests.runner.again import Record

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.on_change("runner")
ENDS_S = 200.0
TWO = ("-n2", "--max-worker-restart", "0", "--dist", "each", "-p", "tests.runner.parts")
ONCE = """
import os, pytest
from pathlib import Path
def fails_once(name="one"):
    mark = Path(__file__).with_name(f"{name}.ran")
    if not mark.exists():
        mark.touch()
        raise ValueError("out of luck " + "with " + name)
"""


def run(directory: Path, *arguments: str, files: Mapping[str, str], ci: bool = False) -> tuple[int, str]:
    """A run as `make test` starts it, of these test files; its exit status and what it says."""
    for name, body in files.items():
        (directory / f"test_{name}.py").write_text(ONCE + body)
    command = [
        sys.executable,
        "-m",
        "tests.runner.run",
        "--again",
        *arguments,
        "-c",
        os.devnull,
        f"--rootdir={directory}",
    ]
    command += ["-p", "no:schemathesis", "-p", "no:anyio", "-p", "no:cacheprovider", str(directory)]
    for plugin, needs_it in ("hypothesispytest", "hypothesis"), ("randomly", "random"):
        if not any(needs_it in body for body in files.values()):
            command += ["-p", f"no:{plugin}"]  # which each process would take its time to load
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**clean, "MESOS_GPU_TEST_HISTORY": str(directory / "history"), **({"CI": "1"} if ci else {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        text, _ = process.communicate(timeout=ENDS_S)
    finally:
        process.send_signal(signal.SIGTERM)  # it ends what it started
        process.wait()
    return process.returncode, text


@pytest.mark.parametrize("arguments", [TWO, ("-n0",)], ids=["workers", "one process"])
def test_second_try_that_passes_is_green_and_named(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """The second run has the one of the parametrized tests that failed, and nothing beside it."""
    bodies = {
        "one": "@pytest.mark.parametrize('x', ['a/b', 'c::d [e]'])\n"
        "def test_one(x):\n    print('ran', x)\n    if x != 'a/b': fails_once()\n",
        "two": "def test_two(): pass\n",
        "three": "@pytest.fixture\ndef up(): fails_once('three')\ndef test_three(up): pass\n",
    }
    status, text = run(tmp_path, *arguments, files=bodies)
    assert status == 0, text
    named = re.findall(r"^passed at the second try: (.*), which failed with:$", text, re.M)
    assert sorted(named) == ["test_one.py::test_one[c::d [e]]", "test_three.py::test_three"], text
    last = text.rpartition("a second try, with nothing beside it")[2]
    assert "2 passed" in last, text
    assert "ValueError: out of luck with one" in last, text
    assert text.splitlines()[-1] == "2 tests failed at first and passed at the second try: this run is green"


def test_leak_check_frees_files_that_a_failed_test_left_open(tmp_path: Path) -> None:
    bodies = {
        "one": "import socket\ndef test_one():\n    left = [socket.socket()]\n    left.append(left)\n    fails_once()\n"
        "    left[0].close()\n",
        "two": "import gc\ndef test_two(): gc.collect()\n",
    }
    status, text = run(tmp_path, "-n0", "-W", "error", files=bodies)
    assert status == 0, text
    assert "1 test failed at first and passed at the second try" in text


DRAWS = """
import random
def test_draws():
    with open(f"{__file__}.seed", "a") as file:
        file.write(f"{random.random()} ")
    fails_once()
"""


def test_second_try_has_the_seed_of_the_first(tmp_path: Path) -> None:
    status, text = run(tmp_path, *TWO, files={"one": DRAWS, "two": "def test_two(): pass\n"})
    assert status == 0, text
    first, second = (tmp_path / "test_one.py.seed").read_text().split()
    assert first == second


def test_second_try_that_fails_is_red(tmp_path: Path) -> None:
    """Another test that passes at the second try does not mend that."""
    bodies = {"one": "def test_one(): fails_once()\n", "two": "def test_two(): assert 1 == 2\n"}
    status, text = run(tmp_path, "-n0", files=bodies)
    assert status == 1, text
    assert "FAILED also at the second try: test_two.py::test_two" in text
    assert "green" not in text


def test_second_try_that_is_skipped_is_red(tmp_path: Path) -> None:
    body = (
        "def test_one():\n    try: fails_once()\n    except ValueError: raise\n    pytest.skip('why not')\n"
    )
    status, text = run(tmp_path, "-n0", files={"one": body})
    assert status == 1, text
    assert "FAILED also at the second try: test_one.py::test_one" in text


@pytest.mark.parametrize(("tests", "status"), [(again.MAX, 0), (again.MAX + 1, 1)])
def test_second_try_is_refused_after_many_failures(tmp_path: Path, tests: int, status: int) -> None:
    body = f"@pytest.mark.parametrize('n', range({tests}))\ndef test_one(n): fails_once(str(n))\n"
    ended, text = run(tmp_path, "-n0", files={"one": body})
    assert ended == status, text
    assert ("no second try: 11 tests failed, more than 10" in text) is bool(status), text


DIES = "def test_one():\n    try: fails_once()\n    except ValueError: {}\n"
LEAVES = "import subprocess\ndef test_one():\n    subprocess.Popen(['sleep', '31.5'])\n    fails_once()\n"
NOT_COLLECTED = "fails_once()\ndef test_one(): pass\n"
CLEAN_UP = "@pytest.fixture\ndef up():\n    yield\n    fails_once()\ndef test_one(up): pass\n"
PROPERTY = """
from hypothesis import given, strategies
@given(strategies.integers())
def test_property(n): fails_once()
"""
LEAK = """
import warnings
def test_leak():
    try: fails_once()
    except ValueError: warnings.warn("unclosed file", ResourceWarning)
"""
DIED = "FAILED test_one.py::test_one: the process that ran it died"
FINAL = "no second try: test_one.py"


@pytest.mark.parametrize(
    ("body", "arguments", "said"),
    [
        (DIES.format("os.kill(os.getpid(), 9)"), TWO, DIED),
        (DIES.format("os._exit(1)"), ("-n0",), DIED),
        (LEAVES, ("-n0",), "FAILED left running"),
        (NOT_COLLECTED, ("-n0",), "rror during collection"),
        (NOT_COLLECTED, ("-n0", "--continue-on-collection-errors"), f"{FINAL}: cannot be collected"),
        (
            "def test_one(): fails_once()\n",
            ("-n0", "-x"),
            "no second try: the run ends at the first failures",
        ),
        (CLEAN_UP, ("-n0",), f"{FINAL}::test_one: its clean-up failed"),
        (PROPERTY, ("-n0",), f"{FINAL}::test_property: an example breaks its property"),
        (LEAK, ("-n0", "-W", "error"), f"{FINAL}::test_leak: ResourceWarning"),
    ],
    ids=["killed", "exits", "process", "collection", "some", "maxfail", "clean-up", "property", "leak"],
)
def test_second_try_is_refused_to_faults_that_load_does_not_cause(
    tmp_path: Path, body: str, arguments: tuple[str, ...], said: str
) -> None:
    """Each would pass the second time, and has none."""
    status, text = run(tmp_path, *arguments, files={"one": body})
    assert status != 0, text
    assert said in text
    assert "a second try, with nothing beside it" not in text


def test_second_try_is_refused_after_a_skip_that_is_not_allowed(tmp_path: Path) -> None:
    bodies = {"one": "def test_one(): fails_once()\n", "two": "def test_two(): pytest.skip('no dockerd')\n"}
    status, text = run(tmp_path, "-p", "tests.runner.skips", "-n0", files=bodies, ci=True)
    assert status == 1, text
    assert "no second try: a skip that is not allowed: test_two.py::test_two: no dockerd" in text


def test_second_try_that_leaves_a_process_is_red(tmp_path: Path) -> None:
    body = "import subprocess\ndef test_one():\n    fails_once()\n    subprocess.Popen(['sleep', '32.5'])\n"
    status, text = run(tmp_path, "-n0", files={"one": body})
    assert status == 1, text
    assert "left running" in text
    assert "green" not in text


def test_second_try_shows_the_end_of_a_long_failure() -> None:
    first = Record(failed={"t.py::test_a": "\n".join(map(str, range(100))), "t.py::test_b": "short"})
    lines = again.words(first)
    assert lines[2:4] == ["    ...", "    40"]
    assert "    short" in lines
    assert lines[-1].startswith("2 tests failed at first")


@pytest.mark.parametrize(("again_s", "status"), [(0.0, 0), (4.0, 1)])
def test_second_try_measures_a_costly_test_alone(tmp_path: Path, again_s: float, status: int) -> None:
    body = (
        "import time\ndef test_one():\n    mark = Path(__file__).with_name('one.ran')\n"
        f"    cost_s = {again_s} if mark.exists() else 4.0\n    mark.touch()\n"
        "    end_s = time.process_time() + cost_s\n    while time.process_time() < end_s: pass\n"
    )
    unit = tmp_path / "unit"
    unit.mkdir()
    (unit / "conftest.py").write_text("import sys\n")
    (unit / "test_one.py").write_text(ONCE + body)
    code, text = run(tmp_path, "-n0", "-p", "tests.runner.budget", "--budget", files={})
    assert code == status, text
    assert ("within its cap when measured alone: unit/test_one.py::test_one: " in text) == (status == 0), text
