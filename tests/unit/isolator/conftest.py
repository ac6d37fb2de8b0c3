"""Processes that tests of the host's side look at."""

import subprocess
from collections.abc import Iterator

import pytest


@pytest.fixture
def pids() -> Iterator[list[int]]:
    """Two processes that hold something, and live."""
    processes = [subprocess.Popen(["sleep", "300"]) for _ in range(2)]
    yield [process.pid for process in processes]
    for process in processes:
        process.kill()
        process.wait()
