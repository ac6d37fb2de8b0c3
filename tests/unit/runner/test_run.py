"""The runner of the tests: whatever a test does to its process, the run ends, red, and names it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import wait_until
from tests.doubles import dockerd

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.on_change("runner")
#: Beside a test that does harm: the run does not wait for all of these.
SLOW = """
import time, pytest
@pytest.mark.parametrize("n", range(100))
def test_slow(n):
    time.sleep(3)
"""
ENDS_S = 120.0
#: Plugins that each process would take its time to load.
_LEFT_OUT = ("randomly", "schemathesis", "cacheprovider", "hypothesispytest", "anyio")


def start(directory: Path, body: str, *arguments: str, beside: str = "") -> "subprocess.Popen[str]":
    """A run, as `make test` runs it, of a file with one test of this body, and of another."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    (directory / "test_harm.py").write_text(
        f"import os, signal, subprocess, time\ndef test_before():\n    pass\ndef test_harm():\n{lines}"
    )
    (directory / "test_slow.py").write_text(beside)
    command = [
        sys.executable,
        "-m",
        "tests.runner.run",
        *arguments,
        "-c",
        os.devnull,
        f"--rootdir={directory}",
    ]
    command += [part for name in _LEFT_OUT for part in ("-p", f"no:{name}")] + ["-ra"]
    files = [str(path) for path in sorted(directory.glob("test_*.py"))]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["MESOS_GPU_TEST_HISTORY"] = str(directory / "history")
    return subprocess.Popen(
        [*command, *files], cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def running(words: str) -> list[str]:
    """Processes whose command line has these words, a null byte between two."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if words.encode() in (entry / "cmdline").read_bytes():
                pids.append(entry.name)
    return pids


def run(directory: Path, body: str, *arguments: str, beside: str = "") -> tuple[int, str]:
    """The exit status of a run, and what it says."""
    with start(directory, body, *arguments, beside=beside) as process:
        try:
            text, _ = process.communicate(timeout=ENDS_S)
        finally:
            process.kill()
    return process.returncode, text


TWO = ("-n2", "--max-worker-restart", "0", "--dist", "each", "-p", "tests.runner.parts")


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", TWO),
        ("os.killpg(0, signal.SIGKILL)", TWO),
        ("os._exit(0)", ("-n0",)),
    ],
    ids=["killed", "group killed", "exits"],
)
def test_run_ends_and_names_the_test_whose_worker_died(
    tmp_path: Path, body: str, arguments: tuple[str, ...]
) -> None:
    began_at = time.monotonic()
    status, text = run(tmp_path, body, *arguments, beside=SLOW)
    assert status != 0, text
    assert re.search(r"^FAILED test_harm.py::test_harm: the process that ran it died", text, re.M), text
    assert time.monotonic() - began_at < 60


@pytest.mark.parametrize(
    ("body", "limit", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGSTOP)", "--stuck", "not ended within 6 s"),
        ("time.sleep(600)", "--limit", "runs while the whole run took 6 s"),
    ],
    ids=["stopped", "too long"],
)
def test_run_ends_and_names_a_test_that_hangs(tmp_path: Path, body: str, limit: str, said: str) -> None:
    status, text = run(tmp_path, body, limit, "6", "--grace", "4", "-n0")
    assert status != 0, text
    assert re.search(rf"^FAILED test_harm.py::test_harm: {said}", text, re.M), text


def test_run_ends_processes_that_a_test_left_and_is_red(tmp_path: Path) -> None:
    mark = f"{os.getpid()}.{time.monotonic_ns() % 10**9}"
    status, text = run(tmp_path, f"os.system('(setsid sleep {mark} &) ; setsid sleep {mark} &')", "-n0")
    assert status == 1, text
    assert len(re.findall(rf"^FAILED left running: \d+ sleep {re.escape(mark)}", text, re.M)) == 2, text
    assert running(f"sleep\0{mark}") == []


@pytest.mark.skipif(bool(dockerd.missing()), reason=dockerd.missing())
def test_run_removes_an_engine_that_a_dead_test_left(tmp_path: Path) -> None:
    said = tmp_path / "said"
    body = (
        "from tests.doubles.dockerd import Dockerd\nengine = Dockerd()\nengine.start()\n"
        f"open({str(said)!r}, 'w').write(str(engine.directory))\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    status, text = run(tmp_path, body, "-n0")
    assert status != 0, text
    directory = Path(said.read_text())
    assert running(str(directory)) == []
    assert not directory.exists()
    assert str(directory) not in Path("/proc/self/mounts").read_text()


def test_run_shows_a_failure_once_and_when_it_happens(tmp_path: Path) -> None:
    mark = tmp_path / "go on"
    body = f"wait = {str(mark)!r}\nif not os.path.exists(wait):\n    raise ValueError('of ' + 'this')"
    beside = (
        f"import os, time\ndef test_waits():\n    while not os.path.exists({str(mark)!r}): time.sleep(0.1)\n"
    )
    with start(tmp_path, body, "-n0", beside=beside) as process:
        assert process.stdout is not None
        text = ""
        while "ValueError: of this" not in text:
            line = process.stdout.readline()
            assert line, text
            text += line
        mark.touch()
        text += process.stdout.read()
    assert process.returncode == 1, text
    assert text.count("ValueError('of ' + 'this')") == 1, text
    assert re.search(r"^FAILED .*test_harm.py::test_harm", text, re.M), text


def test_run_ends_by_ctrl_c_with_all_that_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = f"child = subprocess.Popen(['sleep', '600'])\nopen({str(pid)!r}, 'w').write(str(child.pid))\ntime.sleep(600)"
    with start(tmp_path, body, "-n0") as process:
        wait_until("the test runs", lambda: pid.exists() and pid.read_text())
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=ENDS_S)
    assert process.returncode != 0, text
    assert not Path("/proc", pid.read_text()).exists()


def test_run_without_trouble_is_green(tmp_path: Path) -> None:
    """Also where the whole takes longer than one test may, and its end is slow."""
    (tmp_path / "conftest.py").write_text("import time\ndef pytest_unconfigure():\n    time.sleep(2)\n")
    beside = "import time, pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_slow(n):\n    time.sleep(10)\n"
    status, text = run(tmp_path, "pass", *TWO, "--stuck", "28", beside=beside)
    assert status == 0, text
    assert "5 passed" in text


def test_run_computes_beside_the_tests_and_ends_it(tmp_path: Path) -> None:
    body = """
import pathlib
burners = [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if b"while True: pass" in p.read_bytes()]
assert len(burners) >= 2
"""
    status, text = run(tmp_path, body, "-n0", "--burn", "2")
    assert status == 0, text
    assert "left running" not in text
