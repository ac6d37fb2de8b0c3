"""Parser of the loader's cache, /etc/ld.so.cache.

The file itself is parsed and no ldconfig is asked, as the root may be of another host. Formats: glibc 2.36,
sysdeps/generic/dl-cache.h and ldconfig.h. The old one (ld.so-1.7.0, libc5 and glibc before 2.2), the new one
(glibc-ld.so.cache1.1), and, as ldconfig wrote until glibc 2.32, the old one followed by the new one.
"""

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mesos_gpu.errors import Damaged

_OLD_MAGIC: Final = b"ld.so-1.7.0"
_NEW_MAGIC: Final = b"glibc-ld.so.cache1.1"
_OLD_HEADER, _OLD_ENTRY = 16, 12
_NEW_HEADER, _NEW_ENTRY = 48, 24
_EXTENSION_MAGIC, _HWCAPS_SECTION = 0xEAA42174, 1
#: Bits 32 to 41 beside it are the processor level of the file (glibc 2.33 and newer).
_HWCAP_EXTENSION, _HWCAP_LEVELS = 1 << 62, 0x3FF << 32
_HWCAP_TLS: Final = 1 << 63
_PATH_MAX: Final = 4096
_LIBRARY_TYPE, _ARCHITECTURE = 0x00FF, 0xFF00
_LIBRARY_TYPES: Final = ("libc4", "ELF", "libc5", "libc6")  # "ELF": the required libc is not stated
#: FLAG_*_LIB64 and so on: the name in the output of `ldconfig -p`, and bits.
_ARCHITECTURES: Final[Mapping[int, tuple[str, int]]] = {
    0x0000: ("", 32),
    0x0100: ("64bit", 64),  # SPARC
    0x0200: ("IA-64", 64),
    0x0300: ("x86-64", 64),
    0x0400: ("64bit", 64),  # S/390
    0x0500: ("64bit", 64),  # PowerPC, of both byte orders
    0x0600: ("N32", 32),
    0x0700: ("64bit", 64),  # MIPS
    0x0800: ("x32", 32),
    0x0900: ("hard-float", 32),  # Arm
    0x0A00: ("AArch64", 64),
    0x0B00: ("soft-float", 32),  # Arm
    0x0C00: ("nan2008", 32),
    0x0D00: ("N32,nan2008", 32),
    0x0E00: ("64bit,nan2008", 64),
    0x0F00: ("soft-float", 64),  # RISC-V
    0x1000: ("double-float", 64),
    0x1100: ("soft-float", 64),  # LoongArch
    0x1200: ("double-float", 64),
}
_Order = Literal["<", ">"]


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A library that the loader finds by its name.

    Attributes:
        name: Name that programs ask for, "libcuda.so.1".
        path: Path in the cache's root; links are not followed.
        flags: Flags with the library type and the architecture.
        hwcap: Processors to which the entry is limited: "glibc-hwcaps/x86-64-v3"; before glibc 2.33 "tls", or
            bits, "0x4000000"; "" for no limit.
        os_version: The oldest kernel on which it runs, (2, 3, 99); None for any kernel, as always since glibc
            2.36.
    """

    name: str
    path: str
    flags: int
    hwcap: str = ""
    os_version: tuple[int, int, int] | None = None

    @property
    def abi(self) -> str:
        """Return the ABI as `ldconfig -p` writes it: "libc6,x86-64"; "libc6" for the plain 32-bit one."""
        kind = self.flags & _LIBRARY_TYPE
        libc = _LIBRARY_TYPES[kind] if kind < len(_LIBRARY_TYPES) else "unknown"
        name = _ARCHITECTURES.get(self.flags & _ARCHITECTURE, ("unknown", 0))[0]
        return f"{libc},{name}" if name else libc

    @property
    def bits(self) -> int:
        """Return 32 or 64; 0 for an unknown architecture."""
        return _ARCHITECTURES.get(self.flags & _ARCHITECTURE, ("", 0))[1]


def parse(data: bytes) -> tuple[CacheEntry, ...]:
    """Return all entries, in the loader's order.

    Raises:
        Damaged: The data is not a cache, is cut off, or contradicts itself.
    """
    try:
        return tuple(_entries(data))
    except struct.error as error:
        raise _damaged("it is cut off") from error


def _damaged(why: str) -> Damaged:
    return Damaged(f"the loader's cache is damaged: {why}", remedy="write it again: ldconfig")


def _entries(data: bytes) -> Iterator[CacheEntry]:
    if data.startswith(_NEW_MAGIC):
        return _new(data, 0)
    if not data.startswith(_OLD_MAGIC):
        raise _damaged("it has neither the old format's first bytes nor the new one's")
    order = _order(data, len(_OLD_MAGIC) + 1, _OLD_HEADER, _OLD_ENTRY)
    (count,) = struct.unpack_from(f"{order}I", data, len(_OLD_MAGIC) + 1)
    end = _OLD_HEADER + count * _OLD_ENTRY
    # Aligned as the new header is: to 8 bytes where long integers are, which they are not on i386.
    for start in (end, end + -end % 8):
        if data.startswith(_NEW_MAGIC, start):
            return _new(data, start)
    return _old(data[_OLD_HEADER:end], data[end:], order)


def _order(data: bytes, at: int, header: int, entry: int) -> _Order:
    """Return the byte order in which the number of entries at `at` fits into the file."""
    for order in ("<", ">"):
        (count,) = struct.unpack_from(f"{order}I", data, at)
        if header + count * entry <= len(data):
            return order
    raise _damaged("it is cut off, or announces more entries than it has")


def _old(entries: bytes, strings: bytes, order: _Order) -> Iterator[CacheEntry]:
    for flags, name, path in struct.iter_unpack(f"{order}i2I", entries):
        yield CacheEntry(_string(strings, name), _string(strings, path), flags)


def _new(file: bytes, start: int) -> Iterator[CacheEntry]:
    data = file[start:]
    order = _marked_order(data)
    count, strings, _, extension = struct.unpack_from(f"{order}2IB3xI", data, len(_NEW_MAGIC))
    end = _NEW_HEADER + count * _NEW_ENTRY
    if end + strings > len(data):
        raise _damaged("it is cut off, or announces more than it has")
    # Names count from the new header, the extension and its sections from the start of the file.
    hwcaps = [_string(data, at) for at in _hwcaps(file, extension, order)] if extension else []
    for flags, name, path, kernel, bits in struct.iter_unpack(f"{order}i3IQ", data[_NEW_HEADER:end]):
        version = (kernel >> 16 & 0xFF, kernel >> 8 & 0xFF, kernel & 0xFF) if kernel else None
        yield CacheEntry(_string(data, name), _string(data, path), flags, _hwcap(bits, hwcaps), version)


def _marked_order(data: bytes) -> _Order:
    """Return the marked byte order, or try both for glibc before 2.33, which wrote no mark. No glibc writes
    1.
    """
    mark = data[_NEW_HEADER - 20] & 3 if len(data) >= _NEW_HEADER else 0
    if mark == 0:
        return _order(data, len(_NEW_MAGIC), _NEW_HEADER, _NEW_ENTRY)
    if mark == 1:
        raise _damaged("its byte order is marked as invalid")
    return "<" if mark == 2 else ">"


def _hwcaps(data: bytes, at: int, order: _Order) -> Iterator[int]:
    """Yield the offsets of the names of the subdirectories of glibc-hwcaps, from the extension."""
    magic, count = struct.unpack_from(f"{order}2I", data, at)
    if magic != _EXTENSION_MAGIC:
        raise _damaged("its extension does not begin with the right bytes")
    if at + 8 + 16 * count > len(data):
        raise _damaged("it announces more sections than it has")
    for tag, _, offset, size in struct.iter_unpack(f"{order}4I", data[at + 8 : at + 8 + 16 * count]):
        if tag == _HWCAPS_SECTION:
            if size % 4 or offset + size > len(data):
                raise _damaged(
                    "its list of processor levels has a wrong size, or extends beyond the end of the file"
                )
            for (name,) in struct.iter_unpack(f"{order}I", data[offset : offset + size]):
                yield name


def _hwcap(bits: int, names: Sequence[str]) -> str:
    if bits & ~(_HWCAP_LEVELS | 0xFFFFFFFF) == _HWCAP_EXTENSION:
        index = bits & 0xFFFFFFFF
        if index >= len(names):
            raise _damaged("an entry names processors that are not in its list")
        return f"glibc-hwcaps/{names[index]}"
    if bits == _HWCAP_TLS:
        return "tls"
    return hex(bits) if bits else ""


def _string(data: bytes, at: int) -> str:
    end = data.find(b"\0", at, at + _PATH_MAX)
    if end < 0:
        raise _damaged("a name ends outside of it, or is longer than names may be")
    return os.fsdecode(data[at:end])
