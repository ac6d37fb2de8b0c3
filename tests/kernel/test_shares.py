"""Tasks that share a card, as the kernel sees them: several cgroups allow one minor, each task its own files only."""

import base64
import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.devices.facts import write_inventory
from isolator.node.reaper import audit, strangers
from isolator.shares.shim.region import MIB, CardLimits, region_of
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.shares.card import MigInstance, Sharing
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.resize import Resize, ResizeAnswer
from mesos_gpu.wire.mesos.resize import decode_answer, encode_request
from tests.conftest import wait_until
from tests.doubles.scripted_agent import scripted_agent
from tests.hosts import GPUS, INVENTORY, Host, changed_executor, driver_volume, host
from tests.kernel.conftest import EACH_CGROUP
from tests.kernel.test_isolation import ENXIO, EPERM, PROBE, PYTHON, nodes

pytestmark = pytest.mark.kernel
CGROUPS = EACH_CGROUP
DRIVER = "535.129.03"
QUARTER = Share(250, 1000, 1000, Method.SHIM_WINDOWS)
MIG = Share(142, 1000, 1000, Method.MIG, instance="MIG-1")
INSTANCES = (MigInstance("MIG-1", "1g.10gb", 1000, 16, 7, 0), MigInstance("MIG-2", "1g.10gb", 1000, 16, 8, 0))
SHARED = replace(
    INVENTORY,
    gpus=tuple(replace(gpu, sharing=Sharing(4000, instances=INSTANCES)) for gpu in INVENTORY.gpus),
    driver_version=DRIVER,
    cuda_version="12.2",
)
_numbers = itertools.count()


class Node:
    """A host of several executors."""

    def __init__(self, directory: Path, isolation: str, stack: ExitStack) -> None:
        self.directory, self._isolation, self._stack = directory, isolation, stack
        self.volume = driver_volume(directory / "volumes", DRIVER)
        (self.volume / "region").mkdir()

    def executor(self) -> Host:
        """Start one more, which has launched nothing."""
        agent = self._stack.enter_context(scripted_agent())
        task = f"share-{next(_numbers)}-{time.monotonic_ns()}.0"
        given = {"MESOS_GPU_ISOLATION": self._isolation, "MESOS_GPU_VOLUMES": str(self.directory / "volumes")}
        one = self._stack.enter_context(host(self.directory, agent, task=task, **given))
        write_inventory(self.directory / "node", SHARED)
        return one

    def run(self, command: str, share: Share = QUARTER, **assignment: object) -> Host:
        """Launch a command with a share of the first card, by another executor."""
        one = self.executor()
        one.launch(command, **{"user": "nobody", "gpus": GPUS[:1], "share": share, **assignment})
        return one

    def tenant(self) -> Host:
        """A task that stays until the test ends."""
        one = self.run("echo ready; exec sleep 600")
        wait_until("it runs", lambda: "ready" in one.stdout(), 60)
        return one


@pytest.fixture
def node(open_directory: Path, isolation: str) -> Iterator[Node]:
    directory = open_directory / f"shares-{time.monotonic_ns()}"
    directory.mkdir()
    with ExitStack() as stack:
        yield Node(directory, isolation, stack)


def opens(one: Host) -> dict[str, int]:
    """What opening nodes of its own making said to a task that has ended."""
    one.end("TASK_FINISHED") if one.states()[-1:] != ["TASK_FINISHED"] else None
    said: dict[str, int] = json.loads(one.stdout())
    return said


