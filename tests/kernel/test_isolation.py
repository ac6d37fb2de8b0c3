"""What a task can open, asked of the kernel: nodes of the NVIDIA major give ENXIO where they are allowed (there is
no driver) and EPERM where they are denied. By the executor itself, with cgroup v1 and with v2."""

import errno
import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.devices import cgroups
from isolator.devices.rules import rules_of
from isolator.node.reaper import reap
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.wire.mesos.assignment import decode_outcome
from tests.conftest import wait_until
from tests.doubles.scripted_agent import ScriptedAgent
from tests.hosts import GPUS, Host, host
from tests.kernel.conftest import needs

pytestmark = pytest.mark.kernel
PYTHON = "/usr/bin/python3"  # one that the user nobody can run
ENXIO, EPERM, ENOENT = errno.ENXIO, errno.EPERM, errno.ENOENT
PROBE = """
import json, os, sys
def tried(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return error.errno
    return 0
print(json.dumps({path: tried(path) for path in sys.argv[1:]}))
"""


@pytest.fixture
def one(open_directory: Path, agent: ScriptedAgent, isolation: str) -> Iterator[Host]:
    directory = open_directory / str(time.monotonic_ns())
    directory.mkdir()
    with host(directory, agent, MESOS_GPU_ISOLATION=isolation) as one:
        yield one


def nodes(one: Host) -> None:
    """Nodes of all kinds in the sandbox, that anybody may use as far as their mode goes."""
    for name, minor in (("nvidia0", 0), ("nvidia1", 1), ("nvidia2", 2), ("nvidiactl", 255), ("caps", 254)):
        path = one.sandbox / name
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(195, minor))
        path.chmod(0o666)


def opened(one: Host, *paths: str) -> dict[str, int]:
    """What `open` said to the task, path by path."""
    (one.sandbox / "probe.py").write_text(PROBE)
    one.launch(f"{PYTHON} probe.py {' '.join(paths)}", user="nobody", gpus=GPUS[:1])
    one.end("TASK_FINISHED")
    results: dict[str, int] = json.loads(one.stdout())
    return results


def test_a_granted_device_is_allowed_and_every_other_is_denied(one: Host) -> None:
    nodes(one)
    assert opened(one, "/dev/nvidia0", "/dev/nvidiactl", "nvidia0", "nvidia1", "nvidia2", "caps") == {
        "/dev/nvidia0": ENXIO, "/dev/nvidiactl": ENXIO, "nvidia0": ENXIO, "nvidia1": EPERM, "nvidia2": EPERM,
        "caps": EPERM,
    }  # fmt: skip


def test_a_task_without_gpus_may_open_none_not_even_the_control_device(one: Host) -> None:
    nodes(one)
    (one.sandbox / "probe.py").write_text(PROBE)
    one.launch(f"{PYTHON} probe.py /dev/nvidia0 /dev/nvidiactl nvidia0 nvidiactl", user="nobody")
    one.end("TASK_FINISHED")
    assert json.loads(one.stdout()) == {
        "/dev/nvidia0": ENOENT, "/dev/nvidiactl": ENOENT, "nvidia0": EPERM, "nvidiactl": EPERM,
    }  # fmt: skip


def test_a_program_above_that_denies_the_card_fails_the_launch(
    open_directory: Path, agent: ScriptedAgent
) -> None:
    """With v2 every program up the tree must allow: what is granted and yet denied is seen before the task starts."""
    needs("cgroup2")
    directory = open_directory / f"above-{time.monotonic_ns()}"
    directory.mkdir()
    above = cgroups.mounted()["cgroup2"] / f"denying-{os.getpid()}"
    container = above / f"container-{os.getpid()}"
    container.mkdir(parents=True)
    try:
        cgroups.Cgroup("cgroup2", above, own=False).allow(rules_of(()))
        join = f"echo $$ > {container}/cgroup.procs; "
        with host(
            directory, agent, prefix=join, container=container.name, MESOS_GPU_ISOLATION="cgroup2"
        ) as one:
            one.launch("echo never", user="nobody", gpus=GPUS[:1])
            message, outcome = one.end("TASK_FAILED")
            assert one.stdout() == ""
        assert "/dev/nvidia" in message or "195:" in message
        assert outcome.infrastructure
    finally:
        container.rmdir()
        above.rmdir()


def test_environment_of_the_job_opens_no_card(one: Host) -> None:
    nodes(one)
    (one.sandbox / "probe.py").write_text(PROBE)
    asked = {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "0,1,2", "MESOS_GPU_ISOLATION": "off"}
    one.launch(
        f"{PYTHON} probe.py nvidia0 nvidia1; echo $NVIDIA_VISIBLE_DEVICES $CUDA_VISIBLE_DEVICES",
        user="nobody",
        gpus=GPUS[:1],
        env=asked,
    )
    one.end("TASK_FINISHED")
    told, said = one.stdout().splitlines()
    assert json.loads(told) == {"nvidia0": ENXIO, "nvidia1": EPERM}
    assert said == f"{GPUS[0]} {GPUS[0]}"


