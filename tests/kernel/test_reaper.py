"""The node's caretaker, with real tasks: strangers on a card are named, tampered rules are set right."""

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.agent.commands import executor_command
from isolator.devices import bpf_sys, cgroups
from isolator.gpus.ledger import Owner
from isolator.host.sealing import is_sealed
from isolator.node.reaper import audit, end_dead, reap, strangers
from tests.conftest import wait_until
from tests.doubles.scripted_agent import ScriptedAgent
from tests.hosts import GPUS, INVENTORY, TASK, Host, host

pytestmark = pytest.mark.kernel


@pytest.fixture
def one(open_directory: Path, agent: ScriptedAgent, isolation: str) -> Iterator[Host]:
    directory = open_directory / str(time.monotonic_ns())
    directory.mkdir()
    with host(directory, agent, MESOS_GPU_ISOLATION=isolation) as one:
        one.launch("echo ready; echo $$; exec sleep 600", user="nobody", gpus=GPUS[:1])
        wait_until("it runs", lambda: len(one.stdout().split()) == 2)
        one.update("TASK_RUNNING")
        yield one
        one.kill()
        one.end("TASK_KILLED")


def cgroup_of(one: Host, isolation: str) -> Path:
    version: cgroups.Version = "cgroup1" if isolation == "cgroup1" else "cgroup2"
    return cgroups.mounted()[version] / cgroups.OWN_ROOT / one.sandbox.name


def test_reaper_leaves_right_rules_alone(one: Host, isolation: str) -> None:
    assert audit(one.ledger, INVENTORY, {"MESOS_GPU_ISOLATION": isolation}) == []


def test_tampered_rules_are_set_right_and_said(one: Host, isolation: str) -> None:
    path = cgroup_of(one, isolation)
    if isolation == "cgroup1":
        (path / "devices.allow").write_text("c 195:1 rw")
    else:
        fd = os.open(path, os.O_RDONLY)
        (ours,) = bpf_sys.query(fd)
        program = bpf_sys.open_program(ours.id)
        bpf_sys.detach(fd, program)
        os.close(program)
        os.close(fd)
    (said,) = audit(one.ledger, INVENTORY, {"MESOS_GPU_ISOLATION": isolation})
    assert str(path) in said
    assert TASK in said
    assert audit(one.ledger, INVENTORY, {"MESOS_GPU_ISOLATION": isolation}) == []


def test_a_stranger_is_named_until_it_is_gone(one: Host) -> None:
    task, nobody = int(one.stdout().split()[1]), pwd.getpwnam("nobody").pw_uid
    with subprocess.Popen(["sleep", "600"], user=nobody) as stranger:
        wait_until("it is nobody's", lambda: os.stat(f"/proc/{stranger.pid}").st_uid == nobody)
        on_cards = {GPUS[0]: [task, one.process.pid], GPUS[1]: [stranger.pid]}
        assert strangers(one.ledger, on_cards) == {
            GPUS[1]: f"pid {stranger.pid} (sleep) of nobody, which no task accounts for"
        }
        beside = strangers(one.ledger, {GPUS[0]: [task, stranger.pid]})
        assert set(beside) == {GPUS[0]}, "a stranger on a card that is held is one, too"
        assert set(strangers(one.ledger, {GPUS[1]: [task]})) == {GPUS[1]}, (
            "so is a task on a card that it does not hold"
        )
        stranger.kill()
    assert strangers(one.ledger, on_cards) == {}
    assert strangers(one.ledger, {GPUS[0]: [], GPUS[1]: []}) == {}


def test_reaping_leaves_the_living_alone(one: Host) -> None:
    reap(one.ledger)
    assert [held.task for held in one.ledger.holdings()] == [TASK]
    assert one.states()[-1] == "TASK_RUNNING"


def test_the_sandbox_of_a_task_whose_executor_died_is_sealed(
    open_directory: Path, agent: ScriptedAgent
) -> None:
    directory = open_directory / str(time.monotonic_ns())
    directory.mkdir()
    with host(directory, agent) as one:
        one.launch("mkdir -m 777 d && touch d/mine && echo up; exec sleep 600", user="nobody", gpus=GPUS[:1])
        wait_until("it runs", lambda: "up" in one.stdout(), 30)
        one.process.send_signal(signal.SIGKILL)
        one.process.wait()
        end_dead(one.ledger)
        (left,) = one.ledger.holdings()
        assert left.is_released, "its card waits for no seal"
        assert not is_sealed((one.sandbox / "d").stat())
        reap(one.ledger)
        assert one.ledger.holdings() == ()
        assert all(is_sealed(path.stat()) for path in (one.sandbox, *one.sandbox.rglob("*")))


def test_after_a_reboot_every_claim_is_void_whatever_the_pids_are(one: Host) -> None:
    """A pid of before may be another's now, and minors may be others': boot id, start time and inventory say so."""
    me = Owner.of(os.getpid())
    before = Owner(me.pid, me.start_ticks, "another-boot", me.pid_namespace)
    one.ledger.claim("old.0", [GPUS[1]], before, container="old-container")
    reap(one.ledger)
    assert [held.task for held in one.ledger.holdings()] == [TASK]


def test_an_owner_in_a_pid_namespace_of_its_own_is_known_dead_by_its_lock(
    open_directory: Path, agent: ScriptedAgent, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On agents with Mesos' isolator namespaces/pid, pids say nothing across."""
    inside = "unshare --pid --fork --kill-child --mount-proc " + executor_command().removeprefix("exec ")
    monkeypatch.setattr("tests.hosts.executor_command", lambda: "exec " + inside)
    directory = open_directory / f"pidns-{time.monotonic_ns()}"
    directory.mkdir()
    with host(directory, agent, MESOS_GPU_ISOLATION=isolation) as one:
        one.launch("echo ready; exec sleep 600", user="nobody", gpus=GPUS)
        wait_until("it runs", lambda: "ready" in one.stdout())
        (held,) = one.ledger.holdings()
        assert held.owner.alive() is None
        reap(one.ledger)
        assert one.ledger.holdings() == (held,), "it lives"
        assert cgroup_of(one, isolation).exists()
        one.process.kill()
        one.process.wait(60)
        wait_until("its lock is open", lambda: not one.ledger.alive(held))
        reap(one.ledger)
        assert one.ledger.holdings() == ()
        assert not cgroup_of(one, isolation).exists()
        assert not Path("/dev/mesos_gpu", one.sandbox.name).exists()
