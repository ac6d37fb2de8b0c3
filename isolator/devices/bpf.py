"""Assembler of eBPF programs that control devices, destinations of sockets, and ports that sockets bind.
Pure.

Programs on devices are of type BPF_PROG_TYPE_CGROUP_DEVICE, the others BPF_PROG_TYPE_CGROUP_SOCK_ADDR.
Layouts and numbers: the kernel's include/uapi/linux/bpf.h and
Documentation/bpf/standardization/instruction-set.rst. A program gets its context in r1 and returns 1 to
allow, 0 to deny: struct bpf_cgroup_dev_ctx {access_type, major, minor}, or struct bpf_sock_addr {user_family,
user_ip4, user_ip6[4], user_port…}, addresses and port in network order.
"""

import _socket
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from isolator.devices.rules import Rule
from isolator.host.control_ports import Denial, split_network
from isolator.host.port_ranges import PortGrant

DEV_BLOCK: Final = 1
DEV_CHAR: Final = 2
#: Bits of an access in the upper half of access_type.
ACCESS: Final = {"m": 1, "r": 2, "w": 4}
_ALL: Final = 7

LOAD_WORD: Final = 0x61  # BPF_LDX | BPF_MEM | BPF_W
MOVE: Final = 0xBC  # BPF_ALU | BPF_MOV | BPF_X, 32 bits
MOVE_VALUE: Final = 0xB4  # BPF_ALU | BPF_MOV | BPF_K
AND_VALUE: Final = 0x54
XOR_VALUE: Final = 0xA4  # compares 32 bits, also on kernels before 5.1
SHIFT_RIGHT: Final = 0x74
TO_BIG_ENDIAN: Final = 0xDC  # BPF_ALU | BPF_END | BPF_TO_BE
SHIFT_LEFT_64: Final = 0x67  # BPF_ALU64 | BPF_LSH | BPF_K
SHIFT_SIGNED_64: Final = 0xC7  # BPF_ALU64 | BPF_ARSH | BPF_K
JUMP_UNLESS: Final = 0x55  # BPF_JMP | BPF_JNE | BPF_K
JUMP_ABOVE: Final = 0x25  # BPF_JMP | BPF_JGT | BPF_K
JUMP_BELOW: Final = 0xA5  # BPF_JMP | BPF_JLT | BPF_K, since 4.14
EXIT: Final = 0x95

_JUMPS: Final = (JUMP_UNLESS, JUMP_ABOVE, JUMP_BELOW)
#: Offsets in struct bpf_sock_addr.
_USER_IP4, _USER_IP6, _USER_PORT = 4, 8, 24
_MAPPED: Final = bytes(10) + b"\xff\xff"  # first bytes of an IPv4 address that is mapped into IPv6


class Instruction(NamedTuple):
    """An eBPF instruction.

    Attributes:
        dst, src: Registers.
        off: Bytes of a load, or instructions of a jump.
    """

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
            XOR_VALUE: f"w{d} ^= {imm & 0xFFFFFFFF:#x}",
            SHIFT_RIGHT: f"w{d} >>= {imm}",
            SHIFT_LEFT_64: f"r{d} <<= {imm}",
            SHIFT_SIGNED_64: f"r{d} s>>= {imm}",
            TO_BIG_ENDIAN: f"r{d} = be{imm} r{d}",
            JUMP_UNLESS: f"if r{d} != {imm} goto +{off}",
            JUMP_ABOVE: f"if r{d} > {imm} goto +{off}",
            JUMP_BELOW: f"if r{d} < {imm} goto +{off}",
            EXIT: "exit",
        }[self.code]


def compile_rules(rules: Sequence[Rule]) -> tuple[Instruction, ...]:
    """Assemble the program that decides like `rules.allows`: the first rule that covers a request allows it."""
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
    """Assemble one rule: allow a request that fits, else fall through to the next rule."""
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
    return _returning(fit, 1)


def _returning(fit: list[Instruction], verdict: int) -> list[Instruction]:
    """Return `verdict` if all conditions fit, else continue after these instructions; aim their jumps, which
    count from the next instruction.
    """
    end = len(fit) + 1
    aimed = [
        Instruction(i.code, i.dst, i.src, end - place, i.imm) if i.code in _JUMPS else i
        for place, i in enumerate(fit)
    ]
    return [*aimed, Instruction(MOVE_VALUE, dst=0, imm=verdict), Instruction(EXIT)]


def compile_denials(denials: Sequence[Denial], family: int) -> tuple[Instruction, ...]:
    """Assemble the program that denies sockets some destinations; the first matching entry decides.

    Args:
        denials: Denied destinations, and exemptions from later entries.
        family: AF_INET or AF_INET6: family of the destination. An IPv4 address that is mapped into IPv6
            (::ffff:10.0.0.1) is matched as an IPv4 address.
    """
    return (*_compile_entries(denials, family), *_ALLOW)


