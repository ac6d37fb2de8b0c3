"""Limits of tasks in a real kernel: processes, memory, CPUs. Each controller is used where this machine has it."""

import os
import pwd
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.agent.commands import executor_command
from isolator.confinement.limits import Amounts, limits_for
from isolator.confinement.memory_events import note_lacks
from isolator.devices import cgroups
from isolator.node.findings import Host, Level
from isolator.node.task_limits import look_at_limits
from isolator.runs.launcher import Launcher, Order
from isolator.runs.memory import explained
from isolator.runs.run import Ended
from mesos_gpu.model.tasks.assignment import Outcome
from tests import hosts
from tests.conftest import wait_until
from tests.doubles.scripted_agent import ScriptedAgent
from tests.hosts import host
from tests.kernel.conftest import needs
from tests.kernel.test_isolation import PYTHON

pytestmark = pytest.mark.kernel
USER = pwd.getpwuid(65534).pw_name  # without rights
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
#: Uses more and more memory, and writes how much and when, so that the end can be timed.
HUNGRY = (
    "import os, time; held = []; file = os.open('used', os.O_WRONLY | os.O_CREAT)\n"
    "while True: held.append(b'x' * 1048576); os.pwrite(file, f'{len(held):6} {time.time():.3f}'.encode(), 0)"
)
OUT_OF_MEMORY = re.compile(r"out of memory: 64 MiB asked, (\d+) used; ask for more with --mem")


@pytest.fixture
def one(open_directory: Path, agent: ScriptedAgent, isolation: str) -> Iterator[hosts.Host]:
    """An executor on a host of its own."""
    directory = open_directory / str(time.monotonic_ns())
    directory.mkdir()
    with host(directory, agent, MESOS_GPU_ISOLATION=isolation) as one:
        yield one
        assert [str(path) for path in own_cgroups(one.sandbox.name)] == []


def own_cgroups(container: str) -> list[Path]:
    """Return the cgroups that an executor made for a container."""
    places = [mount / cgroups.OWN_ROOT / container for mount in {*cgroups.mount_points().values()}]
    return [place for place in places if place.exists()]


def file_system(path: Path) -> str:
    """Return the kind of the file system that a directory is in."""
    points = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    inside = [(each[1], each[2]) for each in points if path.is_relative_to(each[1])]
    return max(inside, key=lambda each: len(each[0]))[1]


def held_by(container: str, controller: str) -> Path:
    """Return the cgroup that holds a limit of a running container's task; skip if the kernel lacks the controller."""
    points = cgroups.mount_points()
    place = points.get(controller, points.get("", Path("/nowhere"))) / cgroups.OWN_ROOT / container
    if not list(place.glob(f"{controller}.*")):
        pytest.skip(f"the kernel has no controller {controller}")
    return place


@pytest.mark.parametrize(("said", "least", "most"), [("100", 90, 99), ("0", 400, 400), ("", 400, 400)])
def test_a_task_has_only_so_many_processes(
    open_directory: Path, agent: ScriptedAgent, isolation: str, said: str, least: int, most: int
) -> None:
    directory = open_directory / str(time.monotonic_ns())
    directory.mkdir()
    with host(directory, agent, MESOS_GPU_ISOLATION=isolation, MESOS_GPU_PIDS=said) as one:
        one.launch(BOMB, user=USER)
        one.end("TASK_FINISHED")
        assert least <= int(one.stdout()) <= most
        assert own_cgroups(one.sandbox.name) == []


def test_users_limit_holds_without_a_pids_controller(open_directory: Path, own_uids: range) -> None:
    """The kernel counts all processes of the user on this host."""
    needs("cgroup1" if "devices" in cgroups.mount_points() else "cgroup2")
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


@pytest.mark.parametrize("among", ["alone", "a child of several"])
def test_task_is_ended_at_its_memory_limit_within_a_second(one: hosts.Host, among: str) -> None:
    (one.sandbox / "hungry.py").write_text(HUNGRY)
    command = f"exec {PYTHON} hungry.py"
    if among != "alone":  # the others would run on
        command = f"sleep 600 & ({PYTHON} hungry.py; sleep 600) & echo $$; trap '' TERM; wait; sleep 600"
    one.launch(command, user=USER, mem_mib=64, cpus=1.0)
    message, outcome = one.end("TASK_FAILED")
    told = OUT_OF_MEMORY.fullmatch(message)
    assert told is not None, message
    assert 60 <= int(told[1]) <= 68
    assert outcome == Outcome(signal=9), "exit code 137"
    used_mib, used_at = (one.sandbox / "used").read_text().split()
    assert 44 <= int(used_mib) <= 64, "the rest is the interpreter"
    took_s = one.agent.updates[-1]["timestamp"] - float(used_at)
    assert took_s < 3.0, "a second, and what a loaded machine takes more"


