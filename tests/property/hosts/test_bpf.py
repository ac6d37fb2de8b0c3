"""The program decides as the rules do, whatever the rules and whatever is asked."""

import ipaddress
import socket
import struct

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from isolator.devices.bpf import (
    ACCESS,
    DEV_BLOCK,
    DEV_CHAR,
    compile_binds,
    compile_denials,
    compile_rules,
    encode,
)
from isolator.devices.rules import DriverFacts, Rule, allows, nvidia_devices, rules_of
from isolator.host.control_ports import Denial
from isolator.host.port_ranges import PortGrant
from tests.doubles.bpf import run
from tests.property.examples import examples
from tests.unit.isolator.host.test_control_ports import context

# Few numbers, so that rules and requests meet; and the ends of what the kernel has.
MAJORS = st.sampled_from([0, 1, 5, 136, 195, 235, 509, (1 << 12) - 1])
MINORS = st.sampled_from([0, 1, 2, 3, 254, 255, (1 << 20) - 1])
ACCESSES = st.sets(st.sampled_from("rwm"), min_size=1).map(lambda letters: "".join(sorted(letters)))
RULES = st.builds(Rule, st.sampled_from("cb"), st.none() | MAJORS, st.none() | MINORS, ACCESSES)


def decides(rules: tuple[Rule, ...], kind: str, major: int, minor: int, access: str) -> bool:
    bits = sum(ACCESS[letter] for letter in access)
    context = struct.pack("<III", bits << 16 | (DEV_CHAR if kind == "c" else DEV_BLOCK), major, minor)
    return run(encode(compile_rules(rules)), context) == 1


@examples(155, 300)
@given(st.lists(RULES, max_size=8).map(tuple), st.sampled_from("cb"), MAJORS, MINORS, ACCESSES)
def test_the_program_is_the_rules(
    rules: tuple[Rule, ...], kind: str, major: int, minor: int, access: str
) -> None:
    assert decides(rules, kind, major, minor, access) == allows(rules, kind, major, minor, access)


@settings(max_examples=100)
@given(st.sets(st.integers(0, 15)), st.integers(0, 16), st.sampled_from(["r", "w", "rw"]), MAJORS)
def test_a_granted_set_is_what_can_be_opened(granted: set[int], minor: int, access: str, major: int) -> None:
    rules = rules_of(nvidia_devices(DriverFacts({"nvidia": 195}), granted))
    assert decides(rules, "c", 195, minor, access) == (minor in granted)
    assert not decides(rules, "c", 195, minor, "m")
    assert not decides(rules, "b", major, minor, access)


PORTS = st.sampled_from([0, 1, 53, 80, 255, 256, 257, 31000, 31001, 32000, 32001, 32767, 32768, 65280, 65535])
RANGES = st.lists(st.tuples(PORTS, PORTS).map(sorted).map(tuple), max_size=3).map(tuple)
V4 = st.sampled_from(
    ["0.0.0.0", "10.0.0.1", "169.253.255.255", "169.254.0.0", "169.254.169.254", "255.255.255.255"]
)
V6 = st.sampled_from(["::", "::1", "fe7f:ffff::1", "fe80::", "febf::9", "fec0::", "fd00:ec2::254", "ffff::"])
NETWORKS = st.one_of(
    st.none(),
    V4,
    V6,
    st.tuples(V4, st.integers(0, 32)).map(lambda each: f"{each[0]}/{each[1]}"),
    st.tuples(V6, st.integers(0, 128)).map(lambda each: f"{each[0]}/{each[1]}"),
)
DENIALS = st.lists(st.builds(Denial, st.none() | PORTS, NETWORKS, st.booleans()), max_size=4)


def fits(denial: Denial, address: str, port: int) -> bool:
    """Return whether an entry of the list matches a destination; networks are those of the standard library."""
    if denial.port not in (None, port) or denial.address is None:
        return denial.port in (None, port)
    network = ipaddress.ip_network(denial.address, strict=False)
    return network.version == ipaddress.ip_address(address).version and (
        ipaddress.ip_address(address) in network
    )


@settings(max_examples=300)
@given(DENIALS, RANGES, RANGES, V4 | V6, PORTS)
def test_the_program_for_binds_is_the_grant_without_denied_ports(
    denied: list[Denial],
    reserved: tuple[tuple[int, int], ...],
    granted: tuple[tuple[int, int], ...],
    address: str,
    port: int,
) -> None:
    grant = PortGrant(reserved, granted)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    program = compile_binds(denied, grant, family)
    ports = [each for each in denied if each.port is not None and not each.exempt]
    expected = not any(fits(each, address, port) for each in ports) and grant.allows(port)
    assert run(encode(program), context(family, address, port)) == expected


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["v4", "v6"])
def test_ports_that_are_denied_are_exactly_those_of_others(family: int) -> None:
    grant = PortGrant(((9000, 9019), (31000, 32000)), ((31007, 31008),))
    program = encode(compile_binds((), grant, family))
    address = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    denied = {port for port in range(1 << 16) if not run(program, context(family, address, port))}
    assert denied == {*range(9000, 9020), *range(31000, 32001)} - {31007, 31008}


@examples(185, 500)
@given(DENIALS, V4 | V6, PORTS, st.booleans())
def test_the_program_for_addresses_is_the_list(
    denied: list[Denial], address: str, port: int, mapped: bool
) -> None:
    if mapped:
        # a network of version 6 may hold mapped addresses, which the list takes for those of version 4
        assume(not any(each.address and ":" in each.address for each in denied))
    expected = next((each.exempt for each in denied if fits(each, address, port)), True)
    seen = f"::ffff:{address}" if mapped and ":" not in address else address
    family = socket.AF_INET6 if ":" in seen else socket.AF_INET
    assert run(encode(compile_denials(denied, family)), context(family, seen, port)) == expected