def test_dev_holds_what_the_task_may_use_and_nothing_else(one: Host) -> None:
    each = "for f in $(find /dev); do [ -c $f ] || [ -b $f ] && echo $f; done"
    one.launch(f"{each}; echo x > /dev/null; test -d /dev/shm", user="nobody", gpus=GPUS)
    one.end("TASK_FINISHED")
    standard = ["full", "null", "ptmx", "pts/ptmx", "random", "stdin", "tty", "urandom", "zero"]
    granted = ["nvidia0", "nvidia1", "nvidiactl"]
    assert sorted(one.stdout().split()) == sorted(f"/dev/{name}" for name in (*standard, *granted))


def test_the_standard_devices_work(one: Host) -> None:
    work = (
        f"{PYTHON} -c \"import os, pty; pty.openpty(); open('/dev/shm/{one.sandbox.name}','w').write('x')\""
    )
    clean = f"rm /dev/shm/{one.sandbox.name}"
    one.launch(
        f"{work} && {clean} && head -c 3 /dev/urandom | wc -c && echo out >> /dev/stdout && ls -l /dev/fd/0 | wc -l",
        user="nobody",
    )
    one.end("TASK_FINISHED")
    assert one.stdout().split() == ["3", "out", "1"]


def test_rights_are_dropped(one: Host) -> None:
    one.launch("grep -E '^(Cap|NoNewPrivs|Groups|Uid)' /proc/self/status", user="nobody", gpus=GPUS)
    one.end("TASK_FINISHED")
    said = dict(line.split(":\t") for line in one.stdout().splitlines())
    assert {name: int(said[name], 16) for name in said if name.startswith("Cap")} == dict.fromkeys(
        ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"], 0
    )
    assert said["NoNewPrivs"] == "1"
    assert said["Groups"].split() == ["65534"]
    assert set(said["Uid"].split()) == {"65534"}


# --- escapes

ESCAPES = {
    "mknod": "mknod hole c 195 1",
    "mknod elsewhere": "d=/dev/shm/$$.$PPID; mkdir $d; mknod $d/hole c 195 1; done=$?; rmdir $d; exit $done",
    "bind mount of the host's /dev": "mkdir -p d; mount --bind /proc/1/root/dev d && cat d/nvidiactl",
    "the host's root": "ls /proc/1/root/dev",
    "a device file system": "mkdir -p d; mount -t devtmpfs none d",
    "a namespace of its own": "unshare -m true",
    "mounting in a user namespace": "mkdir -p d; unshare -Urm mount -t devtmpfs none d",
    "mknod in a user namespace": "unshare -Urm mknod hole c 195 1",
    "another's mount namespace": "nsenter -t 1 -m true",
    "the parent's cgroup, v1": "echo $$ > /sys/fs/cgroup/devices/cgroup.procs",
    "its own rules, v1": "echo a > /sys/fs/cgroup/devices$(sed -n 's/.*:devices://p' /proc/self/cgroup)/devices.allow",
    "the parent's cgroup, v2": "echo $$ > $(findmnt -nt cgroup2 -o TARGET)/cgroup.procs",
    "making cgroups writable": "mount -o remount,rw,bind /sys/fs/cgroup",
}


@pytest.mark.parametrize("user", ["nobody", "root"])
def test_escapes_are_refused(one: Host, user: str) -> None:
    """Each alone, by a user and by a root that the operator allowed; afterwards the card is denied as before."""
    nodes(one)
    (one.sandbox / "probe.py").write_text(PROBE)
    tries = "\n".join(
        f"( {command} ) > try.{number} 2>&1 && echo ESCAPED {name!r}"
        for number, (name, command) in enumerate(ESCAPES.items())
    )
    one.launch(f"{tries}\n{PYTHON} probe.py nvidia1 nvidiactl", user=user)
    one.end("TASK_FINISHED")
    said = one.stdout().splitlines()
    denied = {"nvidia1": EPERM, "nvidiactl": EPERM}
    assert [json.loads(said[-1]), *said[:-1]] == [denied], {
        name: (one.sandbox / f"try.{number}").read_text() for number, name in enumerate(ESCAPES)
    }


def test_a_setuid_helper_gains_nothing(one: Host) -> None:
    nodes(one)
    helper = one.sandbox / "helper"
    shutil.copy("/usr/bin/id", helper)
    helper.chmod(0o4755)
    assert helper.stat().st_uid == 0
    one.launch("./helper -u", user="nobody", gpus=GPUS[:1])
    one.end("TASK_FINISHED")
    assert one.stdout() == "65534\n"


# --- nothing stays, and nobody else is touched


def test_isolation_leaves_no_trace_of_an_ended_task(one: Host, isolation: str) -> None:
    one.launch("true", user="nobody", gpus=GPUS)
    one.end("TASK_FINISHED")
    assert one.sandbox.name not in Path("/proc/self/mountinfo").read_text()
    assert not Path("/dev/mesos_gpu", one.sandbox.name).exists()
    for mount in cgroups.mounted().values():
        assert not (mount / cgroups.OWN_ROOT / one.sandbox.name).exists()


