"""The loader's cache written without ldconfig: for machines that the one at hand does not know, and byte orders.

Layouts as in glibc 2.36, sysdeps/generic/dl-cache.h and elf/cache.c.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: The kind of library by `uname -m`, FLAG_ELF_LIBC6 and the architecture's (sysdeps/generic/ldconfig.h).
FLAGS: Final = {
    "x86_64": 0x0303,
    "i686": 0x0003,
    "aarch64": 0x0A03,
    "armv7l": 0x0903,
    "ppc64le": 0x0503,
}
_LITTLE, _BIG = 2, 3
_HWCAP_EXTENSION: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class CacheLine:
    """A library of a cache.

    Attributes:
        name: What a program asks for, "libcuda.so.1".
        path: Where it is.
        flags: Its kind, of FLAGS.
        hwcap: A subdirectory of glibc-hwcaps ("x86-64-v3"); "": none.
        hwcap_bits: The older way to say it.
        os_version: The kernel that it needs, packed.
    """

    name: str
    path: str
    flags: int = 0x0303
    hwcap: str = ""
    hwcap_bits: int = 0
    os_version: int = 0


def old(lines: Sequence[CacheLine]) -> bytes:
    """Write a cache of libc5 and of glibc before 2.2 (ld.so-1.7.0): offsets count from the strings; no hwcap or
    kernel."""
    strings = _Strings(0)
    entries = b"".join(
        struct.pack("=i2I", line.flags, strings.add(line.name), strings.add(line.path)) for line in lines
    )
    return b"ld.so-1.7.0\0" + struct.pack("=I", len(lines)) + entries + strings.data


def new(lines: Sequence[CacheLine], *, order: str = "<", marked: bool = True, start: int = 0) -> bytes:
    """The one of today (glibc-ld.so.cache1.1), offsets from its start.

    Args:
        lines: In order.
        order: "<" little, ">" big endian.
        marked: Whether it says its byte order; glibc before 2.33 wrote zero there.
        start: Where in the file it is to be: its extension is found from the file's start.
    """
    hwcaps = sorted({line.hwcap for line in lines if line.hwcap})
    strings = _Strings(48 + 24 * len(lines))
    entries = b""
    for line in lines:
        bits = _HWCAP_EXTENSION | hwcaps.index(line.hwcap) if line.hwcap else line.hwcap_bits
        name, path = strings.add(line.name), strings.add(line.path)
        entries += struct.pack(f"{order}i3IQ", line.flags, name, path, line.os_version, bits)
    names = [strings.add(name) for name in hwcaps]
    strings.data += bytes(-strings.end % 4)
    mark = (_LITTLE if order == "<" else _BIG) if marked else 0
    size = len(strings.data)
    at = start + strings.end if hwcaps else 0
    extension = _extension(order, at, names) if hwcaps else b""
    header = struct.pack(f"{order}20s2IB3xI12x", b"glibc-ld.so.cache1.1", len(lines), size, mark, at)
    return header + entries + strings.data + extension


def compat(lines: Sequence[CacheLine]) -> bytes:
    """Write both forms, the new one behind the old: ldconfig wrote so until glibc 2.32."""
    start = b"ld.so-1.7.0\0" + struct.pack("=I", len(lines))
    # The old entries point behind the new file's entries, into the strings of both.
    room = len(start) + 12 * len(lines)
    pad = -room % 8
    entries, seen = b"", _Strings(pad + 48 + 24 * len(lines))
    for line in lines:
        entries += struct.pack("=i2I", line.flags, seen.add(line.name), seen.add(line.path))
    return start + entries + bytes(pad) + new(lines, start=room + pad)


class _Strings:
    """Strings behind one another, the first at `start`."""

    def __init__(self, start: int) -> None:
        self.data = b""
        self._start = start

    @property
    def end(self) -> int:
        """Where the next one will be."""
        return self._start + len(self.data)

    def add(self, text: str) -> int:
        """Where it is."""
        at = self.end
        self.data += text.encode() + b"\0"
        return at


def _extension(order: str, at: int, names: Sequence[int]) -> bytes:
    """A directory of one section: tag 1, the subdirectories' names by index."""
    magic, tag_hwcaps = 0xEAA42174, 1
    section_at = at + 8 + 16
    head = struct.pack(f"{order}2I4I", magic, 1, tag_hwcaps, 0, section_at, 4 * len(names))
    return head + struct.pack(f"{order}{len(names)}I", *names)