def test_two_tasks_on_one_minor_and_a_third_without(node: Node) -> None:
    first, second, third = node.executor(), node.executor(), node.executor()
    for one in (first, second, third):
        nodes(one)
        (one.sandbox / "probe.py").write_text(PROBE)
    probe = f"{PYTHON} probe.py nvidia0 nvidia1 > found; mv found said; exec sleep 600"
    for one in (first, second):
        one.launch(probe, user="nobody", gpus=GPUS[:1], share=QUARTER)
    third.launch(probe, user="nobody")
    said = {}
    for one in (first, second, third):
        wait_until("it has tried", lambda one=one: (one.sandbox / "said").exists(), 60)  # type: ignore[misc]
        said[one.task] = json.loads((one.sandbox / "said").read_text())
    granted, denied = {"nvidia0": ENXIO, "nvidia1": EPERM}, {"nvidia0": EPERM, "nvidia1": EPERM}
    assert said == {first.task: granted, second.task: granted, third.task: denied}
    assert sorted(h.task for h in first.ledger.holdings() if h.gpus) == sorted((first.task, second.task))
    env = {"MESOS_GPU_ISOLATION": node._isolation}
    assert audit(first.ledger, SHARED, env) == []
    on_card = {GPUS[0]: [first.process.pid, second.process.pid]}
    assert strangers(first.ledger, on_card) == {}, "a card has as many tenants as share it"
    first.kill()
    first.update("TASK_KILLED")
    assert first.process.wait(60) == 0
    beside = strangers(second.ledger, {GPUS[0]: [second.process.pid, third.process.pid]})
    assert beside.keys() == {GPUS[0]}
    assert str(third.process.pid) in beside[GPUS[0]]
    assert str(second.process.pid) not in beside[GPUS[0]]


def test_a_share_that_does_not_fit_is_refused_whatever_the_scheduler_believed(node: Node) -> None:
    first = node.tenant()
    second = node.run("echo never", replace(QUARTER, memory_mib=3001))
    message, data = second.update("TASK_FAILED")
    assert "of its 4000 MiB of memory 1000 are held, and 3001 more are asked for" in message
    assert first.task not in message
    outcome = json.loads(data)
    assert outcome["infrastructure"] is True
    assert outcome["refused_gpus"] == [GPUS[0]]
    whole = node.executor()
    whole.launch("echo never", user="nobody", gpus=GPUS[:1])
    message, _ = whole.update("TASK_FAILED")
    assert "claimed already" in message
    assert second.stdout() == whole.stdout() == ""


@pytest.mark.parametrize("method", [Method.SHIM_WINDOWS, Method.SHIM_MPS2, Method.DMEM_WINDOWS])
def test_a_real_card_whose_host_cannot_do_it_is_refused_and_nothing_runs_unlimited(
    open_directory: Path, isolation: str, method: Method
) -> None:
    directory = open_directory / f"cannot-{time.monotonic_ns()}"
    directory.mkdir()
    real = replace(SHARED, source="nvml")
    patched = "from isolator.devices import facts; facts.load_driver = lambda root: None\n"
    patched += "read = facts.read_driver\n"
    patched += (
        "facts.read_driver = lambda *given, **named: facts.DriverFacts({'nvidia': 195, 'nvidia-uvm': 511})"
    )
    with scripted_agent() as agent, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.hosts.executor_command", lambda: changed_executor(patched))
        with host(directory, agent, MESOS_GPU_ISOLATION=isolation) as one:
            write_inventory(directory / "node", real)
            one.launch("echo never", user="nobody", gpus=GPUS[:1], share=replace(QUARTER, method=method))
            message, outcome = one.end("TASK_FAILED")
    assert f"a share of GPU-a by {method.value} cannot be enforced on this host" in message
    assert outcome.infrastructure
    assert outcome.refused_gpus == (GPUS[0],)
    assert one.stdout() == ""