def test_memory_files_of_a_task_count_as_its_memory(one: hosts.Host) -> None:
    """/dev/shm is as large as the memory, which the shell needs some of."""
    one.launch("head -c 100m /dev/zero > /dev/shm/x; sleep 600", user=USER, mem_mib=64)
    message, outcome = one.end("TASK_FAILED")
    assert OUT_OF_MEMORY.fullmatch(message), message
    assert outcome == Outcome(signal=9)


def test_file_cache_of_a_task_ends_nothing(one: hosts.Host) -> None:
    if file_system(one.sandbox) in ("tmpfs", "overlay"):
        pytest.skip("needs files on a disk: pages of files in memory cannot be given back")
    one.launch("head -c 200m /dev/zero > x; cat x x > /dev/null; rm x", user=USER, mem_mib=64)
    assert one.end("TASK_FINISHED")[1] == Outcome(exit_status=0)


@pytest.mark.parametrize("user", [USER, "root"])
def test_a_task_changes_no_limit_and_leaves_no_cgroup(one: hosts.Host, user: str) -> None:
    """Every file that can be found is tried, also of the cgroups above; a process of the task stays in its cgroups."""
    tries = (
        "for f in $(find /sys/fs/cgroup /run/mesos-gpu -type f "
        r"\( -name 'memory.*' -o -name 'cpu.*' -o -name 'pids.max' -o -name 'io.*' -o -name cgroup.procs -o "
        r"-name cgroup.subtree_control \) 2>/dev/null); do "
        "(echo max > $f || echo $$ > $f || echo -1 > $f) 2>/dev/null && echo changed $f; done; "
        "mkdir /sys/fs/cgroup/*/mesos_gpu/x 2>/dev/null && echo made; "
        "mount -t cgroup2 none /mnt 2>/dev/null && echo mounted; cat /proc/self/cgroup"
    )
    one.launch(tries, user=user, mem_mib=64, cpus=1.0)
    one.end("TASK_FINISHED")
    lines = one.stdout().splitlines()
    assert [line for line in lines if not re.match(r"\d+:", line)] == []
    inside = {name for line in lines for name in line.split(":")[1].split(",") if one.sandbox.name in line}
    assert inside >= ({"memory", "cpu", "pids"} & cgroups.mount_points().keys() or {""})


#: Tries to start a child in each cgroup of version 2 that can be seen (clone3, CLONE_INTO_CGROUP).
CLONES = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
tried = 0
for top in ("/sys/fs/cgroup", "/run/mesos-gpu/cgroup2"):
    for path, _, files in os.walk(top):
        if "cgroup.subtree_control" not in files and "cgroup.type" not in files:
            continue
        tried += 1
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        words = (ctypes.c_uint64 * 11)(0x200000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, fd)
        pid = libc.syscall(435, words, 88)
        if pid == 0:
            os.write(1, b"left: " + open("/proc/self/cgroup", "rb").read())
            os._exit(0)
        if pid > 0:
            os.waitpid(pid, 0)
        os.close(fd)
print("tried", tried)
"""


@pytest.mark.parametrize("user", [USER, "root"])
def test_a_task_starts_no_process_in_another_cgroup(one: hosts.Host, user: str) -> None:
    """Cgroups are read-only for all tasks, which does not keep root from it; root sees none of version 2."""
    (one.sandbox / "clones.py").write_text(CLONES)
    one.launch(f"{PYTHON} clones.py", user=user, mem_mib=64, cpus=1.0)
    assert one.end("TASK_FINISHED")[1] == Outcome(exit_status=0), one.stderr()
    lines = one.stdout().splitlines()
    assert [line for line in lines if line.startswith("left: ")] == []
    tried = int(lines[-1].split()[1])
    assert tried == 0 if user == "root" else tried >= 1


def test_file_cache_is_no_lack_of_memory_when_the_host_lacks_it(
    open_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In version 1 both count in memory.failcnt. That the kernel ended a process for the host's lack is made up."""
    limits = limits_for(f"lack-{os.getpid()}-{time.monotonic_ns()}", Amounts(64), {})
    memory = limits.memory
    if memory is None or memory.version != "cgroup1":
        pytest.skip("version 2 counts the lack itself")
    file = open_directory / f"cached-{time.monotonic_ns()}"

    def run(command: str) -> int:
        begin = f"echo $$ > {memory.path}/cgroup.procs; exec {command}"
        return subprocess.run(["/bin/sh", "-c", begin], capture_output=True, check=False).returncode

    limits.set_up()
    try:
        note_lacks(memory)
        assert run(f"head -c 150m /dev/zero > {file}") == 0
        if int((memory.path / "memory.failcnt").read_text()) == 0:
            pytest.skip("files here take no memory")
        with monkeypatch.context() as patch:
            patch.setattr("isolator.runs.memory._kills", lambda memory: 1)
            assert explained(Ended(signal=9), memory, 64).infrastructure
        assert run(f"{PYTHON} -c \"x = b'x' * (100 << 20)\"") == -9
        assert OUT_OF_MEMORY.fullmatch(explained(Ended(signal=9), memory, 64).limit)
    finally:
        file.unlink(missing_ok=True)
        for cgroup in limits.own():
            assert cgroup.remove() == []


