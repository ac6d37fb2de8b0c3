"""kill -9 of what a command in a running job hangs on: nothing of it is left, and whoever waits for it is told."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import Stack
from tests.clients import reporting
from tests.conftest import wait_until

pytestmark = [pytest.mark.cluster]


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with reporting(open_directory / "stack", 1) as stack:
        yield stack


def helper_of(pid: int) -> psutil.Process:
    """Return the helper of a command, a child of the executor that the command's process is below."""
    beside = [child for above in psutil.Process(pid).parents() for child in above.children()]
    [helper] = [each for each in beside if lives(each) and "helper.py" in " ".join(each.cmdline())]
    return helper


def lives(process: psutil.Process) -> bool:
    """Whether it runs; who has ended and was not waited for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_client(_stack: Stack, ran: "subprocess.Popen[str]", _pid: int) -> None:
    ran.kill()


def kill_helper(_stack: Stack, _ran: "subprocess.Popen[str]", pid: int) -> None:
    helper_of(pid).kill()


def kill_executor(_stack: Stack, _ran: "subprocess.Popen[str]", pid: int) -> None:
    executor = helper_of(pid).parent()
    assert executor is not None
    assert "mesos-gpu-executor" in " ".join(executor.cmdline())
    executor.kill()


def kill_scheduler(stack: Stack, _ran: "subprocess.Popen[str]", _pid: int) -> None:
    stack.scheduler.kill()
    stack.scheduler.start().wait()


VICTIMS: list[Callable[[Stack, "subprocess.Popen[str]", int], None]] = [
    kill_client,
    kill_helper,
    kill_executor,
    kill_scheduler,
]


@pytest.mark.parametrize(
    "kill",
    [pytest.param(kill, marks=[] if kill is kill_helper else [pytest.mark.long]) for kill in VICTIMS],
    ids=lambda each: each.__name__,
)
def test_channel_kill_leaves_no_process_and_ends_its_client(
    stack: Stack, kill: Callable[[Stack, "subprocess.Popen[str]", int], None]
) -> None:
    with Client(stack.url) as client:
        asked = {"name": "kills", "command": "exec sleep 3600", "cpus": 0.1, "mem_mib": 64}
        job = client.submit(asked)["id"]
        wait_until("it runs", lambda: client.job(job)["state"] == "running")
    deaf, deaf_too = "trap '' HUP TERM; echo $$", 'trap "" HUP TERM; echo $$'
    script = f"{deaf}; (exec setsid sh -c '{deaf_too}; exec sleep 3600') & wait; kill -9 $$"
    words = [sys.executable, "-m", "mesos_gpu", "exec", "--url", stack.url, job, "--", "sh", "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ran:
        try:
            assert ran.stdout is not None
            pids = [int(ran.stdout.readline()) for _ in range(2)]
            processes = [psutil.Process(pid) for pid in pids]
            watched = [*processes, helper_of(pids[0])]
            kill(stack, ran, pids[0])
            wait_until("nothing is left", lambda: not any(map(lives, watched)))
            killed = 128 + signal.SIGKILL  # the command, whose end may come through before the channel's
            codes = {"kill_client": {-signal.SIGKILL}, "kill_executor": {os.EX_UNAVAILABLE, killed}}
            assert ran.wait(60) in codes.get(kill.__name__, {os.EX_UNAVAILABLE}), ran.stderr
        finally:
            ran.kill()
    with Client(stack.url) as client:
        client.kill(job)
        wait_until("it has ended", lambda: client.job(job)["ended_at"])
