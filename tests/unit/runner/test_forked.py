"""A scheduler of a test that is forked is as one that was started by its command line."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mesos_gpu.local import stack
from tests.conftest import wait_until
from tests.starts import forked

pytestmark = pytest.mark.on_change("runner")


@pytest.fixture(scope="module")
def parent() -> Iterator[forked.Parent]:
    parent = forked.Parent()
    yield parent
    parent.close()


def started(parent: forked.Parent, log: Path, *arguments: str, **env: str) -> "subprocess.Popen[bytes]":
    with log.open("ab") as file:
        return parent([*stack.SCHEDULER, *arguments], {**os.environ, **env}, file.fileno())


def test_forked_scheduler_says_and_returns_as_a_started_one(parent: forked.Parent, tmp_path: Path) -> None:
    forks, starts = tmp_path / "forked", tmp_path / "started"
    for arguments in (["--help"], ["--no-such-option"], []):
        process = started(parent, forks, *arguments)
        assert isinstance(process, forked.Forked)
        with starts.open("ab") as file:
            code = stack.spawn([sys.executable, "-m", forked.PROGRAM, *arguments], os.environ, file.fileno())
        assert process.wait(60) == code.wait(60)
    assert forks.read_text() == starts.read_text() != ""


def test_forked_scheduler_has_its_own_session_arguments_and_environment(
    parent: forked.Parent, tmp_path: Path
) -> None:
    words = ["--master", "127.0.0.1:9", "--state", str(tmp_path / "state.sqlite"), "--port", "0"]
    process = started(parent, tmp_path / "log", *words, WHOSE="mine")
    shown = psutil.Process(process.pid)
    wait_until(
        "it is what it was asked for",
        lambda: [each for each in shown.cmdline() if each] == [*stack.SCHEDULER, *words],
    )
    assert shown.environ()["WHOSE"] == "mine"
    assert forked._PAD not in shown.environ()
    assert os.getsid(process.pid) == process.pid
    assert process.poll() is None
    wait_until("it serves", lambda: "REST interface" in (tmp_path / "log").read_text())
    process.send_signal(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL == process.poll()
    process.send_signal(signal.SIGKILL)  # of no effect


def test_forked_scheduler_is_started_where_its_environment_counts_at_a_start(
    parent: forked.Parent, tmp_path: Path
) -> None:
    process = started(parent, tmp_path / "log", "--help", LD_PRELOAD="")
    assert not isinstance(process, forked.Forked)
    assert process.wait(60) == 0


def test_forked_scheduler_is_started_where_its_place_differs(
    parent: forked.Parent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "log").open("ab") as file:
        process = parent(["env", *stack.SCHEDULER, "--help"], os.environ, file.fileno())
    assert not isinstance(process, forked.Forked)
    assert process.wait(60) == 0
    monkeypatch.chdir(tmp_path)  # where there may be another program
    process = started(parent, tmp_path / "log", "--help")
    assert not isinstance(process, forked.Forked)
    assert process.wait(60) == 0
