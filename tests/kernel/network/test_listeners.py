"""Proof of listeners: for each kind of socket, for shared ports, and in other networks."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isolator.confinement import listeners as module
from isolator.confinement.fence import see_cgroup2
from isolator.confinement.listeners import Listeners, NotOfTask, listeners_of
from isolator.devices import cgroups
from isolator.executor.checks import Checker
from isolator.executor.listening import Watch
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.jobs.healthcheck import HealthCheck, Protocol
from mesos_gpu.model.jobs.port import PortBinding
from mesos_gpu.policy.apps.healthcheck import TaskHealth
from mesos_gpu.wire.hosts.listening import decode_listening
from tests.conftest import wait_until

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes cgroups and networks: needs root"),
    pytest.mark.usefixtures("own_network"),
]
#: Program that joins a cgroup, listens, and prints its port. It accepts connections and greets, or leaves them waiting.
SERVER = """
import json, os, socket, subprocess, sys
told = json.loads(sys.argv[1])
with open(told["cgroup"] + "/cgroup.procs", "w") as file:
    file.write("0")
for words in told["commands"]:
    subprocess.run(words.split(), check=True)
family = socket.AF_INET6 if ":" in told["address"] else socket.AF_INET
with socket.socket(family) as listener:
    if told["shared"]:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if told["deferred"]:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind((told["address"], told["port"]))
    listener.listen(told["backlog"])
    print(listener.getsockname()[1], flush=True)
    while told["takes"]:
        line, _ = listener.accept()
        line.sendall(told["name"].encode())
        line.close()
    sys.stdin.read()