def test_device_nodes_of_a_task_give_other_users_of_the_host_no_card(one: Host) -> None:
    one.launch("echo ready; exec sleep 600", user="nobody", gpus=GPUS)
    one.update("TASK_RUNNING")
    directory = Path("/dev/mesos_gpu", one.sandbox.name)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert (directory / "nvidia0").is_char_device()
    one.kill()
    one.end("TASK_KILLED")


def test_failed_undo_stays_on_record_and_does_not_change_how_the_task_ended(one: Host) -> None:
    one.launch("echo ready; while [ ! -e go ]; do sleep 0.02; done", user="nobody", gpus=GPUS)
    wait_until("it runs", lambda: "ready" in one.stdout())
    node = Path("/dev/mesos_gpu", one.sandbox.name, "nvidia0")
    subprocess.run(["mount", "--bind", "/dev/null", node], check=True)
    try:
        (one.sandbox / "go").touch()
        assert decode_outcome(one.update("TASK_FINISHED")[1]) == Outcome(exit_status=0)
        assert one.process.wait(60) == 0
        assert [held.gpus for held in one.ledger.holdings()] == [GPUS]
    finally:
        subprocess.run(["umount", node], check=True)
    reap(one.ledger)
    assert one.held() == []
    assert not node.parent.exists()


def test_a_cgroup_that_mesos_gave_is_used_and_left_to_mesos(
    open_directory: Path, agent: ScriptedAgent, isolation: str
) -> None:
    """The executor is in a cgroup named as its container, as Mesos' linux launcher does it."""
    version: cgroups.Version = "cgroup1" if isolation == "cgroup1" else "cgroup2"
    directory = open_directory / f"given-{time.monotonic_ns()}"
    directory.mkdir()
    given = cgroups.mounted()[version] / f"given-by-mesos-{os.getpid()}"
    container = given / f"container-{os.getpid()}"
    container.mkdir(parents=True)
    try:
        join = f"echo $$ > {container}/cgroup.procs; "
        with host(
            directory, agent, prefix=join, container=container.name, MESOS_GPU_ISOLATION=isolation
        ) as one:
            nodes(one)
            assert opened(one, "/dev/nvidia0", "nvidia0", "nvidia1") == {
                "/dev/nvidia0": ENXIO, "nvidia0": ENXIO, "nvidia1": EPERM,
            }  # fmt: skip
        assert container.exists()
        assert not (cgroups.mounted()[version] / cgroups.OWN_ROOT / container.name).exists()
    finally:
        container.rmdir()
        given.rmdir()


def test_isolation_that_cannot_be_set_up_fails_the_launch(open_directory: Path, agent: ScriptedAgent) -> None:
    """A cgroup above that lacks the card: the task does not start, and it is the host's fault."""
    needs("cgroup1")
    directory = open_directory / f"lacking-{time.monotonic_ns()}"
    directory.mkdir()
    above = cgroups.mounted()["cgroup1"] / f"lacking-{os.getpid()}"
    container = above / f"container-{os.getpid()}"
    container.mkdir(parents=True)
    try:
        (above / "devices.deny").write_text("c 195:* rwm")
        join = f"echo $$ > {container}/cgroup.procs; "
        with host(
            directory, agent, prefix=join, container=container.name, MESOS_GPU_ISOLATION="cgroup1"
        ) as one:
            one.launch("echo never", user="nobody", gpus=GPUS[:1])
            message, outcome = one.end("TASK_FAILED")
            assert "(195:" in message
            assert "To fix" in message
            assert outcome.infrastructure
            assert one.stdout() == ""
    finally:
        container.rmdir()
        above.rmdir()


def test_isolation_that_is_off_is_reported_and_not_assumed(
    open_directory: Path, agent: ScriptedAgent
) -> None:
    directory = open_directory / f"bad-{time.monotonic_ns()}"
    directory.mkdir()
    with host(directory, agent, MESOS_GPU_ISOLATION="cgroup3") as one:
        one.launch("echo never", user="nobody", gpus=GPUS[:1])
        message, outcome = one.end("TASK_FAILED")
    assert "MESOS_GPU_ISOLATION is 'cgroup3'" in message
    assert outcome.infrastructure
    assert one.stdout() == ""


def test_an_agent_may_give_every_task_a_device_of_its_own_choice(
    open_directory: Path, agent: ScriptedAgent, isolation: str
) -> None:
    directory = open_directory / f"extra-{time.monotonic_ns()}"
    directory.mkdir()
    given = {"MESOS_GPU_ISOLATION": isolation, "MESOS_GPU_EXTRA_DEVICES": "/dev/fuse"}
    with host(directory, agent, **given) as one:
        assert opened(one, "/dev/fuse", "/dev/loop-control") == {"/dev/fuse": 0, "/dev/loop-control": ENOENT}


def test_device_node_without_cgroup_rules_gives_enxio_on_this_machine() -> None:
    """Without rules, such a node is ENXIO: EPERM above is the cgroup's word, not the mode's or the mount's."""
    needs("cgroup1")
    path = Path(f"/dev/compare-{os.getpid()}")
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(195, 1))
    try:
        done = subprocess.run([PYTHON, "-c", PROBE, str(path)], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == {str(path): ENXIO}
    finally:
        path.unlink()
