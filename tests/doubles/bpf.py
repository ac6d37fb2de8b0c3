"""Interpreter of the eBPF instructions in cgroup programs, to test the decisions of a program without a kernel.

It decodes instructions by their opcode bits (Documentation/bpf/standardization/instruction-set.rst), independently of
our compiler's names for them, and raises for unknown instructions.
"""

import struct

CLASS, SOURCE = 0x07, 0x08
LDX, ALU, JMP, ALU64 = 0x01, 0x04, 0x05, 0x07
TO_BIG_ENDIAN = 0xDC
MAX_STEPS = 10_000


def run(program: bytes, context: bytes) -> int:
    """Run a program and return r0 at its exit.

    Args:
        program: Encoded instructions of 8 bytes each.
        context: Memory that r1 points to.

    Raises:
        ValueError: An instruction is unknown, a register was never written, or a jump or load is out of bounds.
    """
    registers: dict[int, int] = {}
    place = 0
    for _ in range(MAX_STEPS):
        if not 0 <= place < len(program) // 8:
            raise ValueError(f"runs out of the program at {place}")
        code, pair, off, imm = struct.unpack_from("<BBhi", program, place * 8)
        dst, src = pair & 15, pair >> 4
        place += 1
        if code == 0x95:
            return registers[0]
        if code & CLASS == LDX:
            registers[dst] = _load(code, src, off, context)
        elif code == TO_BIG_ENDIAN and imm == 16:
            registers[dst] = int.from_bytes((registers[dst] & 0xFFFF).to_bytes(2, "little"), "big")
        elif code & CLASS == ALU:
            registers[dst] = _alu(
                code, registers.get(dst), registers[src] if code & SOURCE else imm & 0xFFFFFFFF
            )
        elif code & CLASS == ALU64 and not code & SOURCE:
            registers[dst] = _shifted(code, registers[dst], imm)
        elif code & CLASS == JMP and not code & SOURCE:
            place += off if _taken(code, registers[dst], imm & (1 << 64) - 1) else 0
        else:
            raise ValueError(f"unknown opcode {code:#x}")
    raise ValueError("it does not end")


def _load(code: int, src: int, off: int, context: bytes) -> int:
    if code != 0x61 or src != 1:
        raise ValueError(f"a load of another kind, {code:#x} by r{src}")
    if not 0 <= off <= len(context) - 4:
        raise ValueError(f"a load outside, at {off}")
    return int(struct.unpack_from("<I", context, off)[0])


def _alu(code: int, old: int | None, value: int) -> int:
    operation = code & 0xF0
    if operation == 0xB0:
        return value
    if old is None:
        raise ValueError("a register is used before it is written")
    if operation == 0x50:
        return old & value & 0xFFFFFFFF
    if operation == 0x70:
        return (old & 0xFFFFFFFF) >> (value & 31)
    if operation == 0xA0:
        return (old ^ value) & 0xFFFFFFFF
    raise ValueError(f"unknown arithmetic {code:#x}")


def _shifted(code: int, value: int, bits: int) -> int:
    match code & 0xF0:
        case 0x60:
            return value << bits & (1 << 64) - 1
        case 0xC0:
            return (value - (value >> 63 << 64)) >> bits & (1 << 64) - 1
        case _:
            raise ValueError(f"unknown arithmetic of 64 bits {code:#x}")


def _taken(code: int, value: int, imm: int) -> bool:
    match code & 0xF0:
        case 0x50:
            return value != imm
        case 0x20:
            return value > imm
        case 0xA0:
            return value < imm
        case _:
            raise ValueError(f"unknown jump {code:#x}")
