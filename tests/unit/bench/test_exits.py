"""The processes of a launch, by the kernel's accounts of what ends."""

import os
import subprocess
import sys

import pytest

from bench.exits import Parts, Thread, listener

#: Two threads that work; nothing of the one is on the other's account.
WORK = (
    "import threading; work = lambda: sum(range(3_000_000)); "
    "t = threading.Thread(target=work); t.start(); t.join(); work()"
)


def test_bench_exits_sum_cpu_time_by_depth_below_agents() -> None:
    threads = [
        Thread(11, 10, 0.5),  # a helper
        Thread(12, 11, 1.0), Thread(12, 11, 0.25),  # its executor, two threads
        Thread(13, 12, 0.125), Thread(14, 13, 0.0625),  # the task, and its child
        Thread(99, 98, 7.0), Thread(98, 1, 7.0),  # somebody else's
    ]  # fmt: skip
    parts = Parts.of(threads, [10])
    assert parts == Parts(helpers=0.5, executors=1.25, tasks=0.1875, processes=4)
    assert parts.each(tasks=2, empty_ms=100.0) == pytest.approx(
        {
            "helper_cpu_ms_per_task": 250.0,
            "executor_cpu_ms_per_task": 625.0,
            "task_cpu_ms_per_task": 93.8,
            "helper_empty_starts_per_task": 2.5,
            "executor_empty_starts_per_task": 6.25,
            "task_empty_starts_per_task": 0.94,
            "processes_per_task": 2.0,
        }
    )


def test_bench_exits_ignore_processes_whose_parents_go_round() -> None:
    assert Parts.of([Thread(1, 2, 1.0), Thread(2, 1, 1.0)], [10]).processes == 0


def test_bench_exits_have_the_cpu_time_of_all_threads() -> None:
    exits, why = listener()
    if exits is None:  # an ordinary user's, or in a container
        assert os.geteuid() != 0 or "taskstats" in why
        return
    with exits:
        process = subprocess.Popen([sys.executable, "-IS", "-c", WORK])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    parts = exits.parts([os.getpid()])
    assert parts is not None
    assert process.returncode == 0
    used_s = usage.ru_utime + usage.ru_stime
    assert parts.helpers == pytest.approx(used_s, rel=0.3, abs=0.03), "a child of this process"


def test_bench_exits_without_permission_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("bench.exits.socket.socket", refuse)
    exits, why = listener()
    assert exits is None
    assert why.endswith("(taskstats) are not available: Operation not permitted")
