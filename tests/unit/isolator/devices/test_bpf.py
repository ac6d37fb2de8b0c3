"""The compiler from rules to eBPF: listings that can be read, and bytes as the kernel has them."""

import struct

import pytest

from isolator.devices.bpf import Instruction, compile_rules, encode, listing
from isolator.devices.rules import DriverFacts, Rule, nvidia_devices, rules_of

NOTHING = """\
   0: r2 = *(u32 *)(r1 + 0)
   1: w3 = w2
   2: w2 &= 0xffff
   3: w3 >>= 16
   4: r4 = *(u32 *)(r1 + 4)
   5: r5 = *(u32 *)(r1 + 8)
   6: w0 = 0
   7: exit
"""
ONE_CARD = """\
   6: if r2 != 2 goto +7
   7: w1 = w3
   8: w1 &= 0x1
   9: if r1 != 0 goto +4
  10: if r4 != 195 goto +3
  11: if r5 != 3 goto +2
  12: w0 = 1
  13: exit
  14: w0 = 0
  15: exit
"""
ANY_OF_A_BLOCK_MAJOR = """\
   6: if r2 != 1 goto +3
   7: if r4 != 8 goto +2
   8: w0 = 1
   9: exit
  10: w0 = 0
  11: exit
"""
TWO_RULES = """\
   6: if r2 != 2 goto +6
   7: w1 = w3
   8: w1 &= 0x3
   9: if r1 != 0 goto +3
  10: if r5 != 0 goto +2
  11: w0 = 1
  12: exit
  13: if r2 != 2 goto +2
  14: w0 = 1
  15: exit
  16: w0 = 0
  17: exit
"""
HEAD = "".join(NOTHING.splitlines(keepends=True)[:6])


@pytest.mark.parametrize(
    ("rules", "golden"),
    [
        ([], NOTHING),
        ([Rule("c", 195, 3, "rw")], HEAD + ONE_CARD),
        ([Rule("b", 8, None, "rwm")], HEAD + ANY_OF_A_BLOCK_MAJOR),
        ([Rule("c", None, 0, "w"), Rule("c", None, None, "rwm")], HEAD + TWO_RULES),
    ],
    ids=["nothing", "one card", "a block major", "two rules"],
)
def test_rules_compile_to_the_golden_listings(rules: list[Rule], golden: str) -> None:
    assert listing(compile_rules(rules)) == golden


def test_the_bytes_are_struct_bpf_insn() -> None:
    """code, dst_reg:4 and src_reg:4, off, imm: little-endian here."""
    program = encode([Instruction(0x61, dst=5, src=1, off=8), Instruction(0x55, dst=4, off=3, imm=195)])
    assert program == bytes.fromhex("61 15 0800 00000000  55 04 0300 c3000000")


def test_a_task_with_sixteen_cards_is_far_below_the_kernels_limit() -> None:
    """4096 instructions for the unprivileged, a million for root (BPF_MAXINSNS)."""
    facts = DriverFacts({"nvidia": 195, "nvidia-uvm": 509})
    program = compile_rules(rules_of(nvidia_devices(facts, range(16))))
    assert len(program) < 256
    assert len(encode(program)) == 8 * len(program)
    assert struct.unpack_from("=B", encode(program), 8 * (len(program) - 1)) == (0x95,)
