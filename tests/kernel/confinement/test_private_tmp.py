"""What all users of a host write to is each task's own: /tmp, /dev/shm, lock files, spools, and the IPC of System V."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.devices.view import PRIVATE
from mesos_gpu.model.jobs.mount import Mount
from tests.conftest import wait_until
from tests.doubles.scripted_agent import ScriptedAgent, scripted_agent
from tests.hosts import host
from tests.kernel.conftest import needs
from tests.kernel.test_isolation import PYTHON

pytestmark = pytest.mark.kernel
MARK = f"mesos-gpu-{time.monotonic_ns()}"
#: Directories that no list names. /run/lock is not open to all users on each host.
OWN = (f"/run/{MARK}", f"/var/spool/{MARK}")
PLACES = (*PRIVATE, *OWN)


@pytest.fixture
def left() -> Iterator[list[Path]]:
    """Files of the host in these places, as of another user."""
    needs("cgroup1")
    for each in map(Path, OWN):
        each.mkdir()
        each.chmod(0o1777)
    paths = [Path(place, MARK) for place in PLACES]
    for path in paths:
        path.write_text("another's")
    yield paths
    for path in paths:
        path.unlink()
    for each in map(Path, OWN):
        each.rmdir()


def test_private_directories_are_empty_writable_and_gone_with_the_task(
    open_directory: Path, agent: ScriptedAgent, left: list[Path]
) -> None:
    work = " && ".join(f"ls -A {place} && echo x > {place}/own-{MARK}" for place in PLACES)
    semaphores = f"{PYTHON} -c \"import multiprocessing; multiprocessing.Lock(); print('lock')\""
    queue = "readlink /proc/self/ns/ipc"
    with host(open_directory, agent) as one:
        one.launch(
            f"{work} && {semaphores} && {queue} && stat -fc %T /dev/shm /dev/mqueue",
            user="nobody",
            mem_mib=64,
        )
        one.end("TASK_FINISHED")
        said = one.stdout().split()
    assert said[0] == "lock", said
    assert said[1] != Path("/proc/self/ns/ipc").readlink().name
    assert said[2] == "tmpfs"
    assert [path.read_text() for path in left] == ["another's"] * len(left)
    assert not [place for place in PLACES if Path(place, f"own-{MARK}").exists()]


def test_private_directories_share_the_tasks_memory(open_directory: Path, agent: ScriptedAgent) -> None:
    needs("cgroup1")
    fill = "head -c 20M /dev/zero > /tmp/a; head -c 20M /dev/zero > /dev/shm/a; head -c 20M /dev/zero > /var/tmp/a"
    with host(open_directory, agent, MESOS_GPU_UNLIMITED="memory") as one:  # which would end it
        one.launch(f"{fill}; cat /tmp/a /dev/shm/a /var/tmp/a | wc -c", user="nobody", mem_mib=48)
        one.end("TASK_FINISHED")
        assert int(one.stdout()) == 48 << 20


def test_a_sandbox_and_volumes_in_tmp_are_where_they_were(agent: ScriptedAgent) -> None:
    needs("cgroup1")
    directory = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-", dir="/tmp"))
    directory.chmod(0o755)
    try:
        (directory / "data").mkdir()
        (directory / "data" / "weights").write_text("7\n")
        (directory / "there").mkdir()
        with host(directory, agent, MESOS_GPU_VOLUME_ROOTS=str(directory / "data")) as one:
            one.launch(
                f"cat {directory}/there/weights in/weights; pwd; echo out > {one.sandbox}/made; ls {directory} /tmp",
                user="nobody",
                mounts=(Mount(f"{directory}/data", f"{directory}/there"), Mount(f"{directory}/data", "in")),
            )
            one.end("TASK_FINISHED")
            said = one.stdout().split()
            assert said[:3] == ["7", "7", str(one.sandbox)]
            assert (one.sandbox / "made").read_text() == "out\n"
            assert "data" not in said, "what else is there is the host's"
    finally:
        shutil.rmtree(directory)


def test_private_directories_are_the_hosts_if_the_operator_says_so(
    open_directory: Path, agent: ScriptedAgent, left: list[Path]
) -> None:
    with host(open_directory, agent, MESOS_GPU_TMP="host") as one:
        one.launch("cat " + " ".join(map(str, left)), user="nobody")
        one.end("TASK_FINISHED")
        assert one.stdout() == "another's" * len(left)
    with scripted_agent() as other, host(open_directory, other, MESOS_GPU_TMP="shared") as one:
        one.launch("true", user="nobody")
        assert "MESOS_GPU_TMP is 'shared'" in one.end("TASK_FAILED")[0]


def test_a_health_check_sees_the_tasks_own(open_directory: Path, agent: ScriptedAgent) -> None:
    needs("cgroup1")
    from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
    from mesos_gpu.wire.mesos.checks import encode

    check = HealthCheck(
        protocol=Protocol.COMMAND,
        command=f"test -e /tmp/{MARK}",
        interval_s=1,
        grace_period_s=0,
        timeout_s=20,
    )
    with host(open_directory, agent) as one:
        one.launch(f"touch /tmp/{MARK}; sleep 600", user="nobody", checks=encode((check,)))
        wait_until("it is healthy", lambda: any(s.get("healthy") for s in agent.updates), 30)
        one.kill()
        one.end("TASK_KILLED")
