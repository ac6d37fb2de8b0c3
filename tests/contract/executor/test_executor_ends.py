"""Ends of tasks on the host's file system: the processes that get SIGTERM, those that live on, and SIGKILL."""

import os
import sys
import time
from pathlib import Path

import pytest

from mesos_gpu.model.jobs.job import NoticeSignal
from mesos_gpu.model.tasks.assignment import Outcome
from tests.conftest import wait_until
from tests.contract.executor.test_executor_notices import give
from tests.endings import CASES, WORKERS, Case
from tests.hosts import Host

LONG_S = 60.0  # no test waits for the end of such a grace


def launch(one: Host, command: str, **assignment: object) -> None:
    one.launch(command, **{"kill_grace_s": LONG_S, **assignment})
    wait_until("the command is at work", lambda: "ready\n" in one.stdout())


def expected(case: Case) -> Outcome:
    if case.ignores:
        return Outcome(signal=9)
    return Outcome(signal=15) if case.code is None else Outcome(exit_status=case.code)


@pytest.mark.parametrize("name", CASES)
def test_sigterm_lets_programs_save_and_begins_nothing_else(one: Host, name: str) -> None:
    case = CASES[name]
    launch(one, case.command.format(one.sandbox))
    began = time.monotonic()
    one.kill(grace_s=0.5 if case.ignores else None)
    message, outcome = one.end("TASK_KILLED")
    assert (message, outcome) == ("killed on request", expected(case))
    assert one.stdout() == f"ready\n{case.says}"
    assert time.monotonic() - began < LONG_S / 2


@pytest.mark.parametrize("way", ["time limit", "shutdown", "SIGTERM"])
def test_each_way_to_end_a_task_lets_its_worker_live_while_it_saves(one: Host, way: str) -> None:
    case = CASES["a worker that serves"]
    launch(one, case.command.format(one.sandbox), **({"timeout_s": 1.0} if way == "time limit" else {}))
    if way == "shutdown":
        one.agent.send({"type": "SHUTDOWN"})
    elif way == "SIGTERM":
        one.process.terminate()
    _, outcome = one.end("TASK_FAILED" if way == "time limit" else "TASK_KILLED")
    assert outcome == Outcome(exit_status=0)
    assert one.stdout() == f"ready\n{case.says}"


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("fork", "default"),
        ("fork", "inherits"),
        ("fork", "ends"),
        ("spawn", "ends"),
        ("forkserver", "ends"),
    ],
)
@pytest.mark.parametrize("shell", ["{}", "{}; echo next"], ids=["first", "below a shell"])
def test_workers_of_python_live_while_their_program_saves(
    one: Host, open_directory: Path, method: str, what: str, shell: str
) -> None:
    program = open_directory / f"workers-{time.monotonic_ns()}.py"
    program.write_text(WORKERS)
    launch(one, shell.format(f"{sys.executable} {program} {method} {what}"))
    began = time.monotonic()
    one.kill()
    one.end("TASK_KILLED")
    assert one.stdout() == "ready\nsaved 42\n"
    assert time.monotonic() - began < LONG_S / 2


def test_notice_signal_goes_to_the_program_and_not_to_its_workers(one: Host, open_directory: Path) -> None:
    program = open_directory / f"workers-{time.monotonic_ns()}.py"
    program.write_text(WORKERS)
    launch(one, f"{sys.executable} {program} fork inherits")
    give(one, signal=NoticeSignal.SIGUSR1)
    one.end("TASK_FINISHED")
    assert one.stdout() == "ready\nsaved 42\n"


def test_grace_that_is_too_short_ends_in_sigkill_of_all(one: Host) -> None:
    launch(one, f"sh -c 'trap \"\" TERM; echo ready; sleep 600.{os.getpid()}' & sleep 600 & wait; echo next")
    began = time.monotonic()
    one.kill(grace_s=0.5)
    assert one.end("TASK_KILLED")[1] == Outcome(signal=9)
    assert 0.5 <= time.monotonic() - began < LONG_S / 2
    assert one.stdout() == "ready\n"


def test_program_that_has_ended_leaves_no_grace_to_what_handles_nothing(one: Host) -> None:
    launch(one, "trap 'exit 7' TERM; setsid sleep 600 & echo ready; while :; do sleep 0.02; done")
    began = time.monotonic()
    one.kill()
    assert one.end("TASK_KILLED")[1] == Outcome(exit_status=7)
    assert time.monotonic() - began < LONG_S / 2
