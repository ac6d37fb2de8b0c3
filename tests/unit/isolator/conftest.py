"""Processes that tests of the host's side look at, and libraries of CUDA."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cuda import compiled


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return where the doubles of the driver's libraries are, and our libraries by their names."""
    return compiled(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="session")
def stubs(libraries: tuple[Path, dict[str, str]]) -> Path:
    """Return where the doubles of the driver's libraries are."""
    return libraries[0]


@pytest.fixture
def pids() -> Iterator[list[int]]:
    """Two processes that hold something, and live."""
    processes = [subprocess.Popen(["sleep", "300"]) for _ in range(2)]
    yield [process.pid for process in processes]
    for process in processes:
        process.kill()
        process.wait()
