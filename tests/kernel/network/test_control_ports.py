"""A task does not reach the control ports: tried by the executor itself, as a task would, on cgroup v1 and v2."""

import errno
import json
import shlex
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.agent.commands import executor_command
from isolator.confinement.listeners import Listeners
from isolator.devices import cgroups
from isolator.executor.checks import Checker
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.wire.mesos.checks import encode as encode_checks
from tests.doubles.scripted_agent import ScriptedAgent
from tests.hosts import TASK, Host, changed_executor, host
from tests.kernel.conftest import needs

pytestmark = pytest.mark.kernel
PYTHON = "/usr/bin/python3"  # one that the user nobody can run
#: Each way to reach a port that a program has; what it prints of each is the error's number, 0 for none.
PROBE = Path(__file__).with_name("reach.py")


def needs_rules() -> None:
    """Skip where the kernel has no such programs: only as root, beside cgroup v2."""
    needs("cgroup2")


@pytest.fixture
def one(open_directory: Path, agent: ScriptedAgent, isolation: str) -> Iterator[Host]:
    needs_rules()
    directory = open_directory / str(time.monotonic_ns())
    directory.mkdir()
    with host(directory, agent, MESOS_GPU_ISOLATION=isolation) as one:
        yield one


def agent_port(one: Host) -> int:
    return int(one.agent.endpoint.rpartition(":")[2])


def reached(one: Host, *targets: str, user: str = "nobody") -> dict[str, dict[str, int]]:
    """What each way to each target said to the task."""
    (one.sandbox / "reach.py").write_text(PROBE.read_text())
    one.launch(f"{PYTHON} reach.py {' '.join(targets)}", user=user)
    one.end("TASK_FINISHED")
    results: dict[str, dict[str, int]] = json.loads(one.stdout())
    return results


@pytest.mark.parametrize("user", ["nobody", "root"])
def test_the_agents_port_is_denied_on_every_address_and_by_every_way(one: Host, user: str) -> None:
    port = agent_port(one)
    addresses = (
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "::1",
        "::",
        "::ffff:127.0.0.1",
        "192.0.2.1",
        "2001:db8::1",
    )
    results = reached(one, *(f"{address}@{port}" for address in addresses), user=user)
    assert len(results) == len(addresses)
    assert all(number == errno.EPERM for tried in results.values() for number in tried.values()), results


def test_other_ports_are_reached_as_ever(one: Host) -> None:
    """So EPERM above is the rules' word."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        results = reached(one, f"127.0.0.1@{port}", f"::ffff:127.0.0.1@{port}")
    for tried in results.values():
        assert {tried[way] for way in ("tcp", "mptcp", "udp", "udp connected", "tcp, bound first")} == {0}, (
            results
        )
        assert errno.EPERM not in tried.values(), results


def test_control_ports_of_the_operators_list_are_denied_and_ports_of_the_task_are_not(
    open_directory: Path, agent: ScriptedAgent
) -> None:
    """Names are those of the scheduler; the operator's ports have none, and nobody is given them."""
    needs("cgroup2")
    known = (
        ControlPort("master", 5050),
        ControlPort("api", 8080, "192.0.2.1"),
        ControlPort("api", 8081, "", "x"),
    )
    with host(open_directory, agent, MESOS_GPU_CONTROL_PORTS="2181,192.0.2.7:2375,[2001:db8::7]:2376") as one:
        (one.sandbox / "reach.py").write_text(PROBE.read_text())
        targets = (
            "127.0.0.1@5050 192.0.2.1@8080 ::ffff:192.0.2.1@8080 127.0.0.1@8080 127.0.0.1@8081 127.0.0.1@2181 "
            "192.0.2.7@2375 192.0.2.8@2375 2001:db8::7@2376 2001:db8::8@2376"
        )
        one.launch(
            f"{PYTHON} reach.py way=udp {targets}",
            user="nobody",
            control_ports=known,
            control_access=("master",),
        )
        one.end("TASK_FINISHED")
        results = {target: tried["udp"] for target, tried in json.loads(one.stdout()).items()}
    denied = {target for target, number in results.items() if number == errno.EPERM}
    assert denied == {
        "192.0.2.1@8080", "::ffff:192.0.2.1@8080", "127.0.0.1@2181", "192.0.2.7@2375", "2001:db8::7@2376",
    }, results  # fmt: skip


def test_a_setting_that_cannot_be_fails_the_launch(open_directory: Path, agent: ScriptedAgent) -> None:
    needs("cgroup2")
    with host(open_directory, agent, MESOS_GPU_CONTROL_PORTS="2181,zookeeper:x") as one:
        one.launch("echo never", user="nobody")
        message, outcome = one.end("TASK_FAILED")
        assert one.stdout() == ""
    assert "MESOS_GPU_CONTROL_PORTS has the entry 'zookeeper:x': 'x' is not a port" in message
    assert outcome.infrastructure


def test_control_ports_are_open_if_the_operator_says_off(open_directory: Path, agent: ScriptedAgent) -> None:
    needs("cgroup2")
    with host(open_directory, agent, MESOS_GPU_CONTROL_PORTS="off") as one:
        results = reached(one, f"127.0.0.1@{agent_port(one)}")
    assert results[f"127.0.0.1@{agent_port(one)}"]["tcp"] == 0


