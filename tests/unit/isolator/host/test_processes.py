"""Processes of tasks among the children of an executor."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from isolator.host import processes


@pytest.fixture
def own_and_of_task() -> Iterator[tuple[int, int]]:
    """Process ids of a program of this process, and of one in a session of its own."""
    sleep = ["sleep", "600"]
    with subprocess.Popen(sleep) as own, subprocess.Popen(sleep, start_new_session=True) as other:
        yield own.pid, other.pid
        own.kill()
        other.kill()


def test_children_of_tasks_are_those_of_other_sessions(own_and_of_task: tuple[int, int]) -> None:
    own, of_task = own_and_of_task
    children = processes.children_of_tasks()
    assert of_task in children
    assert own not in children
    assert {own, of_task} <= set(processes.children(os.getpid()))


def test_reap_of_tasks_leaves_the_end_of_own_programs_to_this_process() -> None:
    with subprocess.Popen(["false"]) as own:
        os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
        processes.reap(of_tasks=True)
        assert own.wait() == 1
