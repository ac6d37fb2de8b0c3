"""Ports that are taken before the start of their task: by processes of the host, or by sockets of ended tasks."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isolator.confinement import listeners
from isolator.executor import taken_ports
from isolator.executor.taken_ports import vacate
from isolator.gpus.ledger import Ledger
from isolator.host.not_started import NotStarted
from mesos_gpu.errors import BadConfiguration
from tests.conftest import wait_until
from tests.doubles.scripted_agent import ScriptedAgent
from tests.hosts import host
from tests.kernel.confinement.other_tasks import made_cgroup, other_task

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes cgroups: needs root"),
    pytest.mark.usefixtures("own_network"),
]
OWN = "own-container"
#: Program that joins a cgroup, and passes on a socket that it has made there.
GIVER = """
import os, socket, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write("0")
made = {}
exec(sys.argv[2], globals(), made)
line = socket.socket(fileno=int(sys.argv[3]))
socket.send_fds(line, [str(made["port"]).encode()], [made["passed"].fileno()])
"""
BOUND = 'passed.bind(("", 0)); port = passed.getsockname()[1]'
KINDS = {
    "listening": f"passed = socket.socket(); {BOUND}; passed.listen()",
    "listening at IPv6": f"passed = socket.socket(socket.AF_INET6); {BOUND}; passed.listen()",
    "listening at one address": 'passed = socket.create_server(("127.0.0.3", 0)); port = passed.getsockname()[1]',
    "bound": f"passed = socket.socket(); {BOUND}",
    "bound to be shared": (
        f"passed = socket.socket(); passed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); {BOUND}"
    ),
    "UDP": f"passed = socket.socket(type=socket.SOCK_DGRAM); {BOUND}",
    "connected": (
        'one = socket.socket(); one.bind(("127.0.0.1", 0)); one.listen(); port = one.getsockname()[1]; '
        "other = socket.create_connection(one.getsockname()); passed = one.accept()[0]; "
        "one.close(); os.set_inheritable(other.fileno(), True); "
        'import subprocess; subprocess.Popen(["sleep", "60"], close_fds=False)'
    ),
}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def outlived(kind: str = "listening") -> tuple[socket.socket, int]:
    """Return a socket whose task has ended, with its cgroup, and the port of the socket."""
    cgroup = made_cgroup(f"gave-{os.getpid()}-{time.monotonic_ns()}")
    here, there = socket.socketpair()
    with here, there:
        argv = [sys.executable, "-c", GIVER, str(cgroup.path), KINDS[kind], str(there.fileno())]
        subprocess.run(argv, check=True, pass_fds=[there.fileno()], timeout=60)
        port, passed, _, _ = socket.recv_fds(here, 16, 1)
    assert cgroup.remove() == []
    return socket.socket(fileno=passed[0]), int(port)


def refused(port: int, ledger: Ledger, agent: str = "10.0.0.5:5051") -> str:
    """Return why a task with a port does not start. `agent`: endpoint of the agent of the task."""
    with pytest.raises(NotStarted) as caught:
        vacate([port], {"MESOS_AGENT_ENDPOINT": agent}, ledger, OWN)
    assert caught.value.outcome.infrastructure
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_another_task_that_keeps_a_socket_of_an_ended_one_is_killed(
    ledger: Ledger, tmp_path: Path, kind: str
) -> None:
    with other_task(ledger, tmp_path, (passed := outlived(kind))[0].detach()) as other:
        vacate([passed[1]], {}, ledger, OWN)
        assert other.process.wait(60) == -9
        said = (other.sandbox / "stderr").read_text()
        assert said.startswith(f"[mesos-gpu] process {other.process.pid} (python")
        assert f"of task other.1 was killed: it held a socket at port {passed[1]}" in said
    with socket.socket() as server:
        server.bind(("127.0.0.1", passed[1]))


def test_a_process_outside_of_tasks_is_named_and_not_killed(ledger: Ledger) -> None:
    passed, port = outlived()
    with passed:
        said = refused(port, ledger)
    assert f"port {port} of this host, which Mesos gave to the task" in said
    assert "is bound by a socket of a task that has ended, of uid 0" in said
    assert f"held by process {os.getpid()} (" in said


def test_a_socket_that_no_process_shows_is_reported_with_who_may_have_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    """A descriptor that was sent and not received is in no process' table of descriptors."""
    passed, port = outlived()
    with other_task(ledger, tmp_path, passed.detach(), "queue") as other:
        said = refused(port, ledger)
        assert other.process.poll() is None, (
            "whoever has a socket of a stranger in its queue did not ask for it"
        )
        who = f"process {other.process.pid} (python"
    assert f"held by no process that can be seen (it may wait in the queue of a Unix socket of {who}" in said
    assert "of task other.1): end the jobs of uid 0" in said
    vacate([port], {}, ledger, OWN)


