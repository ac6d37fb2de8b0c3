"""Shared by all tests: where clusters live, and how to wait."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import hypothesis
import pytest

from mesos_gpu.local import cluster

T = TypeVar("T")
# An example that took long says that the machine was busy: pytest-timeout bounds the test.
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")


def wait_until(what: str, condition: Callable[[], T], timeout_s: float = 30.0) -> T:
    """The first true value of `condition()`; a test that waits longer fails and says for what."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.03)
    return value


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts a cluster comes first, in its order: so no worker of xdist ends long after the others."""
    items.sort(key=lambda item: item.get_closest_marker("cluster") is None)


@pytest.fixture(scope="session", autouse=True)
def own_ports() -> Iterator[None]:
    """Tasks get ports that the clusters of other workers of xdist do not offer: all are on this machine."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    begin = 31000 if number == 0 else 15000 - 1000 * number  # what clusters themselves use lies between
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "TASK_PORTS", (begin, begin + 999))
        yield


@pytest.fixture(scope="module")
def open_directory() -> Iterator[Path]:
    """A directory that every user may pass: pytest's own are private, and jobs run as nobody."""
    path = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
