"""Launches on a file system without access control lists, on which a sandbox cannot be kept root's."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.scripted_agent import ScriptedAgent
from tests.hosts import host
from tests.kernel.conftest import needs

pytestmark = pytest.mark.kernel


@pytest.fixture
def without_acls(open_directory: Path) -> Iterator[Path]:
    """A mounted ramfs, which has no access control lists."""
    needs("cgroup2")
    path = open_directory / "ramfs"
    path.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "-o", "mode=755", "ramfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)
        path.rmdir()


def test_launch_without_access_control_lists_fails_as_the_hosts_fault(
    without_acls: Path, agent: ScriptedAgent
) -> None:
    with host(without_acls, agent, MESOS_GPU_ISOLATION="cgroup2") as one:
        one.launch("touch ran", user="nobody")
        message, outcome = one.end("TASK_FAILED")
        assert "root cannot stay owner of the sandbox: its file system has no access control lists" in message
        assert "put work_dir on ext4, xfs or btrfs" in message
        assert outcome.infrastructure
        assert not (one.sandbox / "ran").exists()


def test_job_of_root_starts_without_access_control_lists(without_acls: Path, agent: ScriptedAgent) -> None:
    with host(without_acls, agent, MESOS_GPU_ISOLATION="cgroup2") as one:
        one.launch("touch ran")
        one.end("TASK_FINISHED")
        assert (one.sandbox / "ran").exists()
