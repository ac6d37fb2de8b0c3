"""Trees of real processes: nothing escapes by setsid, by forking twice, or by ignoring SIGTERM."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import wait_until

pytestmark = pytest.mark.kernel

REAPER = """
import os, subprocess, sys, time
from isolator.host import processes
processes.become_subreaper()
child = subprocess.Popen(["/bin/sh", "-c", sys.argv[1]], start_new_session=True)
while len(processes.descendants(os.getpid())) < int(sys.argv[2]):
    time.sleep(0.01)
print("up", flush=True)
sys.stdin.readline()
left = processes.kill_descendants()
print("left", left, flush=True)
"""


def children_named(mark: str) -> list[int]:
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", mark.encode()]:
                pids.append(int(entry.name))
    return pids


@pytest.mark.parametrize(
    ("script", "count"),
    [
        ("sleep {0} & sleep {0} & wait", 3),
        ("setsid sleep {0} & wait", 2),
        ("(setsid sh -c 'sleep {0} & sleep {0} & exit' &) ; sleep {0}", 4),
        ("trap '' TERM INT HUP; sleep {0} & wait", 2),
    ],
    ids=["plain", "setsid", "double fork", "ignores SIGTERM"],
)
def test_process_tree_ends_as_a_whole(script: str, count: int) -> None:
    mark = f"{os.getpid()}.{time.monotonic_ns() % 10**9}"
    process = subprocess.Popen(
        [sys.executable, "-c", REAPER, script.format(mark), str(min(count, 2))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "up\n"
        wait_until("the sleeps run", lambda: children_named(mark))
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "left []\n"
    assert children_named(mark) == []


def test_processes_of_a_dead_executor_are_found_and_ended() -> None:
    from isolator.host.processes import kill_leftovers, of_task

    task = f"job.{time.monotonic_ns()}"
    env = {**os.environ, "MESOS_TASK_ID": task}
    child = subprocess.Popen(["setsid", "sleep", "600"], env=env)
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, "MESOS_TASK_ID": task + "0"})
    try:
        wait_until("it carries the mark", lambda: of_task(task))
        assert kill_leftovers(task) == []
        assert child.wait(60) == -signal.SIGKILL
        assert other.poll() is None, "another task whose id only begins the same lives on"
    finally:
        other.kill()
        other.wait()
