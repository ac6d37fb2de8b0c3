"""Fixtures and settings of all tests: places of clusters, waiting, examples of properties."""

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import hypothesis
import pytest
from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from mesos_gpu.adapters.audit import host
from mesos_gpu.local import stack, task_ports
from mesos_gpu.local.own_ports import free_port
from tests.property.examples import RANDOM
from tests.runner import progress
from tests.starts import forked

if TYPE_CHECKING:
    from tests.certificates import Authority

T = TypeVar("T")
TESTS = Path(__file__).parent
# No deadline: a slow example shows a busy machine, and pytest-timeout bounds each test. Examples are the same in each
# run, so that a change is not refused for a defect of other code; MESOS_GPU_TEST_RANDOM=1 draws new ones.
hypothesis.settings.register_profile(
    "gate",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=not RANDOM,
)
hypothesis.settings.load_profile("gate")
# Files of a driver that their group can write are refused, and some distributions give users a umask of 002.
os.umask(0o022)

if (
    os.geteuid() == 0 and os.path.isdir("/srv") and progress.VARIABLE not in os.environ
):  # else tests/runner/run.py says
    tempfile.tempdir = "/srv"  # where tasks see what tests make: each has a /tmp of its own


def wait_until(what: str, condition: Callable[[], T], timeout_s: float = 120.0) -> T:
    """Return the first true value of `condition()`. A test that waits longer fails, and its message has `what`."""
    began_at = time.monotonic()
    while not (value := condition()):
        waited_s = time.monotonic() - began_at
        assert waited_s < timeout_s, f"{what}: not within {timeout_s:g} s"
        time.sleep(
            min(0.02 + 0.1 * waited_s, 0.25)
        )  # what takes long leaves the processor to what it waits for
    return value


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Collect no garbage while tests are collected: nearly all objects stay, and looking at them takes a fifth of the
    time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection, and collect rarely: with the default threshold it takes an
    eighth of the time of tests that compute."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def same_examples() -> Iterator[None]:
    """Keep constants of the loaded modules out of the examples of Hypothesis, which would change with each change of
    the product and with the tests that run before. Where examples are drawn at random, they are welcome.

    Hypothesis makes its tables of characters here, which takes two seconds in a fresh checkout, and not in a test.
    """
    charmap.charmap()
    charmap.intervals_from_codec("utf-8")  # the alphabet of `st.text()`
    with pytest.MonkeyPatch.context() as patch:
        if not RANDOM:
            patch.setattr(providers, "_get_local_constants", Constants)
            providers.CONSTANTS_CACHE.cache.clear()
        yield
        providers.CONSTANTS_CACHE.cache.clear()


@pytest.fixture(scope="session", autouse=True)
def host_audit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Commands of root keep their records here, and not in this host's own log."""
    at = tmp_path_factory.mktemp("host-audit") / "audit"
    os.environ[host.VARIABLE] = str(at)
    yield at
    del os.environ[host.VARIABLE]


@contextmanager
def own_block(name: str, numbers: range, size: int) -> Iterator[range]:
    """Hold some of the numbers of a machine-wide resource that no other process of tests on this machine has."""
    held = task_ports.hold_first(f"mesos-gpu-tests-{name}", numbers[::size])
    if held is None:
        raise AssertionError(
            f"{len(numbers) // size} processes run tests on this machine: no {name} are left"
        )
    at, descriptor = held
    try:
        yield numbers[at * size : (at + 1) * size]
    finally:
        os.close(descriptor)


@pytest.fixture(scope="session", autouse=True)
def own_configuration() -> Iterator[None]:
    """Let commands read no configuration of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESOS_GPU_CONFIG", f"{tempfile.gettempdir()}/mesos-gpu-tests-{os.getpid()}-no-config")
        free_port()  # the first one opens a file, which tests that count files would find
        yield


@pytest.fixture(scope="session")
def own_uids() -> Iterator[range]:
    """Ten uids that no account, no pool of a test and no other process of tests on this machine has."""
    with own_block("uids", range(950_000, 952_000), 10) as uids:
        yield uids


@pytest.fixture(scope="session", autouse=True)
def quick_schedulers() -> Iterator[None]:
    """Fork the schedulers of clusters from a process that has imported what they need: tests/starts/forked.py."""
    with pytest.MonkeyPatch.context() as patch:
        parent = forked.Parent()
        patch.setattr(stack, "spawn", parent)
        yield
        parent.close()


@pytest.fixture(scope="module")
def open_directory() -> Iterator[Path]:
    """A directory that every user may pass: pytest's own are private, and jobs run as nobody."""
    path = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def ca(tmp_path: Path) -> "Authority":
    """An authority of certificates whose files are in the test's directory."""
    from tests.certificates import Authority  # few tests need it

    return Authority(tmp_path)
