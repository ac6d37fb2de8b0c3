"""Tasks with shares by MPS, on NVIDIA's real daemon: what they reach of it, and what becomes of them when it fails."""

import json
import os
import re
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.devices.facts import write_inventory
from isolator.node.reaper import reap
from isolator.shares import card
from isolator.shares.mps import daemon as mps
from isolator.shares.mps.compute_mode_child import EXCLUSIVE_PROCESS
from mesos_gpu.adapters.proc import start_ticks
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.shares.card import Sharing
from mesos_gpu.model.shares.share import Method, Share
from tests.conftest import wait_until
from tests.doubles.mps import fake_mps
from tests.doubles.scripted_agent import scripted_agent
from tests.hosts import INVENTORY, Host, changed_executor, host
from tests.kernel.conftest import needs
from tests.mps_hosts import USER, Bindings, daemon_of, real_program

pytestmark = pytest.mark.kernel
#: In an executor: this host's programs and bindings, a driver that is not here, and a watch that looks often.
PATCHED = """
from pathlib import Path
from isolator.devices import facts
from isolator.executor import mps_watch
from isolator.shares import enforcing
from isolator.shares.mps import compute_mode
from isolator.shares.mps import daemon as mps
from isolator.shares.by_mps import ByMps
facts.load_driver = lambda root: None
facts.read_driver = lambda *given, **named: facts.DriverFacts({{'nvidia': 195, 'nvidia-uvm': 511}})
mps_watch.LOOK_S = mps_watch.PIDS_S = 0.3
enforcing.measures = lambda tenancy: (ByMps(),)
mps.host_of = lambda *_: mps.Host(Path({program!r}), Path({libraries!r}), compute_mode.Nvml(Path({bindings!r})))
"""


class Node:
    """A host with one card, and an executor for each task."""

    def __init__(self, directory: Path, program: Path, stack: ExitStack) -> None:
        self.directory, self.program, self._stack = directory, program, stack
        self.bindings = Bindings(directory / "bindings")
        self.gpu = GpuId(
            f"GPU-{uuid.uuid4()}"
        )  # of this test alone: all daemons of the machine are in one directory
        self.domain = mps.Domain(self.gpu, USER)
        self.host = mps.Host(program, program.parents[1] / "lib/x86_64-linux-gnu", self.bindings.nvml)
        one = replace(
            INVENTORY.gpus[0], id=self.gpu, sharing=Sharing(80000), compute_capability="9.0", memory_mib=81559
        )
        self.inventory = replace(INVENTORY, gpus=(one,), source="nvml", driver_version="535.261.03")

    def run(self, command: str, milli: int = 250, user: str = "nobody", **assignment: object) -> Host:
        """Launch a command with a share of the card."""
        code = PATCHED.format(
            program=str(self.program),
            libraries=str(self.host.libraries),
            bindings=str(self.bindings.nvml.bindings),
        )
        agent = self._stack.enter_context(scripted_agent())
        patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("tests.hosts.executor_command", lambda: changed_executor(code))
        task = f"mps-{uuid.uuid4()}.0"
        one = self._stack.enter_context(host(self.directory, agent, task=task, MESOS_GPU_ISOLATION="cgroup1"))
        write_inventory(self.directory / "node", self.inventory)
        share = Share(milli, 20480, 20480, Method.SHIM_MPS2, user)
        one.launch(command, **{"user": user, "gpus": (self.gpu,), "share": share, **assignment})
        return one

    def tenant(self, milli: int = 250) -> Host:
        """A task that stays."""
        one = self.run("echo ready; exec sleep 600", milli)
        one.update("TASK_RUNNING")
        wait_until("it runs", lambda: "ready" in one.stdout(), 60)
        return one

    def daemon(self) -> int:
        """The pid of the card's daemon."""
        return daemon_of(self.host, self.domain)

    def clean(self) -> bool:
        """Whether nothing of MPS is left of the card."""
        left = [*mps.ROOT.glob(f"{self.domain.key}*")] if mps.ROOT.exists() else []
        groups = any(group.path.exists() for group in mps.own_cgroups(self.domain))
        return not left and not groups and self.bindings.mode(self.gpu) == 0


@pytest.fixture(scope="module")
def program(open_directory: Path) -> Path:
    return real_program(open_directory / "driver")


