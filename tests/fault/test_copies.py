"""kill -9 of every part of a copy, both ways: nothing is half under its name, and no process is left."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from mesos_gpu.adapters.trees.receiving import PART
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.fault.test_kill9 import executors

MOVED = 1 << 20  # bytes after which it is killed
pytestmark = [pytest.mark.cluster, pytest.mark.long]


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(1)]) as running:
        yield running


class Copies:
    """A copy from a job and one to it, both under way."""

    def __init__(self, stack: Stack, client: Client, here: Path) -> None:
        command = "truncate -s 20G big; echo ready; exec sleep 3600"
        self.job = client.submit({"name": "copies", "command": command, "cpus": 0.1, "mem_mib": 256})["id"]
        wait_until("it runs", lambda: client.job(self.job)["state"] == "running")
        wait_until(
            "it is ready",
            lambda: "ready" in client.logs(self.job, stream="stdout", offset=0, length=99)["data"],
        )
        self.stack, self.here = stack, here
        self.executor = wait_until("its executor", lambda: executors(stack, self.job))[0]
        self.sandbox = Path(self.executor.environ()["MESOS_DIRECTORY"])
        self.down = self._start(f"{self.job}:big", str(here / "new"), subprocess.DEVNULL)
        self.up = self._start("-", f"{self.job}:new", subprocess.PIPE)
        assert self.up.stdin is not None
        self.up.stdin.write(bytes(2 * MOVED))
        self.up.stdin.flush()
        wait_until("it comes", lambda: moving(here))
        wait_until("it goes", lambda: moving(self.sandbox))
        # A session of the task that no command needs has ended, and its executor has not collected it yet.
        children = [each for each in self.executor.children() if each.status() != psutil.STATUS_ZOMBIE]
        self.helpers = [each for each in children if "helper.py" in " ".join(each.cmdline())]
        self.workers = [each for helper in self.helpers for each in helper.children(recursive=True)]
        assert len(self.helpers) == 2
        assert len(self.workers) >= 2

    def _start(self, source: str, target: str, stdin: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "mesos_gpu", "cp", "--url", self.stack.url, source, target]
        return subprocess.Popen(command, stdin=stdin, stderr=subprocess.PIPE)

    def __enter__(self) -> "Copies":
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self.down, self.up):
            each.kill()
            each.communicate()


def parts(directory: Path) -> list[Path]:
    return [directory / name for name in os.listdir(directory) if name.startswith(PART)]


def moving(directory: Path) -> bool:
    return any(part.stat().st_size >= MOVED for part in parts(directory))


def running(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Find those that have not ended: one whose helper was killed is collected with its task."""
    alive = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


def kill_clients(copies: Copies) -> None:
    copies.down.kill()
    copies.up.kill()


def kill_helpers(copies: Copies) -> None:
    for each in copies.helpers:
        each.kill()


def kill_workers(copies: Copies) -> None:
    for each in copies.workers:
        each.kill()


def kill_executor(copies: Copies) -> None:
    copies.executor.kill()


def kill_scheduler(copies: Copies) -> None:
    copies.stack.scheduler.kill()


def interrupt_clients(copies: Copies) -> None:
    copies.down.send_signal(signal.SIGINT)
    copies.up.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("kill", "left_here", "left_there"),
    [
        (interrupt_clients, False, False),
        (kill_clients, True, False),
        (kill_helpers, False, False),
        (kill_workers, False, True),
        (kill_executor, False, True),
        (kill_scheduler, False, False),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_copy_whose_part_is_killed_leaves_no_half_file_and_no_process(
    stack: Stack, tmp_path: Path, kill: Callable[[Copies], None], left_here: bool, left_there: bool
) -> None:
    with Client(stack.url) as client, Copies(stack, client, tmp_path) as copies:
        kill(copies)
        codes = {copies.down.wait(60), copies.up.wait(60)}
        assert 0 not in codes
        wait_until("no process is left", lambda: not running([*copies.helpers, *copies.workers]))
        assert not (tmp_path / "new").exists()
        assert not (copies.sandbox / "new").exists()
        assert bool(parts(tmp_path)) == left_here
        assert bool(parts(copies.sandbox)) == left_there
        if kill is kill_scheduler:
            stack.scheduler.start().wait()
        client.kill(copies.job)
        wait_until("the job has ended", lambda: client.job(copies.job)["ended_at"])
