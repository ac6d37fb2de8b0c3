"""Device rules as an eBPF program (BPF_PROG_TYPE_CGROUP_DEVICE), assembled here. Pure.

Layouts and numbers: the kernel's include/uapi/linux/bpf.h and Documentation/bpf/standardization/instruction-set.rst.
The program gets struct bpf_cgroup_dev_ctx {access_type, major, minor} in r1 and returns 1 to allow, 0 to deny.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from isolator.rules import Rule

DEV_BLOCK: Final = 1
DEV_CHAR: Final = 2
#: Bits of the upper half of access_type.
ACCESS: Final = {"m": 1, "r": 2, "w": 4}
_ALL: Final = 7

LOAD_WORD: Final = 0x61  # BPF_LDX | BPF_MEM | BPF_W
MOVE: Final = 0xBC  # BPF_ALU | BPF_MOV | BPF_X, 32 bits
MOVE_VALUE: Final = 0xB4  # BPF_ALU | BPF_MOV | BPF_K
AND_VALUE: Final = 0x54
SHIFT_RIGHT: Final = 0x74
JUMP_UNLESS: Final = 0x55  # BPF_JMP | BPF_JNE | BPF_K
EXIT: Final = 0x95


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `dst`, `src`: registers; `off`: bytes of a load, instructions of a jump."""

    code: int
    dst: int = 0
    src: int = 0
    off: int = 0
    imm: int = 0

    def __str__(self) -> str:
        d, s, off, imm = self.dst, self.src, self.off, self.imm
        return {
            LOAD_WORD: f"r{d} = *(u32 *)(r{s} + {off})",
            MOVE: f"w{d} = w{s}",
            MOVE_VALUE: f"w{d} = {imm}",
            AND_VALUE: f"w{d} &= {imm:#x}",
            SHIFT_RIGHT: f"w{d} >>= {imm}",
            JUMP_UNLESS: f"if r{d} != {imm} goto +{off}",
            EXIT: "exit",
        }[self.code]


def compile_rules(rules: Sequence[Rule]) -> tuple[Instruction, ...]:
    """The program that decides as `isolator.rules.allows` does: the first rule that covers a request allows it."""
    head = (
        Instruction(LOAD_WORD, dst=2, src=1, off=0),
        Instruction(MOVE, dst=3, src=2),
        Instruction(AND_VALUE, dst=2, imm=0xFFFF),  # r2: type
        Instruction(SHIFT_RIGHT, dst=3, imm=16),  # r3: accesses
        Instruction(LOAD_WORD, dst=4, src=1, off=4),  # r4: major
        Instruction(LOAD_WORD, dst=5, src=1, off=8),  # r5: minor
    )
    body = tuple(instruction for rule in rules for instruction in _rule(rule))
    return (*head, *body, Instruction(MOVE_VALUE, dst=0, imm=0), Instruction(EXIT))


def _rule(rule: Rule) -> list[Instruction]:
    """Falls through to the next rule unless all of it fits. A jump's `off` is from the instruction after it."""
    fit: list[Instruction] = [
        Instruction(JUMP_UNLESS, dst=2, imm=DEV_CHAR if rule.kind == "c" else DEV_BLOCK)
    ]
    rest = _ALL & ~sum(ACCESS[letter] for letter in set(rule.access))
    if rest:
        fit += [
            Instruction(MOVE, dst=1, src=3),
            Instruction(AND_VALUE, dst=1, imm=rest),
            Instruction(JUMP_UNLESS, dst=1, imm=0),
        ]
    if rule.major is not None:
        fit.append(Instruction(JUMP_UNLESS, dst=4, imm=rule.major))
    if rule.minor is not None:
        fit.append(Instruction(JUMP_UNLESS, dst=5, imm=rule.minor))
    size = len(fit) + 2
    aimed = [
        Instruction(i.code, i.dst, i.src, size - place - 1, i.imm) if i.code == JUMP_UNLESS else i
        for place, i in enumerate(fit)
    ]
    return [*aimed, Instruction(MOVE_VALUE, dst=0, imm=1), Instruction(EXIT)]


def encode(program: Sequence[Instruction]) -> bytes:
    """As the kernel takes it: 8 bytes an instruction, struct bpf_insn, in the byte order of this machine."""
    return b"".join(struct.pack("=BBhi", i.code, _registers(i), i.off, i.imm) for i in program)


def _registers(instruction: Instruction) -> int:
    """dst_reg:4, src_reg:4 are bit fields: the first is the low half on a little-endian machine."""
    low, high = instruction.dst, instruction.src
    if struct.pack("=H", 1) != b"\1\0":
        low, high = high, low
    return low | high << 4


def listing(program: Sequence[Instruction]) -> str:
    """The program for people, in the verifier's own notation; goldens of the tests are such listings."""
    return "\n".join(f"{place:4}: {instruction}" for place, instruction in enumerate(program)) + "\n"
