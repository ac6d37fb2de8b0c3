"""What the kernel tests need, and how they say what is missing."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.devices import cgroups
from tests.doubles.scripted_agent import ScriptedAgent, scripted_agent

#: Parameters of tests that are dear and little different for each: `make test` runs them with the second alone.
EACH_CGROUP = (pytest.param("cgroup1", marks=pytest.mark.long), "cgroup2")


def needs(version: str) -> None:
    """Skip unless this is root, may make nodes, and has that kind of cgroup."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes device nodes and cgroups")
    if version not in cgroups.mounted():
        pytest.skip(f"needs {version} with control over devices mounted here")
    probe = Path(f"/dev/probe-{os.getpid()}")
    try:
        os.mknod(probe, stat.S_IFCHR | 0o600, os.makedev(195, 253))
        probe.unlink()
    except PermissionError:
        pytest.skip("needs to make device nodes: CAP_MKNOD, and a cgroup that allows it")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests each kind of cgroup in turn, or those that their module has in `CGROUPS`."""
    if "isolation" in metafunc.fixturenames:
        kinds = getattr(metafunc.module, "CGROUPS", ("cgroup1", "cgroup2"))
        metafunc.parametrize("isolation", kinds, indirect=True)


@pytest.fixture
def isolation(request: pytest.FixtureRequest) -> str:
    """Give a kind of cgroup, as MESOS_GPU_ISOLATION has it."""
    version = str(request.param)
    needs(version)
    return version


@pytest.fixture
def agent() -> Iterator[ScriptedAgent]:
    """An agent for an executor."""
    with scripted_agent() as agent:
        yield agent