def compile_binds(denials: Sequence[Denial], grant: PortGrant, family: int) -> tuple[Instruction, ...]:
    """Assemble the program that denies sockets to be bound to denied ports and to ports of other tasks.

    Args:
        denials: Denied destinations; entries without a port are ignored, because a denied address may be one of the
            host's own.
        grant: Ports of tasks that this task may bind. Port 0, for which the kernel chooses a port, is always allowed.
        family: AF_INET or AF_INET6: family of the address that is bound.
    """
    ports = [each for each in denials if each.port is not None and not each.exempt]
    return (
        *_compile_entries(ports, family),
        Instruction(TO_BIG_ENDIAN, dst=2, imm=16),  # swaps the two bytes on a little-endian machine
        *(instruction for ends in grant.granted for instruction in _range(ends, 1)),
        *(instruction for ends in grant.reserved for instruction in _range(ends, 0)),
        *_ALLOW,
    )


_ADDRESS: Final = 3  # register of the first word of the address; r1 is free when the words are loaded
_ALLOW: Final = (Instruction(MOVE_VALUE, dst=0, imm=1), Instruction(EXIT))


def _compile_entries(denials: Sequence[Denial], family: int) -> Iterator[Instruction]:
    yield Instruction(LOAD_WORD, dst=2, src=1, off=_USER_PORT)
    if any(denial.address is not None for denial in denials):
        yield from _LOAD_ADDRESS[family]
    for denial in denials:
        yield from _denial(denial, family)


def _load_address(start: int, words: int) -> Iterator[Instruction]:
    """Load the words of the address, sign-extended: a jump compares 64 bits, and sign-extends its immediate value."""
    for place in range(words):
        yield Instruction(LOAD_WORD, dst=_ADDRESS + place, src=1, off=start + 4 * place)
        yield Instruction(SHIFT_LEFT_64, dst=_ADDRESS + place, imm=32)
        yield Instruction(SHIFT_SIGNED_64, dst=_ADDRESS + place, imm=32)


_LOAD_ADDRESS: Final = {
    _socket.AF_INET: tuple(_load_address(_USER_IP4, 1)),
    _socket.AF_INET6: tuple(_load_address(_USER_IP6, 4)),
}


def _range(ends: tuple[int, int], verdict: int) -> list[Instruction]:
    first, last = ends
    return _returning(
        [Instruction(JUMP_BELOW, dst=2, imm=first), Instruction(JUMP_ABOVE, dst=2, imm=last)], verdict
    )


def _denial(denial: Denial, family: int) -> list[Instruction]:
    fit = []
    if denial.port is not None:
        fit.append(Instruction(JUMP_UNLESS, 2, 0, 0, _socket.htons(denial.port)))
    if denial.address is not None:
        words = _words(denial.address, family)
        if words is None:
            return []
        for register, word, mask in words:
            if mask == -1:
                fit.append(Instruction(JUMP_UNLESS, register, 0, 0, word))
                continue
            fit += [Instruction(MOVE, 1, register), Instruction(AND_VALUE, 1, 0, 0, mask)]
            if word < 0:  # `MOVE` and `AND_VALUE` clear the upper half of the register
                fit.append(Instruction(XOR_VALUE, 1, 0, 0, word))
            fit.append(Instruction(JUMP_UNLESS, 1, 0, 0, max(word, 0)))
    return _returning(fit, 1 if denial.exempt else 0)


def _words(network: str, family: int) -> list[tuple[int, int, int]] | None:
    """Split a network into the 32-bit words to compare in a program for sockets of `family`.

    Returns:
        Register, value and mask of each word whose mask is not 0; None if the network has no address of that
            family.
    """
    of, packed, bits = split_network(network)
    if of == _socket.AF_INET and family == _socket.AF_INET6:
        packed, bits = _MAPPED + packed, 96 + bits
    elif of != family:
        return None
    mask = ((1 << bits) - 1 << 8 * len(packed) - bits).to_bytes(len(packed), "big")
    layout = f"={len(packed) // 4}i"
    pairs = zip(struct.unpack(layout, packed), struct.unpack(layout, mask), strict=True)
    return [(_ADDRESS + place, word & kept, kept) for place, (word, kept) in enumerate(pairs) if kept]


def encode(program: Sequence[Instruction]) -> bytes:
    """Encode a program for the kernel: 8 bytes per instruction, struct bpf_insn, in this machine's byte
    order.

    dst_reg:4 and src_reg:4 are bit fields: the first is the low half on a little-endian machine.
    """
    dst, src = (0, 4) if sys.byteorder == "little" else (4, 0)
    pack = struct.Struct("=BBhi").pack
    return b"".join([pack(i.code, i.dst << dst | i.src << src, i.off, i.imm) for i in program])


def listing(program: Sequence[Instruction]) -> str:
    """Return the program as text in the verifier's notation; tests compare such listings."""
    return "\n".join(f"{place:4}: {instruction}" for place, instruction in enumerate(program)) + "\n"
