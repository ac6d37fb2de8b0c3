"""Shared by all tests: where clusters live, and how to wait."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


def wait_until(what: str, condition: Callable[[], T], timeout_s: float = 30.0) -> T:
    """The first true value of `condition()`; a test that waits longer fails and says for what."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.03)
    return value


@pytest.fixture(scope="module")
def open_directory() -> Iterator[Path]:
    """A directory that every user may pass: pytest's own are private, and jobs run as nobody."""
    path = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