def test_a_task_is_not_told_where_its_agent_is(one: Host) -> None:
    one.launch("env", user="nobody")
    one.end("TASK_FINISHED")
    names = {line.partition("=")[0] for line in one.stdout().splitlines()}
    assert not names & {
        "MESOS_AGENT_ENDPOINT",
        "MESOS_SLAVE_PID",
        "MESOS_SLAVE_ID",
        "MESOS_GPU_CONTROL_PORTS",
    }
    assert str(agent_port(one)) not in one.stdout()


def refused_by(
    code: str, directory: Path, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Outcome, int]:
    """What an executor changed by this code says of a launch that it must refuse, and its agent's port."""
    monkeypatch.setattr("tests.hosts.executor_command", lambda: changed_executor(code))
    with host(directory, agent) as one:
        one.launch("echo never", user="nobody")
        message, outcome = one.end("TASK_FAILED")
        assert one.stdout() == ""
        return message, outcome, agent_port(one)


def test_rules_that_deny_nothing_fail_the_launch(
    open_directory: Path, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor whose programs let all through, as on a kernel that does not ask them: seen from inside."""
    needs("cgroup2")
    code = (
        "from isolator.devices import bpf\n"
        "compile = bpf.compile_denials; bpf.compile_denials = lambda denied, family: compile((), family)"
    )
    message, outcome, port = refused_by(code, open_directory, agent, monkeypatch)
    assert f"port {port} is not denied" in message
    assert outcome.infrastructure


def test_a_command_check_of_the_task_reaches_no_more_than_the_task(one: Host) -> None:
    port = agent_port(one)
    code = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
    check = HealthCheck(
        protocol=Protocol.COMMAND,
        command=f'{PYTHON} -c "{code}"',
        interval_s=1,
        grace_period_s=0,
        delay_s=0,
    )
    one.launch("echo ready; exec sleep 600", user="nobody", checks=encode_checks((check,)))
    one.agent.wait_for(lambda: any(update.get("healthy") is False for update in one.agent.updates), 30)
    said = [update.get("message", "") for update in one.agent.updates if update.get("healthy") is False]
    assert any("Operation not permitted" in text for text in said), said
    one.kill()
    one.update("TASK_KILLED")


def test_cgroup_v2_is_mounted_if_it_is_not(
    open_directory: Path, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a mount namespace without it, as on a host that boots with v1 alone: also the devices are kept by v1 there."""
    needs("cgroup1")
    needs("cgroup2")
    ours = executor_command()
    gone = f"umount {cgroups.mounted()['cgroup2']} && {ours}"
    monkeypatch.setattr("tests.hosts.executor_command", lambda: f"exec unshare -m sh -c {shlex.quote(gone)}")
    directory = open_directory / str(time.monotonic_ns())
    directory.mkdir()
    with host(directory, agent) as one:
        port = agent_port(one)
        (one.sandbox / "reach.py").write_text(PROBE.read_text())
        own = "/run/mesos-gpu/cgroup2/cgroup.procs"
        one.launch(
            f"{PYTHON} reach.py 127.0.0.1@{port}; grep ^0:: /proc/self/cgroup; echo $$ > {own} || echo held",
            user="root",
        )
        one.end("TASK_FINISHED")
        reached, where, held = one.stdout().splitlines()
    assert set(json.loads(reached)[f"127.0.0.1@{port}"].values()) == {errno.EPERM}
    assert where == f"0::/mesos_gpu/{one.sandbox.name}"
    assert held == "held"
    assert not (cgroups.mounted()["cgroup2"] / f"mesos_gpu/{one.sandbox.name}").exists()


def test_task_does_not_start_without_cgroup_v2(
    open_directory: Path, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that has none, or lets nobody mount it."""
    needs("cgroup1")
    code = (
        "from isolator.devices import cgroups, view\n"
        "mounted = cgroups.mounted\n"
        "cgroups.mounted = lambda *root: {k: v for k, v in mounted(*root).items() if k != 'cgroup2'}\n"
        "def refuse(): raise OSError(19, 'No such device')\n"
        "view.mount_cgroup2 = refuse"
    )
    message, outcome, _ = refused_by(code, open_directory, agent, monkeypatch)
    assert "tasks cannot be kept from the control ports" in message
    assert "MESOS_GPU_CONTROL_PORTS=off" in message
    assert outcome.infrastructure


def test_checks_of_the_executor_reach_no_denied_port(one: Host) -> None:
    """A check is made outside the task's cgroup, and says of each page whether it is there."""
    for protocol in (Protocol.MESOS_TCP, Protocol.MESOS_HTTP):
        check = HealthCheck(
            protocol=protocol, port=agent_port(one), interval_s=1, grace_period_s=0, delay_s=0
        )
        refused = Checker((check,), TASK, None, lambda _: None, Listeners(None), denied=(agent_port(one),))
        with pytest.raises(OSError, match="controls the cluster"):
            refused._attempt(0, check)
    one.launch("exec sleep 600", user="nobody", checks=encode_checks((check,)))
    one.agent.wait_for(lambda: any(update.get("healthy") is False for update in one.agent.updates), 30)
    said = [update.get("message", "") for update in one.agent.updates if update.get("healthy") is False]
    assert all("controls the cluster, and tasks may not reach it" in text for text in said), said
    one.kill()
    one.update("TASK_KILLED")
