"""The program decides as the rules do, whatever the rules and whatever is asked."""

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from isolator.devices.bpf import ACCESS, DEV_BLOCK, DEV_CHAR, compile_rules, encode
from isolator.devices.rules import DriverFacts, Rule, allows, nvidia_devices, rules_of
from mesos_gpu.testing.bpf import run

# Few numbers, so that rules and requests meet; and the ends of what the kernel has.
MAJORS = st.sampled_from([0, 1, 5, 136, 195, 235, 509, (1 << 12) - 1])
MINORS = st.sampled_from([0, 1, 2, 3, 254, 255, (1 << 20) - 1])
ACCESSES = st.sets(st.sampled_from("rwm"), min_size=1).map(lambda letters: "".join(sorted(letters)))
RULES = st.builds(Rule, st.sampled_from("cb"), st.none() | MAJORS, st.none() | MINORS, ACCESSES)


def decides(rules: tuple[Rule, ...], kind: str, major: int, minor: int, access: str) -> bool:
    bits = sum(ACCESS[letter] for letter in access)
    context = struct.pack("<III", bits << 16 | (DEV_CHAR if kind == "c" else DEV_BLOCK), major, minor)
    return run(encode(compile_rules(rules)), context) == 1


@settings(max_examples=300, deadline=None)
@given(st.lists(RULES, max_size=8).map(tuple), st.sampled_from("cb"), MAJORS, MINORS, ACCESSES)
def test_the_program_is_the_rules(
    rules: tuple[Rule, ...], kind: str, major: int, minor: int, access: str
) -> None:
    assert decides(rules, kind, major, minor, access) == allows(rules, kind, major, minor, access)


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(0, 15)), st.integers(0, 16), st.sampled_from(["r", "w", "rw"]), MAJORS)
def test_a_granted_set_is_what_can_be_opened(granted: set[int], minor: int, access: str, major: int) -> None:
    rules = rules_of(nvidia_devices(DriverFacts({"nvidia": 195}), granted))
    assert decides(rules, "c", 195, minor, access) == (minor in granted)
    assert not decides(rules, "c", 195, minor, "m")
    assert not decides(rules, "b", major, minor, access)