def test_cpus_of_a_task_weigh_and_end_at_a_limit(one: hosts.Host) -> None:
    spin = f"{PYTHON} -c 'while True: pass'"
    one.launch(f"{spin} & {spin}", user=USER, mem_mib=128, cpus=0.2, cpu_limit=0.2)
    one.update("TASK_RUNNING")
    own = held_by(one.sandbox.name, "cpu")
    files = [own / name for name in ("cpu.shares", "cpu.weight", "cpu.cfs_quota_us", "cpu.max")]
    values = {file.name: file.read_text().strip() for file in files if file.exists()}
    assert values in (
        {"cpu.shares": "205", "cpu.cfs_quota_us": "20000"},
        {"cpu.weight": "20", "cpu.max": "20000 100000"},
    )
    throttled = re.compile(r"^nr_throttled [1-9]", re.MULTILINE)
    wait_until("the kernel holds it", lambda: throttled.search((own / "cpu.stat").read_text()), 60)
    one.kill(grace_s=0)
    one.end("TASK_KILLED")


def test_commands_beside_a_task_are_in_its_cgroups(open_directory: Path) -> None:
    """A process that is moved into the cgroups of a task stays there with its children."""
    needs("cgroup2")
    limits = limits_for(f"limits-{os.getpid()}-{time.monotonic_ns()}", Amounts(64, 1.0), {})
    limits.set_up()
    try:
        pid = os.fork()
        if pid == 0:
            try:
                signal.pause()
            finally:
                os._exit(0)
        limits.take(pid)
        assert {pid} == {each for cgroup in limits.own() for each in cgroups.pids_below(cgroup.path)}
    finally:
        for cgroup in limits.own():
            assert cgroup.remove() == []
    assert os.waitpid(pid, 0)[1] == 9


@pytest.mark.parametrize("name", ["memory", "memory,cpu,io"])
def test_operator_gives_up_a_limit_by_its_name(open_directory: Path, agent: ScriptedAgent, name: str) -> None:
    needs("cgroup2")
    directory = open_directory / str(time.monotonic_ns())
    directory.mkdir()
    with host(directory, agent, MESOS_GPU_UNLIMITED=name) as one:
        one.launch(f"{PYTHON} -c \"x = b'x' * (100 << 20)\"; exec sleep 600", user=USER, mem_mib=64)
        one.update("TASK_RUNNING")
        for controller in name.split(","):
            points = cgroups.mount_points()
            place = points.get(controller, points[""]) / cgroups.OWN_ROOT / one.sandbox.name
            assert not place.exists() or controller not in points
        wait_until("it has used more than it asked for", lambda: one.states()[-1] == "TASK_RUNNING")
        one.kill(grace_s=0)
        one.end("TASK_KILLED")


def test_launch_without_permission_to_make_a_cgroup_fails_as_the_hosts_fault(
    open_directory: Path, agent: ScriptedAgent, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor is in a mount namespace in which the hierarchy that limits memory is read-only."""
    points = cgroups.mount_points()
    mount = points.get("memory", points.get("", Path("/nowhere")))
    needs("cgroup2")
    directory = open_directory / str(time.monotonic_ns())
    directory.mkdir()
    frozen = f"mount --bind {mount} {mount} && mount -o remount,bind,ro {mount} && {executor_command()}"
    monkeypatch.setattr(
        "tests.hosts.executor_command", lambda: f"exec unshare -m /bin/sh -c {shlex.quote(frozen)}"
    )
    with host(directory, agent, MESOS_GPU_ISOLATION=isolation) as one:
        one.launch("echo ran", user=USER, mem_mib=64)
        message, outcome = one.end("TASK_FAILED")
        assert "Read-only file system" in message, message
        assert outcome == Outcome(infrastructure=True)
        if "memory" in points:
            assert "the host cannot run the task: memory of the task cannot be limited in" in message
            assert "MESOS_GPU_UNLIMITED=memory on the agent" in message
        assert one.stdout() == ""
        assert own_cgroups(one.sandbox.name) == []


def test_doctor_says_by_what_tasks_are_limited(tmp_path: Path, isolation: str) -> None:
    env = {"MESOS_GPU_ISOLATION": isolation}
    (finding,) = look_at_limits(Host(tmp_path, None, env), None)
    assert finding.level is Level.OK, finding
    assert re.match(r"tasks are limited: pids by \S+, memory by cgroup[12], cpu by cgroup[12]", finding.text)
    given_up = look_at_limits(Host(tmp_path, None, {**env, "MESOS_GPU_UNLIMITED": "memory"}), None)
    assert [each.level for each in given_up] == [Level.WARN, Level.OK]
    for mount in cgroups.mount_points().values():
        assert not list((mount / cgroups.OWN_ROOT).glob(f".doctor-{os.getpid()}"))
