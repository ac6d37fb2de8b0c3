"""Which ports a task is denied: what the scheduler knows, what the operator lists, and what is this host's."""

import socket

import pytest

from isolator.devices import bpf
from isolator.host.control_ports import Denial, denials, listed
from mesos_gpu.adapters.proc import boot_id
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.scheduler.control import of_api, of_cluster

AGENT = {"MESOS_AGENT_ENDPOINT": "10.0.0.5:5051"}


def test_the_own_agent_is_denied_whatever_the_scheduler_knows() -> None:
    assert denials(AGENT, (), (), "b") == (Denial(5051),)
    assert denials(AGENT, (), ("api", "master"), "b") == (Denial(5051),)


def test_an_api_on_loopback_is_denied_on_its_own_host_only() -> None:
    ports = of_api("127.0.0.1", 8080)
    assert denials({}, ports, (), boot_id()) == (Denial(8080),)
    assert denials({}, ports, (), "another boot") == ()


def test_an_api_on_all_addresses_is_denied_by_address_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = (ControlPort("api", 8080, boot_id="its"), ControlPort("api", 8080, "192.0.2.9"))
    assert denials({}, ports, (), "its") == (Denial(8080),)
    assert denials({}, ports, (), "other") == (Denial(8080, "192.0.2.9"),)


def test_an_address_of_this_host_is_all_of_them() -> None:
    """0.0.0.0 and the whole of 127/8 lead to what listens on 127.0.0.1 or everywhere."""
    assert listed({"MESOS_GPU_CONTROL_PORTS": "127.0.0.1:2375, [::1]:2376 ,192.0.2.1:2377"}) == (
        Denial(2375), Denial(2376), Denial(2377, "192.0.2.1"),
    )  # fmt: skip


@pytest.mark.parametrize("env", [{"MESOS_GPU_CONTROL_PORTS": "off"}, {"MESOS_GPU_ISOLATION": "off"}])
def test_off_denies_nothing(env: dict[str, str]) -> None:
    assert denials({**AGENT, **env}, (ControlPort("master", 5050),), (), "b") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0", "'0' is no port"),
        ("65536", "'65536' is no port"),
        ("5050,http", "'http' is no port"),
        ("zk:2181", "'zk' is no IP address"),
        ("fd00::1:2181", "IPv6 goes in brackets"),
        ("[10.0.0.1]:2181", "IPv6 goes in brackets"),
        ("OFF", "'OFF' is no port"),
    ],
)
def test_what_cannot_be_listed_is_named(text: str, said: str) -> None:
    with pytest.raises(BadConfiguration, match="MESOS_GPU_CONTROL_PORTS") as raised:
        listed({"MESOS_GPU_CONTROL_PORTS": text})
    assert said in raised.value.what


def test_a_cluster_is_its_master_and_all_agents() -> None:
    urls = ["http://n1:5051", "http://n2:5051", "http://n3:15000", "https://n4"]
    assert of_cluster("http://m:5050", urls) == (
        ControlPort("agent", 5051), ControlPort("agent", 15000), ControlPort("master", 5050),
    )  # fmt: skip
    assert of_cluster("", []) == ()


def decides(denied: tuple[Denial, ...], family: int, address: str, port: int) -> int:
    """What the program answers: run by hand, on the context that the kernel would give."""
    packed = socket.inet_pton(family, address)
    context = bytes(4) + (packed + bytes(16) if family == socket.AF_INET else bytes(4) + packed)
    context = context.ljust(24, b"\0") + port.to_bytes(2, "big") + bytes(2)
    registers, at, program = dict.fromkeys(range(11), 0), 0, bpf.compile_denials(denied, family)
    while True:
        one = program[at]
        at += 1
        match one.code:
            case bpf.LOAD_WORD:
                registers[one.dst] = int.from_bytes(context[one.off : one.off + 4], "little")
            case bpf.XOR_VALUE:
                registers[one.dst] = (registers[one.dst] ^ one.imm) & 0xFFFFFFFF
            case bpf.MOVE_VALUE:
                registers[one.dst] = one.imm
            case bpf.JUMP_UNLESS:
                at += one.off if registers[one.dst] != one.imm else 0
            case bpf.EXIT:
                return registers[0]


@pytest.mark.parametrize(
    ("family", "address", "port", "allowed"),
    [
        (socket.AF_INET, "10.0.0.1", 5051, 0),
        (socket.AF_INET6, "fd00::9", 5051, 0),
        (socket.AF_INET, "200.0.0.1", 8080, 0),
        (socket.AF_INET, "200.0.0.2", 8080, 1),
        (socket.AF_INET6, "::ffff:200.0.0.1", 8080, 0),
        (socket.AF_INET6, "::200.0.0.1", 8080, 1),
        (socket.AF_INET6, "fd00::1", 8081, 0),
        (socket.AF_INET6, "fd00::2", 8081, 1),
        (socket.AF_INET, "200.0.0.1", 8081, 1),
        (socket.AF_INET, "200.0.0.1", 5052, 1),
    ],
)
def test_the_program_decides_by_port_and_address(family: int, address: str, port: int, allowed: int) -> None:
    denied = (Denial(5051), Denial(8080, "200.0.0.1"), Denial(8081, "fd00::1"))
    assert decides(denied, family, address, port) == allowed
