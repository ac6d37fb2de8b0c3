"""The loader's cache (ld.so.cache) written without ldconfig, for other machines, byte orders and versions of glibc.

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
    """An entry of the cache: one library.

    Attributes:
        name: SONAME that programs load, such as "libcuda.so.1".
        path: Path of the file.
        flags: Kind of library, a value of FLAGS.
        hwcap: Subdirectory of glibc-hwcaps, such as "x86-64-v3", or empty.
        hwcap_bits: Hardware capabilities in the older format.
        os_version: Oldest kernel that the library supports, packed.
    """

    name: str
    path: str
    flags: int = 0x0303
    hwcap: str = ""
    hwcap_bits: int = 0
    os_version: int = 0


def old(lines: Sequence[CacheLine]) -> bytes:
    """Return a cache in the format of libc5 and of glibc before 2.2 (ld.so-1.7.0).

    Offsets count from the begin of the strings; entries have no hardware capabilities and no kernel.
    """
    strings = _Strings(0)
    entries = b"".join(
        struct.pack("=i2I", line.flags, strings.add(line.name), strings.add(line.path)) for line in lines
    )
    return b"ld.so-1.7.0\0" + struct.pack("=I", len(lines)) + entries + strings.data


def new(lines: Sequence[CacheLine], *, order: str = "<", marked: bool = True, start: int = 0) -> bytes:
    """Return a cache in the present format (glibc-ld.so.cache1.1), whose offsets count from its start.

    Args:
        lines: Entries in their order.
        order: Byte order: "<" for little endian, ">" for big endian.
        marked: Whether the header has the byte order; glibc before 2.33 wrote zero.
        start: Offset of the cache in its file, from whose start the position of the extension counts.
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
    """Return both formats, the present one after the old one, as ldconfig wrote them until glibc 2.32."""
    start = b"ld.so-1.7.0\0" + struct.pack("=I", len(lines))
    # The old entries point to the strings after the entries of the new format, which both share.
    room = len(start) + 12 * len(lines)
    pad = -room % 8
    entries, seen = b"", _Strings(pad + 48 + 24 * len(lines))
    for line in lines:
        entries += struct.pack("=i2I", line.flags, seen.add(line.name), seen.add(line.path))
    return start + entries + bytes(pad) + new(lines, start=room + pad)


class _Strings:
    """A table of strings, of which the first is at offset `start`."""

    def __init__(self, start: int) -> None:
        self.data = b""
        self._start = start

    @property
    def end(self) -> int:
        """Offset of the next string."""
        return self._start + len(self.data)

    def add(self, text: str) -> int:
        """Add a string and return its offset."""
        at = self.end
        self.data += text.encode() + b"\0"
        return at


def _extension(order: str, at: int, names: Sequence[int]) -> bytes:
    """Return an extension with one section: tag 1, the offsets of names of subdirectories by index."""
    magic, tag_hwcaps = 0xEAA42174, 1
    section_at = at + 8 + 16
    head = struct.pack(f"{order}2I4I", magic, 1, tag_hwcaps, 0, section_at, 4 * len(names))
    return head + struct.pack(f"{order}{len(names)}I", *names)