def test_a_mig_task_has_the_two_capabilities_of_its_instance_and_reads_them_only(
    open_directory: Path, isolation: str
) -> None:
    """With made-up numbers of a driver that is not here."""
    directory = open_directory / f"mig-{time.monotonic_ns()}"
    directory.mkdir()
    patched = (
        "from isolator.devices import facts; from mesos_gpu.adapters.nvml import mig\n"
        "facts.read_driver = lambda *given, **named: facts.DriverFacts("
        "{'nvidia': 195, 'nvidia-uvm': 510, 'nvidia-caps': 511}, caps=(9,))\n"
        "mig.capability_minors = lambda minor, gi, ci, root: {7: (21, 22), 8: (30, 31)}[gi]\n"
    )
    code = """
import os, sys, errno
def tried(path, how):
    try:
        os.close(os.open(path, how))
    except OSError as error:
        return errno.errorcode[error.errno]
    return "opened"
for name in sorted(os.listdir("/dev/nvidia-caps")):
    path = "/dev/nvidia-caps/" + name
    print(name, tried(path, os.O_RDONLY), tried(path, os.O_RDWR), tried(path, os.O_WRONLY))
for minor in (9, 21, 30):
    print(minor, tried(f"cap{minor}", os.O_RDONLY))
print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ["NVIDIA_VISIBLE_DEVICES"], os.listdir("/dev").count("nvidia0"))
"""
    with scripted_agent() as agent, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.hosts.executor_command", lambda: changed_executor(patched))
        with host(directory, agent, MESOS_GPU_ISOLATION=isolation) as one:
            write_inventory(directory / "node", replace(SHARED, source="nvml"))
            (one.sandbox / "probe.py").write_text(code)
            for minor in (9, 21, 30):
                path = one.sandbox / f"cap{minor}"
                os.mknod(path, 0o20666, os.makedev(511, minor))
                path.chmod(0o666)
            one.launch(f"{PYTHON} probe.py", user="nobody", gpus=GPUS[:1], share=MIG)
            one.end("TASK_FINISHED")
    caps = [
        f"nvidia-cap{minor} ENXIO {denied} {denied}" for minor, denied in ((21, "EACCES"), (22, "EACCES"))
    ]
    own = ["9 EPERM", "21 ENXIO", "30 EPERM"]
    assert one.stdout().splitlines() == [*caps, *own, "MIG-1 MIG-1 1"]


# --- what a task sees of its share


def test_limits_are_read_and_usage_is_written(node: Node) -> None:
    one = node.run(
        "cd /usr/local/nvidia/region; stat -c '%n %s' *; grep /usr/local/nvidia/region /proc/self/mountinfo"
        " | cut -d' ' -f5,6; printf x | dd of=usage bs=1 seek=4095 conv=notrunc 2>/dev/null && echo written;"
        " echo $LD_LIBRARY_PATH; exec sleep 600",
        env={"LD_LIBRARY_PATH": "/opt/own:/usr/local/cuda/compat"},
    )
    wait_until("it has looked", lambda: "nvidia/lib" in one.stdout(), 60)
    region = region_of(node.directory / "node", TaskId(one.task))
    sizes = [f"{name} {(region.path / name).stat().st_size}" for name in ("limits", "usage")]
    said = one.stdout().splitlines()
    assert said[:2] == sizes
    mounts = dict(line.split() for line in said[2:4])
    assert set(mounts) == {"/usr/local/nvidia/region", "/usr/local/nvidia/region/usage"}
    assert "ro" in mounts["/usr/local/nvidia/region"].split(",")
    assert "rw" in mounts["/usr/local/nvidia/region/usage"].split(",")
    assert said[4:] == ["written", "/usr/local/nvidia/lib:/usr/local/nvidia/lib64:/opt/own"]
    assert (limits(node, one).gpu, limits(node, one).memory_bytes) == (GPUS[0], 1000 * MIB)
    one.kill()
    one.end("TASK_KILLED")
    assert not region.path.exists()


def limits(node: Node, one: Host) -> CardLimits:
    """What a task is limited to."""
    (card,) = region_of(node.directory / "node", TaskId(one.task)).limits(GPUS[:1])
    return card


def windows(node: Node, *tenants: Host) -> dict[str, int]:
    """How long each task's window is, in thousandths of the period."""
    lengths = {}
    for one in tenants:
        window = limits(node, one).window
        assert window is not None
        lengths[one.task] = window.length_us * 1000 // window.period_us
    return lengths


@pytest.mark.long
def test_windows_are_planned_anew_with_each_claim_and_release(node: Node) -> None:
    first = node.tenant()
    assert windows(node, first) == {first.task: 1000}, "what nobody has, it gets"
    second = node.tenant()
    assert sum(windows(node, first, second).values()) == 1000
    third = node.tenant()
    shared = windows(node, first, second, third)
    assert sum(shared.values()) in range(998, 1001)
    assert min(shared.values()) >= 250
    second.kill()
    second.update("TASK_KILLED")
    second.process.wait(60)
    assert sum(windows(node, first, third).values()) in range(998, 1001)
    for one in (first, third):
        one.kill()
        one.update("TASK_KILLED")
        assert one.process.wait(60) == 0
    assert first.ledger.holdings() == ()
    assert first.ledger.cards() == (), "the card's rows go with its last share"


