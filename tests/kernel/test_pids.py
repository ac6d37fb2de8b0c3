"""A bomb of forks: the task has no more processes than its host's operator allows, and the host goes on."""

import time
from pathlib import Path

import pytest

from isolator.confinement import pids
from isolator.confinement.pids import PidsLimit, limit_of, pids_for
from isolator.devices import cgroups
from isolator.runs.launcher import Launcher, Order
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.testing.scripted_agent import ScriptedAgent
from tests.hosts import host
from tests.kernel.conftest import needs
from tests.kernel.test_isolation import PYTHON

pytestmark = pytest.mark.kernel
BOMB = f"""
{PYTHON} -c "
import os, time
made = 0
try:
    while made < 400:
        if os.fork() == 0:
            time.sleep(600)
        made += 1
except BlockingIOError:
    pass
print(made)
"
"""


@pytest.mark.parametrize(("said", "least", "most"), [("100", 90, 99), ("0", 400, 400), ("", 400, 400)])
def test_a_task_has_only_so_many_processes(
    open_directory: Path, agent: ScriptedAgent, isolation: str, said: str, least: int, most: int
) -> None:
    if pids.mounted() is None:
        pytest.skip("needs the controller pids of cgroup v1, by which a task is counted here")
    directory = open_directory / str(time.monotonic_ns())
    directory.mkdir()
    with host(directory, agent, MESOS_GPU_ISOLATION=isolation, MESOS_GPU_PIDS=said) as one:
        one.launch(BOMB, user="nobody")
        one.end("TASK_FINISHED")
        assert least <= int(one.stdout()) <= most
        mount = pids.mounted()
        assert mount is not None
        assert not (mount / cgroups.OWN_ROOT / one.sandbox.name).exists()


def test_users_limit_holds_without_a_pids_controller(open_directory: Path, own_uids: range) -> None:
    """The kernel counts all processes of the user on this host."""
    needs("cgroup1")
    uid = own_uids[2]
    launcher = Launcher.fork()
    path = open_directory / f"out-{time.monotonic_ns()}"
    path.mkdir()
    path.chmod(0o777)
    order = Order(
        ("/bin/sh", "-c", "grep processes /proc/self/limits > said"),
        {"PATH": "/bin"},
        str(path),
        processes=77,
        user=(uid, uid, ()),
    )
    launcher.start(order)
    assert launcher.wait() == 0
    assert (path / "said").read_text().split()[2:4] == ["77", "77"]


@pytest.mark.parametrize("said", ["many", "-1", "15", "4096.0"])
def test_pids_limit_that_is_no_number_is_refused(said: str) -> None:
    with pytest.raises(BadConfiguration, match=f"MESOS_GPU_PIDS is '{said}'"):
        limit_of({"MESOS_GPU_PIDS": said})


def host_with(root: Path, mounts: str, controllers: str = "") -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(mounts)
    unified = root / "unified"
    unified.mkdir()
    (unified / "cgroup.controllers").write_text(controllers)
    return unified


def test_pids_cgroup_that_counts_is_the_nearest(tmp_path: Path) -> None:
    both = "30 20 0:1 / /c/pids rw - cgroup cgroup rw,pids\n"
    for name, mounts, controllers, where in (
        ("v1", both, "", "/c/pids/mesos_gpu/c1"),
        ("v2", "", "cpu pids\n", "{unified}/mesos_gpu/c1"),
        ("none", "", "cpu\n", None),
    ):
        root = tmp_path / name
        unified = root / "unified"
        host_with(root, f"{mounts}31 20 0:2 / {unified} rw - cgroup2 cgroup2 rw\n", controllers)
        pids = pids_for("c1", 50, None, root)
        path = where and where.format(unified=unified)
        assert pids is not None
        assert (pids.cgroup and str(pids.cgroup.path)) == path
    assert pids_for("c1", 0, None, tmp_path / "v1") is None
    joined = tmp_path / "v2/unified/given/task"
    assert pids_for("c1", 50, joined, tmp_path / "v2") == PidsLimit(
        50, cgroups.Cgroup("cgroup2", joined, own=True)
    )
