"""Addresses that checks of the scheduler may go to."""

from ipaddress import ip_address, ip_network

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.cli import main
from mesos_gpu.policy.apps.outward import Outward, Way, innermost, kind_of
from mesos_gpu.scheduler import __main__ as command
from mesos_gpu.scheduler.options.options import Options

AWAY = Way(is_here=False)
NOWHERE = [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "0.1.2.3",
    "0.255.255.255",
    "169.254.169.254",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "ff02::1",
    "fd00:ec2::254",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::169.254.169.254",
    "64:ff9b::169.254.169.254",
    "64:ff9b::7f00:1",
    "2002:a9fe:a9fe::1",
]


def test_check_to_a_forbidden_address_is_refused() -> None:
    for address in NOWHERE:
        wrong = AWAY.wrong(address, 8080, has=True)
        assert address in wrong, address
        assert "--check-network" in wrong, address


#: The first and last addresses beside those that are forbidden.
BESIDE = (
    *("1.0.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "223.255.255.255"),
    *("100.100.100.199", "100.100.100.201", "::1:0:0:0", "fec0::1"),
)


@pytest.mark.parametrize(
    "address", ["192.0.2.1", "10.0.0.1", "100.64.0.1", "2001:db8::1", "fd00::1", *BESIDE]
)
def test_checks_go_to_agents(address: str) -> None:
    assert AWAY.wrong(address, 8080, has=False) == ""


@pytest.mark.parametrize("address", ["127.0.0.11", "::1", "::ffff:127.0.0.1"])
def test_agents_are_at_loopback_where_the_master_is(address: str) -> None:
    assert Way().wrong(address, 31000, has=True) == ""
    assert Way().wrong("169.254.169.254", 80, has=True)


def test_check_to_a_network_that_the_operator_allows() -> None:
    outward = Outward((ip_network("169.254.0.0/16"), ip_network("fe80::/10")))
    assert Way(outward).wrong("::ffff:169.254.7.7", 8080, has=True) == ""
    assert Way(outward).wrong("fe80::1%eth0", 8080, has=True) == ""
    assert Way(outward, is_here=False).wrong("127.0.0.1", 8080, has=True)


def test_ports_of_a_host_are_not_the_tasks() -> None:
    assert "--check-low-ports" in AWAY.wrong("192.0.2.1", 22, has=False)
    assert AWAY.wrong("192.0.2.1", 22, has=True) == ""
    assert Way(Outward(check_low_ports=True)).wrong("192.0.2.1", 22, has=False) == ""
    for way in (Way(denied=frozenset({5051})), Way(Outward((ip_network("0.0.0.0/0"),)), frozenset({5051}))):
        assert "commands the cluster" in way.wrong("192.0.2.1", 5051, has=True)


@pytest.mark.parametrize("address", ["127.0.0.11", "::1", "192.0.2.9", "::ffff:192.0.2.9"])
def test_scheduler_does_not_ask_itself(address: str) -> None:
    way = Way(own=frozenset({(ip_address("192.0.2.9"), 8080)}), own_ports=frozenset({8080}))
    assert way.wrong(address, 8080, has=True) == "port 8080 is the scheduler's own"
    assert way.wrong(address, 8081, has=True) == ""
    assert way.wrong("192.0.2.10", 8080, has=True) == ""  # a task of another host may have that port


@given(st.ip_addresses(v=4))
def test_ipv4_address_is_recognized_in_every_notation(address: object) -> None:
    plain = ip_address(str(address))
    dresses = [
        f"::ffff:{plain}",
        f"64:ff9b::{plain}",
        f"2002:{int(plain) >> 16:x}:{int(plain) & 0xFFFF:x}::5",
    ]
    for dress in dresses:
        assert kind_of(innermost(ip_address(dress))) == kind_of(plain)


@pytest.mark.parametrize(
    ("words", "outward"),
    [
        ([], Outward()),
        (
            ["--check-network", "169.254.0.0/16", "--check-network", "::1", "--check-low-ports"],
            Outward((ip_network("169.254.0.0/16"), ip_network("::1")), True),
        ),
    ],
)
def test_check_network_options_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, words: list[str], outward: Outward
) -> None:
    told: list[Outward] = []

    def run(options: Options) -> int:
        told.append(options.checks)
        return 0

    monkeypatch.setattr(command, "run", run)
    argv = ["scheduler", "--master", "h:5050", "--state", "/nowhere", *words]
    result = CliRunner().invoke(main, argv)
    assert result.exit_code == 0, result.output
    assert told == [outward]


@pytest.mark.parametrize("network", ["169.254.1.0/16", "metadata.internal", "0xA9FEA9FE", ""])
def test_check_network_option_that_is_no_network_is_refused(network: str) -> None:
    result = CliRunner().invoke(main, ["scheduler", "--master", "h:5050", "--check-network", network])
    assert result.exit_code == 2
    assert "ADDRESS/BITS" in result.output


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("100.100.100.200", "a cloud's metadata service, which has the host's credentials"),
        ("127.0.0.1", "a loopback address"),
        ("::1", "a loopback address"),
        ("169.254.1.1", "a link-local address"),
        ("fe80::1", "a link-local address"),
        ("224.0.0.1", "a multicast address"),
        ("ff02::1", "a multicast address"),
        ("0.0.0.0", "an address of this host itself"),
        ("::", "an address of this host itself"),
        ("0.255.255.255", "an address of this host itself"),
        ("1.0.0.0", ""),
        ("::5", ""),
        ("240.0.0.1", "a reserved address"),
        ("::1:0:0:0", ""),
    ],
)
def test_kind_of_an_address_says_what_is_special_about_it(address: str, kind: str) -> None:
    assert kind_of(ip_address(address)) == kind


@pytest.mark.parametrize(
    ("address", "inner"),
    [
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("2002:102:304::9", "1.2.3.4"),
        ("64:ff9b::1.2.3.4", "1.2.3.4"),
        ("64:ff9b:1:2::1.2.3.4", "1.2.3.4"),
        ("::2", "0.0.0.2"),
        ("::1", "::1"),
        ("::", "::"),
        ("::255.255.255.255", "255.255.255.255"),
        ("::1:0:0", "::1:0:0"),
        ("fe80::1%eth0", "fe80::1"),
        ("9.8.7.6", "9.8.7.6"),
    ],
)
def test_innermost_address_is_that_of_ipv4(address: str, inner: str) -> None:
    assert innermost(ip_address(address)) == ip_address(inner)


@pytest.mark.parametrize(("port", "allowed"), [(1023, False), (1024, True)])
def test_port_that_is_not_the_tasks_is_no_service_of_the_host(port: int, allowed: bool) -> None:
    wrong = f"port {port} is not the task's (--check-low-ports allows it)"
    assert AWAY.wrong("192.0.2.1", port, has=False) == ("" if allowed else wrong)


def test_network_of_another_version_allows_nothing() -> None:
    way = Way(Outward((ip_network("::/0"),)), is_here=False)
    assert way.wrong("127.0.0.1", 8080, has=True).startswith(
        "127.0.0.1 is a loopback address, where checks may not connect"
    )
    assert way.wrong("::1", 8080, has=True) == ""