def answers(one: Host) -> list[ResizeAnswer]:
    """What its executor said of wishes for another share, in order, without what was sent again."""
    updates = {each["uuid"]: each for each in one.agent.updates if each["state"] == "TASK_RUNNING"}
    said = [decode_answer(base64.b64decode(each.get("data", ""))) for each in updates.values()]
    return [each for each in said if each is not None]


def ask(one: Host, *wish: int) -> ResizeAnswer:
    """Send a wish, and wait for the answer."""
    count = len(answers(one))
    data = base64.b64encode(encode_request(Resize(*wish))).decode()
    one.agent.send({"type": "MESSAGE", "message": {"data": data}})
    wait_until("it answers", lambda: len(answers(one)) > count, 60)
    return answers(one)[-1]


@pytest.mark.long
def test_a_running_share_is_resized_by_a_message(node: Node) -> None:
    first, second = node.tenant(), node.tenant()
    assert ask(first, 1, 2500, 2500, 700) == ResizeAnswer(1, 2500, 2500, 700)
    assert limits(node, first).memory_bytes == 2500 * MIB
    assert windows(node, first, second)[first.task] >= 700
    refused = ask(first, 2, 3001, 3001, 700)
    assert "of its 4000 MiB of memory 1000 are held, and 3001 more are asked for" in refused.refused
    assert ask(first, 2, 3001, 3001, 700) == refused, "repeated"
    assert ask(first, 3, 100, 100, 100) == ResizeAnswer(3, 100, 100, 100)
    assert ask(first, 1, 2500, 2500, 700).number == 3, "late"
    third = node.run("sleep 600", replace(QUARTER, memory_mib=2900, memory_max_mib=2900, compute_milli=650))
    third.update("TASK_RUNNING")
    shares = [held.share for held in first.ledger.holdings() if held.share]
    assert sum(share.memory_mib for share in shares) == 4000
    whole = node.executor()
    whole.launch("sleep 600", user="nobody", gpus=GPUS[1:])
    whole.update("TASK_RUNNING")
    assert ask(whole, 1, 5, 5, 5).refused == "it has no share of a GPU"


#: Each is a way to more than one's share, or to what is a neighbour's; `N`: the node directory.
ATTEMPTS = {
    "write limits": "printf x > /usr/local/nvidia/region/limits",
    "write limits by another name": "printf x > $N/shares/*/limits",
    "make limits writable": "mount -o remount,rw,bind /usr/local/nvidia/region",
    "replace limits": "rm -f /usr/local/nvidia/region/limits; mv usage /usr/local/nvidia/region/limits",
    "truncate limits": "truncate -s 0 /usr/local/nvidia/region/limits",
    "mount something over limits": (
        "cp /usr/local/nvidia/region/limits mine; mount --bind mine /usr/local/nvidia/region/limits"
    ),
    "take limits away": "umount /usr/local/nvidia/region/usage",
    "add a file": "touch /usr/local/nvidia/region/more",
    "list the others": "ls $N/shares",
    "read another's usage": "cat $N/shares/*/usage",
    "read it by its name": "cat $N/shares/$OTHER/usage",
    "read the ledger": "cat $N/ledger.sqlite",
    "lock a card": "ls $N/cards",
    "the ledger's log": "cat $N/ledger.sqlite-wal",
}


