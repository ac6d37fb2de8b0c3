"""A task cannot bind ports that agents of its host give to other tasks, by any way, on cgroup v1 and v2."""

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.local.task_ports import ephemeral_ports
from tests.doubles.scripted_agent import ScriptedAgent
from tests.hosts import Host, changed_executor, host
from tests.kernel.conftest import needs

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("own_network")]
PYTHON = "/usr/bin/python3"  # one that the user nobody can run
SQUAT = Path(__file__).with_name("squat.py")
#: Outside of the ephemeral range and of the ports of embedded clusters.
FIRST, LAST = 8200, 8399
OWN = (8300, 8302)


@pytest.fixture
def one(open_directory: Path, agent: ScriptedAgent, isolation: str) -> Iterator[Host]:
    needs("cgroup2")
    directory = open_directory / str(time.monotonic_ns())
    directory.mkdir()
    given = {"MESOS_GPU_ISOLATION": isolation, "MESOS_GPU_TASK_PORTS": f"{FIRST}-{LAST}"}
    with host(directory, agent, **given) as one:
        yield one


def squatted(one: Host, *ranges: str, user: str = "nobody") -> dict[str, set[int]]:
    """Return what a task with the ports OWN bound of these ranges."""
    (one.sandbox / "squat.py").write_text(SQUAT.read_text())
    one.ports = OWN
    one.launch(f"{PYTHON} squat.py {' '.join(ranges)}", user=user)
    one.end("TASK_FINISHED")
    return bound_in(one.stdout())


def bound_in(said: str) -> dict[str, set[int]]:
    """Return of each way the ports that squat.py says were bound."""
    spans = json.loads(said)
    return {
        way: {port for first, last in each for port in range(first, last + 1)} for way, each in spans.items()
    }


@pytest.mark.parametrize("user", ["nobody", "root"])
def test_a_task_binds_its_own_ports_and_no_other_of_the_range(one: Host, user: str) -> None:
    got = squatted(one, f"{FIRST - 2}-{LAST + 2}", user=user)
    chosen = got.pop("chosen")
    namespaced = got.pop("user namespace")
    expected = {FIRST - 2, FIRST - 1, *range(OWN[0], OWN[1] + 1), LAST + 1, LAST + 2}
    assert len(got) == 16
    assert all(ports == expected for ports in got.values()), got
    assert namespaced <= {FIRST - 2}
    assert not chosen & set(range(FIRST, LAST + 1))


def test_ports_that_the_kernel_chooses_are_outside_the_range_if_the_doctor_finds_no_overlap(
    one: Host,
) -> None:
    """Listening without a bind runs no eBPF program, so the ephemeral range must not overlap."""
    chosen = squatted(one, f"{FIRST}-{FIRST}")["chosen"]
    ranges = ephemeral_ports()
    assert len(chosen) > 200
    assert all(any(first <= port <= last for first, last in ranges) for port in chosen)


def test_a_socket_of_another_task_carries_the_rules_of_its_maker(one: Host) -> None:
    """The rules of a passed socket are those of the cgroup in which the socket was created."""
    code = (
        "import os, socket, sys\n"
        "ours = socket.socket(socket.AF_UNIX); ours.connect('meet')\n"
        "made = socket.socket(); socket.send_fds(ours, [b'x'], [made.fileno()]); ours.recv(1)"
    )
    (one.sandbox / "give.py").write_text(code)
    with socket.socket(socket.AF_UNIX) as meeting:
        meeting.bind(str(one.sandbox / "meet"))
        os.chmod(one.sandbox / "meet", 0o777)
        meeting.listen()
        meeting.settimeout(30)
        one.ports = OWN
        one.launch(f"exec {PYTHON} give.py", user="nobody")
        theirs, _ = meeting.accept()
        with theirs:
            _, (number,), _, _ = socket.recv_fds(theirs, 1, 1)
            with socket.socket(fileno=number) as passed:
                with pytest.raises(PermissionError):
                    passed.bind(("127.0.0.1", FIRST))
                passed.bind(("127.0.0.1", OWN[0]))
    one.end("TASK_FINISHED")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("", "the agent's range of ports is unknown"),
        ("31000-", "MESOS_GPU_TASK_PORTS is '31000-': '' is not a port"),
    ],
)
def test_a_range_that_is_not_known_fails_the_launch(
    open_directory: Path, agent: ScriptedAgent, setting: str, said: str
) -> None:
    needs("cgroup2")
    with host(open_directory, agent, MESOS_GPU_TASK_PORTS=setting) as one:
        one.launch("echo never", user="nobody")
        message, outcome = one.end("TASK_FAILED")
        assert one.stdout() == ""
    assert said in message
    assert outcome.infrastructure


def test_programs_that_let_all_be_bound_fail_the_launch(
    open_directory: Path, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen from inside, before the command runs."""
    needs("cgroup2")
    code = (
        "from isolator.devices import bpf\n"
        "from isolator.host.port_ranges import EVERY_PORT\n"
        "compile = bpf.compile_binds\n"
        "bpf.compile_binds = lambda denied, grant, family: compile(denied, EVERY_PORT, family)"
    )
    monkeypatch.setattr("tests.hosts.executor_command", lambda: changed_executor(code))
    with host(open_directory, agent, MESOS_GPU_TASK_PORTS=f"{FIRST}-{LAST}") as one:
        one.launch("echo never", user="nobody")
        message, outcome = one.end("TASK_FAILED")
    assert f"port {FIRST} is not denied" in message
    assert outcome.infrastructure
