"""Fields of eBPF instructions that the kernel reserves: its verifier refuses a program that sets them."""

from isolator.devices.bpf import compile_rules, encode
from isolator.devices.rules import DriverFacts, Rule, nvidia_devices, rules_of

JUMP, JUMP32, ALU, ALU64, EXIT = 0x05, 0x06, 0x04, 0x07, 0x95


def test_bpf_instructions_that_compute_have_no_offset() -> None:
    facts = DriverFacts({"nvidia": 195, "nvidia-uvm": 509})
    rules = (Rule("c", 1, 3, "r"), Rule("b", 8, None, "rw"), *rules_of(nvidia_devices(facts, range(2))))
    code = encode(compile_rules(rules))
    seen = set()
    for at in range(0, len(code), 8):
        kind, offset = code[at] & 7, int.from_bytes(code[at + 2 : at + 4], "little")
        seen.add(kind)
        if kind in (ALU, ALU64) or code[at] == EXIT:
            assert offset == 0, at // 8
        if kind in (JUMP, JUMP32) and code[at] != EXIT:
            assert 0 < offset < len(code) // 8 - at // 8, "it goes forward, and not beyond the end"
    assert JUMP in seen
    assert seen & {ALU, ALU64}