@pytest.fixture
def node(open_directory: Path, program: Path) -> Iterator[Node]:
    needs("cgroup1")
    directory = open_directory / f"node-{time.monotonic_ns()}"
    directory.mkdir()
    with ExitStack() as stack:
        yield (made := Node(directory, program, stack))
    mps.undo(made.host, str(made.domain))  # what a test that failed has left
    assert made.clean()


def settings(node: Node) -> list[str]:
    return node.host.mps(node.domain).control.ask("get_default_active_thread_percentage")


SEEN = """
echo pipes $CUDA_MPS_PIPE_DIRECTORY; echo percent $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
echo memory $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT; echo log $CUDA_MPS_LOG_DIRECTORY
ls -1 /run/mesos-gpu/mps | tr '\\n' ' '; echo; ls -A /dev/shm | wc -l; touch /dev/shm/mine && echo shm
say() {{  # NVIDIA's program now and then loses its connection where many processes run
    for _ in 1 2 3 4 5; do
        answer=$(echo "$1" | {program} 2>&1)
        case "$answer" in *"Cannot send command"*) sleep 0.2;; *) break;; esac
    done
    echo "$answer"
}}
say get_default_active_thread_percentage
say quit; say "start_server -uid 0"
touch /run/mesos-gpu/mps/x 2>/dev/null || echo no file; rm /run/mesos-gpu/mps/control 2>/dev/null || echo no removal
kill -9 $(cat {pid}) 2>/dev/null || echo no signal
cat /proc/1/root/run/mesos-gpu/mps/*.daemon 2>/dev/null || echo no note
"""


def test_a_task_reaches_its_own_daemon_and_nothing_else_of_mps(node: Node) -> None:
    tenant = node.tenant()
    other = node.directory / "daemon.pid"
    other.write_text(str(node.daemon()))
    other.chmod(0o644)
    env = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/elsewhere", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
           "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "7=1M", "CUDA_MPS_LOG_DIRECTORY": "/tmp"}  # fmt: skip
    one = node.run(SEEN.format(program=node.program, pid=other), 300, env=env)
    one.update("TASK_FINISHED")
    assert one.stdout().splitlines() == [
        "pipes /run/mesos-gpu/mps",
        "percent 27",
        "memory 0=20480M",
        "log",
        "control control_lock control_privileged log ",
        "0",
        "shm",
        "27.0",
        "Not enough privilege to execute quit command",
        f"Insufficient privileges for UID {USER}",
        "no file",
        "no removal",
        "no signal",
        "no note",
    ], one.stderr()
    told = f"MPS lets it use 27 % of {node.gpu}: 27 % instead of 30 %: half-precision results are right there"
    assert told in (one.sandbox / "executor.log").read_text()
    assert f"[mesos-gpu] {told}" in one.stderr()
    assert "instead of" not in tenant.stderr()
    assert tenant.states()[-1] == "TASK_RUNNING"


def test_daemon_is_started_by_the_first_share_and_ended_by_the_last_release(node: Node) -> None:
    first = node.tenant()
    pid = node.daemon()
    assert node.bindings.mode(node.gpu) == EXCLUSIVE_PROCESS
    second = node.tenant(500)
    assert (node.daemon(), settings(node)) == (pid, ["50.0"])
    first.kill()
    first.update("TASK_KILLED")
    assert first.process.wait(60) == 0
    assert node.daemon() == pid
    second.kill()
    second.end("TASK_KILLED")
    assert start_ticks(pid) is None
    assert node.clean()


def test_shares_that_begin_at_once_have_one_daemon(node: Node) -> None:
    tasks = [node.run("echo ready; exec sleep 600", milli) for milli in (130, 240, 500)]
    for one in tasks:
        one.update("TASK_RUNNING")
    node.daemon()  # one
    assert settings(node) == ["50.0"]
    for one in tasks:
        one.kill()
        one.update("TASK_KILLED")
        assert one.process.wait(60) == 0
    assert node.clean()


def test_an_executor_that_is_killed_leaves_the_daemon_to_its_neighbour_and_then_to_the_monitor(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps, "host_of", lambda *_: node.host)
    first, second = node.tenant(), node.tenant()
    pid = node.daemon()
    first.process.kill()
    first.process.wait()
    reap(first.ledger)
    assert node.daemon() == pid
    assert second.states()[-1] == "TASK_RUNNING"
    second.process.kill()
    second.process.wait()
    reap(second.ledger)
    card.tend(second.ledger)
    assert start_ticks(pid) is None
    assert second.ledger.cards() == ()
    assert node.clean()