"""


class Process:
    """A server in a cgroup of its own. `port`: where it listens."""

    def __init__(self, name: str, **more: Any) -> None:
        see_cgroup2()
        own = f"listen-{os.getpid()}-{time.monotonic_ns()}"
        self.cgroup = cgroups.Cgroup(
            "cgroup2", cgroups.mounted()["cgroup2"] / cgroups.OWN_ROOT / own, own=True
        )
        self.cgroup.create()
        told = {
            "name": name, "cgroup": str(self.cgroup.path), "address": "127.0.0.1", "port": 0, "backlog": 64,
            "takes": True, "shared": False, "deferred": False, "commands": [], **more,
        }  # fmt: skip
        prefix = ["unshare", "--net"] if told["commands"] else []
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-c", SERVER, json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.pid = self._process.pid

    def listeners(self, *bindings: PortBinding) -> Listeners:
        return listeners_of(self.pid, {}, bindings or None)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()
        assert self.cgroup.remove() == []


Start = Callable[..., Process]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Process] = []

    def begin(name: str = "task", **more: Any) -> Process:
        started.append(Process(name, **more))
        return started[-1]

    yield begin
    for each in started:
        each.end()


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("127.0.0.1", {}),
    "any address": ("127.0.0.1", {"address": "0.0.0.0"}),
    "IPv6": ("::1", {"address": "::1"}),
    "both by IPv4": ("127.0.0.1", {"address": "::"}),
    "both by IPv6": ("::1", {"address": "::"}),
    "not accepted yet": ("127.0.0.1", {"takes": False}),
    "accepted with the first byte": ("127.0.0.1", {"deferred": True, "takes": False}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_is_proved_to_lead_to_the_task_and_to_no_other(start: Start, kind: str) -> None:
    address, more = KINDS[kind]
    task, other = start(**more), start("other", **more)
    with socket.create_connection((address, task.port)) as line:
        task.listeners().prove(line, task.port)
        with pytest.raises(NotOfTask, match="of uid 0, listens at port 31000 instead of the job"):
            other.listeners().prove(line, 31000)


def test_a_connection_beyond_a_full_queue_belongs_to_who_listens(start: Start) -> None:
    task, other = start(takes=False, backlog=0), start("other")
    lines = [socket.socket() for _ in range(3)]
    try:
        for line in lines:
            line.setblocking(False)
            line.connect_ex(("127.0.0.1", task.port))
        lines[0].setblocking(True)
        task.listeners().prove(lines[0], task.port)
        with pytest.raises(NotOfTask):
            other.listeners().prove(lines[0], task.port)
    finally:
        for line in lines:
            line.close()


def test_connections_to_a_shared_port_are_judged_one_by_one(start: Start) -> None:
    task = start(shared=True)
    other = start("other", shared=True, port=task.port)
    mine, said = task.listeners(), []
    for _ in range(60):
        with socket.create_connection(("127.0.0.1", task.port)) as line:
            try:
                mine.prove(line, task.port)
                proved = True
            except NotOfTask:
                proved = False
            said.append((proved, line.recv(99)))
    assert set(said) == {(True, b"task"), (False, b"other")}
    ports, problem = mine.proved([task.port])
    assert (ports, f"listens at port {task.port} instead of the job" in problem) == ((), True)
    other.end()
    assert mine.proved([task.port, 1]) == ((task.port,), "")


def test_an_ended_connection_does_not_prove_a_listener(start: Start) -> None:
    task = start(takes=False)
    with socket.create_connection(("127.0.0.1", task.port)) as line:
        mine = task.listeners()
        os.kill(task.pid, 9)
        wait_until("it is dead", lambda: not cgroups.pids_below(task.cgroup.path))
        with pytest.raises(OSError, match=r"ended|not connected"):
            mine.prove(line, task.port)
    assert mine.proved([task.port]) == ((), "")


def test_a_process_without_a_cgroup_of_its_own_has_no_proof(start: Start) -> None:
    task = start()
    (cgroups.mounted()["cgroup2"] / "cgroup.procs").write_text(str(task.pid))
    with socket.create_connection(("127.0.0.1", task.port)) as line:
        with pytest.raises(NotOfTask, match=r"no cgroup of version 2 of its own.*MESOS_GPU_PORT_PROOF=off"):
            task.listeners().prove(line, task.port)
        for env in ({"MESOS_GPU_PORT_PROOF": "off"}, {"MESOS_GPU_ISOLATION": "off"}):
            off = listeners_of(task.pid, env)
            off.prove(line, task.port)
            assert off.proved([task.port]) == ((task.port,), "")
        with pytest.raises(NotOfTask, match="is not visible"):
            listeners_of(None, {}).prove(line, task.port)
    with pytest.raises(BadConfiguration, match="MESOS_GPU_PORT_PROOF is 'of'"):
        listeners_of(task.pid, {"MESOS_GPU_PORT_PROOF": "of"})


def test_a_kernel_that_names_no_cgroup_proves_nothing(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    task = start()
    monkeypatch.setattr(module, "_CGROUP_ID", 9999)  # an attribute that no kernel has
    with (
        socket.create_connection(("127.0.0.1", task.port)) as line,
        pytest.raises(NotOfTask, match=r"use Linux 5.9 or newer"),
    ):
        task.listeners().prove(line, task.port)
    assert task.listeners().proved([task.port])[0] == ()


BRIDGE = [
    "ip link set lo up",
    "ip link add inner type veth peer name outer",
    "ip addr add 10.77.66.5/24 dev inner",
    "ip link set inner up",
    "ip link set outer up",
]


def test_a_container_on_a_bridge_is_checked_in_its_own_network(start: Start) -> None:
    """The host's port is another process's in this test, and is not connected to."""
    stranger = start("stranger")
    task = start(address="0.0.0.0", commands=BRIDGE)
    bindings = (PortBinding(task.port, stranger.port, "tcp"), PortBinding(9, 31009, "udp"))
    here = os.readlink("/proc/thread-self/ns/net")
    mine = task.listeners(*bindings)
    try:
        assert mine.place_of(stranger.port, ipv6=False) == ("10.77.66.5", task.port)
        assert mine.proved([stranger.port]) == ((stranger.port,), "")
        assert mine.proved([31009]) == ((), "port 31009 of the host does not lead to the job")
        assert os.readlink("/proc/thread-self/ns/net") == here
    finally:
        mine.close()
    reports: list[TaskHealth] = []
    check = HealthCheck(Protocol.MESOS_TCP, port=stranger.port, interval_s=60, delay_s=0, grace_period_s=0)
    checker = Checker((check,), "t", None, reports.append, task.listeners(*bindings))
    checker.start()
    try:
        assert wait_until("it is checked", lambda: reports)[0].healthy is True
    finally:
        checker.stop()


def test_reports_of_ports_change_with_the_listener(start: Start, tmp_path: Path) -> None:
    task = start(shared=True)
    watch = Watch(task.listeners(), (task.port, 1))
    seen = watch.look()
    assert seen is not None
    told = decode_listening(seen.payload)
    assert told is not None
    assert (told.ports, told.problem) == ((task.port,), "")
    assert watch.look() is None
    other = start("other", shared=True, port=task.port)
    seen = watch.look()
    assert seen is not None
    told = decode_listening(seen.payload)
    assert told is not None
    assert told.ports == ()
    assert "of uid 0" in told.problem
    other.end()
    again = watch.look()
    assert again is not None
    watch.close()