def test_a_task_whose_process_made_the_socket_itself_is_not_killed(ledger: Ledger, tmp_path: Path) -> None:
    """The cgroup of the socket is that of the host, as of a process that was started by hand."""
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    with other_task(ledger, tmp_path, server.detach()) as other:
        said = refused(port, ledger)
        assert other.process.poll() is None
        assert f"held by process {other.process.pid} (" in said
        assert "of task other.1: end that process" in said


def test_a_port_of_a_living_task_of_another_agent_is_left_to_the_task(ledger: Ledger) -> None:
    cgroup = made_cgroup(f"lives-{os.getpid()}")
    here, there = socket.socketpair()
    with here, there:
        argv = [sys.executable, "-c", GIVER, str(cgroup.path), KINDS["listening"], str(there.fileno())]
        subprocess.run(argv, check=True, pass_fds=[there.fileno()], timeout=60)
        port, passed, _, _ = socket.recv_fds(here, 16, 1)
    with socket.socket(fileno=passed[0]):
        vacate([int(port)], {}, ledger, OWN)
    assert cgroup.remove() == []


def test_connections_of_an_ended_server_do_not_matter(ledger: Ledger) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server.accept()[0].close()
            client.recv(1)
    with socket.socket() as probe, pytest.raises(OSError, match="in use"):
        probe.bind(("", port))  # TIME_WAIT
    vacate([port], {}, ledger, OWN)


def test_a_probe_of_another_executor_is_not_taken_for_a_server(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe has ended at the second look."""
    server = socket.create_server(("127.0.0.1", 0))

    def sockets_once(port: int) -> list[listeners.Found]:
        sockets = listeners.sockets_at(port)
        server.close()
        return sockets

    monkeypatch.setattr(taken_ports, "sockets_at", sockets_once)
    port = server.getsockname()[1]
    vacate([port], {}, ledger, OWN)


def test_a_socket_that_the_kernel_does_not_list_is_reported(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taken_ports, "sockets_at", lambda port: [])
    with socket.create_server(("127.0.0.1", 0)) as server:
        said = refused(server.getsockname()[1], ledger)
    assert "bound by a socket that the kernel does not list: use Linux 6.8 or newer" in said


def test_task_starts_if_sockets_cannot_be_listed(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cannot(port: int) -> list[listeners.Found]:
        raise OSError(2, "sockets cannot be listed (sock_diag)")

    monkeypatch.setattr(taken_ports, "sockets_at", cannot)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        vacate([port], {}, ledger, OWN)
    assert f"sockets at port {port} cannot be listed" in capsys.readouterr().err


def test_the_operator_sets_it_off_with_the_proof(ledger: Ledger) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for own in ({"MESOS_GPU_PORT_PROOF": "off"}, {"MESOS_GPU_ISOLATION": "off"}):
            vacate([port], own, ledger, OWN)
        with pytest.raises(BadConfiguration, match="MESOS_GPU_PORT_PROOF is 'of'"):
            vacate([port], {"MESOS_GPU_PORT_PROOF": "of"}, ledger, OWN)


@pytest.mark.parametrize("at", ["127.0.0.1", "::ffff:127.0.0.1", "", "127.0.0.12"])
def test_a_socket_at_another_address_leaves_the_port_of_an_agent_with_its_own_address(
    ledger: Ledger, at: str
) -> None:
    family = socket.AF_INET6 if ":" in at else socket.AF_INET
    with socket.create_server((at, 0), family=family, dualstack_ipv6=":" in at) as server:
        port = server.getsockname()[1]
        if at in ("", "127.0.0.12"):
            assert "is bound by a socket of another process" in refused(port, ledger, "127.0.0.12:5051")
            return
        vacate([port], {"MESOS_AGENT_ENDPOINT": "127.0.0.12:5051"}, ledger, OWN)
        with socket.create_server(("127.0.0.12", port)):
            assert "is bound by a socket of another process" in refused(port, ledger, "127.0.0.1:5051")


@pytest.mark.parametrize("proof", ["on", "off"])
def test_an_executor_blames_the_host_for_a_taken_port(
    open_directory: Path, agent: ScriptedAgent, proof: str
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        host(open_directory, agent, MESOS_GPU_PORT_PROOF=proof, MESOS_GPU_CONTROL_PORTS="off") as one,
    ):
        port = server.getsockname()[1]
        one.ports = port, port
        one.launch("echo ran")
        if proof == "off":
            one.end("TASK_FINISHED")
            return
        message, outcome = one.end("TASK_FAILED")
        assert outcome.infrastructure
        assert f"port {port} of this host, which Mesos gave to the task, is bound by" in message
        assert f"of uid 0, held by process {os.getpid()} (" in message
        assert "MESOS_GPU_PORT_PROOF=off on the agent" in message
        assert one.stdout() == ""
    wait_until("its port is free", lambda: not listeners.listening(port))