def test_attempts_to_widen_a_share_are_refused(node: Node) -> None:
    """Each alone, by a task; the neighbour's name is in no answer."""
    neighbour = node.tenant()
    other = region_of(node.directory / "node", TaskId(neighbour.task)).path.name
    script = "\n".join(
        f"( N={node.directory}/node; OTHER={other}; {command} ) > try.{number} 2>&1 && echo ESCAPED {name!r}"
        for number, (name, command) in enumerate(ATTEMPTS.items())
    )
    one = node.run(f"{script}\ncat try.* | grep -c {neighbour.task}; exec sleep 600")
    wait_until("it has tried all", lambda: one.stdout().split()[-1:] == ["0"], 60)
    said = one.stdout().splitlines()
    tries = {name: (one.sandbox / f"try.{number}").read_text() for number, name in enumerate(ATTEMPTS)}
    assert [line for line in said if line.startswith("ESCAPED")] == [], tries
    for each in (one, neighbour):
        assert limits(node, each).memory_bytes == 1000 * MIB
    assert sum(windows(node, neighbour, one).values()) == 1000
    assert neighbour.states()[-1] == "TASK_RUNNING"


def test_mounts_of_a_tasks_own_namespace_do_not_leave_it(node: Node) -> None:
    """Programs there may be lied to, as by a libcuda of their own: what is cooperative can be gone round. The host's
    limits, and those of all else of the task, stay."""
    neighbour = node.tenant()
    one = node.run(
        "head -c 2000 /dev/zero > mine; cp /usr/local/nvidia/region/limits before;"
        " unshare -Urm mount --bind mine /usr/local/nvidia/region/limits;"
        " cmp before /usr/local/nvidia/region/limits && echo same; echo tried; exec sleep 600"
    )
    wait_until("it has tried", lambda: "tried" in one.stdout(), 60)
    assert "same" in one.stdout()
    assert sum(windows(node, neighbour, one).values()) == 1000


def test_root_of_the_host_cannot_write_its_limits_either(node: Node) -> None:
    one = node.run(
        "printf x > /usr/local/nvidia/region/limits || mount -o remount,rw,bind /usr/local/nvidia/region"
        " || umount /usr/local/nvidia/region || echo refused",
        user="root",
    )
    one.end("TASK_FINISHED")
    assert one.stdout() == "refused\n", one.stderr()


def test_a_hostile_usage_file_harms_nobody_but_its_task(node: Node) -> None:
    neighbour = node.tenant()
    one = node.run(
        "head -c 100000 /dev/urandom > /usr/local/nvidia/region/usage; truncate -s 1G /usr/local/nvidia/region/usage;"
        " echo done; exec sleep 600"
    )
    wait_until("it has written", lambda: "done" in one.stdout(), 60)
    region = region_of(node.directory / "node", TaskId(one.task))
    assert region.usage(GPUS[:1]).problem
    third = node.tenant()
    for each in (one, neighbour, third):
        each.kill()
        each.update("TASK_KILLED")
        assert each.process.wait(60) == 0
    assert one.ledger.holdings() == ()


def test_variables_that_would_widen_a_share_are_dropped_and_said(node: Node) -> None:
    asked = {
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/mine",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "7=1M",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "MINE": "kept",
    }
    one = node.run('env | grep -E "^(CUDA_MPS|CUDA_VIS|NVIDIA_VIS|MINE)" | sort', env=asked)
    one.end("TASK_FINISHED")
    assert one.stdout().split() == ["CUDA_VISIBLE_DEVICES=GPU-a", "MINE=kept", "NVIDIA_VISIBLE_DEVICES=GPU-a"]
    says = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, CUDA_MPS_PIPE_DIRECTORY of the job: dropped"
    assert says in one.stderr()
    assert says in (one.sandbox / "executor.log").read_text()


def test_a_task_without_isolation_gets_no_share_that_it_would_not_see(open_directory: Path) -> None:
    directory = open_directory / f"off-{time.monotonic_ns()}"
    directory.mkdir()
    volume = driver_volume(directory / "volumes", DRIVER)
    (volume / "region").mkdir()
    given = {"MESOS_GPU_ISOLATION": "off", "MESOS_GPU_VOLUMES": str(directory / "volumes")}
    with scripted_agent() as agent, host(directory, agent, **given) as one:
        write_inventory(directory / "node", SHARED)
        one.launch("echo never", user="nobody", gpus=GPUS[:1], share=QUARTER)
        message, outcome = one.end("TASK_FAILED")
    assert "a share of a GPU can be enforced only with isolation" in message
    assert outcome.infrastructure
    assert outcome.refused_gpus == GPUS[:1]
    assert one.stdout() == ""