def killed(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def stopped(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (killed, "its process has ended|Cannot find MPS control daemon process"),
        pytest.param(stopped, "did not answer", marks=pytest.mark.long),
    ],
    ids=["killed", "hung"],
)
def test_failed_daemon_moves_all_its_tasks_and_leaves_the_card_whole(
    node: Node, happens: Callable[[int], None], why: str
) -> None:
    tasks = [node.tenant(), node.tenant()]
    pid = node.daemon()
    happens(pid)
    for one in tasks:
        message, data = one.update("TASK_FAILED")
        assert f"the MPS daemon of {node.gpu} failed" in message
        assert re.search(why, message)
        assert json.loads(data)["infrastructure"] is True
        assert one.process.wait(60) == 0
    assert start_ticks(pid) is None
    assert tasks[0].ledger.holdings() == ()
    assert tasks[0].ledger.cards() == ()
    assert node.clean()
    again = node.tenant()
    assert settings(node) == ["25.0"]
    again.kill()
    again.end("TASK_KILLED")


@pytest.fixture
def fake(open_directory: Path, tmp_path: Path) -> Iterator[Node]:
    """A host whose daemon sees the clients that a test says."""
    needs("cgroup1")
    (tmp_path / "usr/bin").mkdir(parents=True)
    program = Path(fake_mps.program(str(tmp_path / "usr/bin"), 2))
    directory = open_directory / f"node-{time.monotonic_ns()}"
    directory.mkdir()
    with ExitStack() as stack:
        yield (made := Node(directory, program, stack))
    mps.undo(made.host, str(made.domain))
    assert made.clean()


def asked_to_end(one: Host) -> None:
    one.kill(grace_s=6.0)  # the fake takes as long for an answer as a Python to start


def killed_at_once(one: Host) -> None:
    one.kill(grace_s=0.0)


def ended_by_itself(one: Host) -> None:
    (one.sandbox / "end").touch()


def without_its_executor(one: Host) -> None:
    one.process.kill()
    one.process.wait()
    reap(one.ledger)


@pytest.mark.parametrize(
    "ends",
    [
        *(
            pytest.param(end, marks=pytest.mark.long)
            for end in (asked_to_end, killed_at_once, without_its_executor, None)
        ),
        ended_by_itself,
    ],
)
def test_a_client_is_drained_before_it_is_killed_however_its_task_ends(
    fake: Node, ends: Callable[[Host], None] | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The client ignores SIGTERM, and is no child of the command. None: its daemon's server is in fault."""
    monkeypatch.setattr(mps, "host_of", lambda *_: fake.host)
    neighbour = fake.tenant()
    client = "(trap '' TERM; echo $(exec sh -c 'echo $PPID') > client; while :; do sleep 1; done) & "
    one = fake.run(client + "until [ -e end ]; do sleep 0.1; done", kill_grace_s=6.0)
    one.update("TASK_RUNNING")
    wait_until("it has a client", lambda: (one.sandbox / "client").exists() and one_pid(one), 60)
    pid, pipes = one_pid(one), str(fake.host.pipes(fake.domain))
    servers, drained = {"4711": "FAULT" if ends is None else "ACTIVE"}, tmp_path / "drained"
    fake_mps.play(pipes, servers=servers, clients=[["4711", pid]], drained=str(drained))
    if ends is not None:
        ends(one)
    wait_until("it is gone", lambda: start_ticks(pid) is None, 60)
    assert drained.read_text().split() == [str(pid)], (one.sandbox / "executor.log").read_text()
    assert ends is None or neighbour.states()[-1] == "TASK_RUNNING"


def one_pid(one: Host) -> int:
    """The host's pid of the client that it says."""
    return int((one.sandbox / "client").read_text() or 0)


def test_a_share_of_root_is_refused(node: Node) -> None:
    one = node.run("echo never", user="root")
    message, outcome = one.end("TASK_FAILED")
    assert "MPS would let a task of root change the limits of others" in message
    assert outcome.infrastructure
    assert one.stdout() == ""
