"""Which ports a task is denied: what the scheduler knows, what the operator lists, and what is this host's."""

import socket
from pathlib import Path

import pytest

from isolator.devices import bpf
from isolator.host.control_ports import Denial, denials, listed, metadata_denials
from isolator.host.port_ranges import EVERY_PORT
from mesos_gpu.adapters.proc import boot_id
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.scheduler.control import of_api, of_cluster
from tests.doubles.bpf import run

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
def test_control_ports_off_deny_nothing(env: dict[str, str]) -> None:
    assert denials({**AGENT, **env}, (ControlPort("master", 5050),), (), "b") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0", "'0' is not a port"),
        ("65536", "'65536' is not a port"),
        ("5050,http", "'http' is not a port"),
        ("zk:2181", "'zk' is not an IP address"),
        ("fd00::1:2181", "an IPv6 address needs brackets"),
        ("[10.0.0.1]:2181", "an IPv6 address needs brackets"),
        ("OFF", "'OFF' is not a port"),
    ],
)
def test_control_port_that_cannot_be_listed_is_named(text: str, said: str) -> None:
    with pytest.raises(BadConfiguration, match="MESOS_GPU_CONTROL_PORTS") as raised:
        listed({"MESOS_GPU_CONTROL_PORTS": text})
    assert said in raised.value.what


def test_a_cluster_is_its_master_and_all_agents() -> None:
    urls = ["http://n1:5051", "http://n2:5051", "http://n3:15000", "https://n4"]
    assert of_cluster("http://m:5050", urls) == (
        ControlPort("agent", 5051), ControlPort("agent", 15000), ControlPort("master", 5050),
    )  # fmt: skip
    assert of_cluster("", []) == ()


def context(family: int, address: str, port: int) -> bytes:
    """Return what the kernel gives a program: struct bpf_sock_addr."""
    packed = socket.inet_pton(family, address)
    words = bytes(4) + (packed + bytes(16) if family == socket.AF_INET else bytes(4) + packed)
    return words.ljust(24, b"\0") + port.to_bytes(2, "big") + bytes(2)


def decides(denied: tuple[Denial, ...], family: int, address: str, port: int) -> int:
    """Return what the program answers."""
    return run(bpf.encode(bpf.compile_denials(denied, family)), context(family, address, port))


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


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("169.253.255.255", 1), ("169.254.0.0", 0), ("169.254.255.255", 0), ("169.255.0.0", 1),
        ("100.100.100.200", 0), ("100.100.100.199", 1), ("168.63.129.16", 0), ("192.0.0.192", 0),
        ("::ffff:169.254.169.254", 0), ("::ffff:169.255.0.0", 1), ("::ffff:100.100.100.200", 0),
        ("fe7f:ffff::", 1), ("fe80::", 0), ("febf:ffff::1", 0), ("fec0::", 1), ("fd00:ec2::254", 0),
        ("fd00:ec2::255", 1), ("fd20:ce::254", 0), ("64:ff9b::a9fe:a9fe", 0), ("64:ff9b::a9ff:0", 1),
        ("64:ff9b::168.63.129.16", 0), ("64:ff9b::168.63.129.17", 1), ("fd00:c1::a9fe:a9fe", 0),
        ("fd00:100::100:200", 0), ("fd00:a9fe:a9fe::1", 0),
        ("ff02::fb", 1), ("224.0.0.251", 1), ("::1", 1), ("127.0.0.1", 1),
    ],
)  # fmt: skip
def test_metadata_addresses_are_denied_at_every_port(tmp_path: Path, address: str, allowed: int) -> None:
    denied = metadata_denials({}, str(tmp_path / "none"))
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    assert {decides(denied, family, address, port) for port in (1, 53, 80, 65535)} == {allowed}
    plain = address.removeprefix("::ffff:")
    assert any(each.covers(plain) for each in denied) is not bool(allowed)


def test_a_name_server_there_is_reached_at_its_port_alone(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text(
        "#nameserver 169.254.0.9\nnameserver 169.254.169.254\nnameserver fe80::1%eth0\nnameserver\nx\n"
    )
    denied = metadata_denials({}, str(file))
    reached = {
        (address, port)
        for address in ("169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "169.254.0.9", "fe80::2")
        for port in (53, 80)
        if decides(denied, socket.AF_INET6 if ":" in address else socket.AF_INET, address, port)
    }
    assert reached == {("169.254.169.254", 53), ("::ffff:169.254.169.254", 53), ("fe80::1", 53)}


def test_address_denied_to_reach_may_be_bound(tmp_path: Path) -> None:
    """An address of the network is the host's own there, and port 53 of it nobody's."""
    denied = (Denial(5051), *metadata_denials({}, str(tmp_path / "none")))
    program = bpf.encode(bpf.compile_binds(denied, EVERY_PORT, socket.AF_INET))
    assert run(program, context(socket.AF_INET, "169.254.1.1", 80)) == 1
    assert run(program, context(socket.AF_INET, "169.254.1.1", 5051)) == 0


@pytest.mark.parametrize("env", [{"MESOS_GPU_CONTROL_PORTS": "off"}, {"MESOS_GPU_METADATA": "allow"}])
def test_metadata_is_allowed_on_the_operators_word(env: dict[str, str]) -> None:
    assert metadata_denials(env) == ()


@pytest.mark.parametrize("value", ["", "off", "Allow", "yes"])
def test_another_word_for_metadata_is_refused(value: str) -> None:
    with pytest.raises(BadConfiguration, match=f"MESOS_GPU_METADATA is '{value}'") as raised:
        metadata_denials({"MESOS_GPU_METADATA": value})
    assert "set it to allow or deny" in raised.value.remedy
