"""Reader of ELF files, which uses what the loader uses: program headers and the dynamic segment.

Section headers are not read, as files may be stripped of them; and of a large file only a few pages are read.
"""

import io
import os
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from elftools.common.exceptions import ELFError
from elftools.common.utils import struct_parse
from elftools.elf.elffile import ELFFile

from mesos_gpu.errors import Damaged
from volumes.model import Elf

_MACHINES: Final[Mapping[tuple[str, bool], str]] = {
    ("EM_X86_64", True): "x86_64",
    ("EM_386", True): "i686",
    ("EM_AARCH64", True): "aarch64",
    ("EM_ARM", True): "armv7l",
    ("EM_PPC64", True): "ppc64le",
    ("EM_PPC64", False): "ppc64",
}
_NT_GNU_ABI_TAG, _LINUX = 1, 0
_GLIBC: Final = re.compile(r"GLIBC_(\d+(?:\.\d+)+)")
#: Limits above those of any library: dynamic entries, needed versions, bytes of notes, bytes of a name.
_MAX_ENTRIES, _MAX_NOTES, _MAX_NAME = 10_000, 1 << 20, 4096


def read_elf(file: BinaryIO) -> Elf | None:
    """Read the fields of an ELF file; return None if it is not an ELF file.

    Raises:
        Damaged: The file begins as an ELF file, but is cut off or contradictory.
        OSError: The file cannot be read.
    """
    file.seek(0)
    if file.read(4) != b"\x7fELF":
        return None
    try:
        return _Reader(file).read()
    except (ELFError, struct.error) as error:
        raise _damaged(str(error) or "it is cut off") from error


def _damaged(why: str) -> Damaged:
    return Damaged(f"the ELF file is damaged: {why}", remedy="install its package again")


class _Reader:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._elf = ELFFile(file)
        self._size: int = self._elf.stream_len
        self._segments = [self._segment(number) for number in range(self._elf["e_phnum"])]
        for segment in self._of_type("PT_LOAD"):
            if segment["p_offset"] + segment["p_filesz"] > self._size:
                raise _damaged("it is cut off")
        self._strings = (0, 0)

    def read(self) -> Elf:
        tags = self._dynamic()
        where = dict(tags)  # the last of repeated tags counts, as for the loader
        if "DT_STRTAB" in where:
            self._strings = self._offset(where["DT_STRTAB"]), where.get("DT_STRSZ", 0)
        kind, little = self._elf["e_machine"], self._elf.little_endian
        return Elf(
            self._elf.elfclass,
            _MACHINES.get((kind, little)) or (kind if isinstance(kind, str) else f"EM_{kind}"),
            self._string(where["DT_SONAME"]) if "DT_SONAME" in where else None,
            tuple(self._string(value) for tag, value in tags if tag == "DT_NEEDED"),
            next((version for note in self._of_type("PT_NOTE") for version in self._abis(note)), None),
            max(self._glibc_versions(where), default=()),
            next((self._interpreter(segment) for segment in self._of_type("PT_INTERP")), None),
        )

    def _segment(self, number: int) -> Mapping[str, Any]:
        offset = self._elf["e_phoff"] + number * self._elf["e_phentsize"]
        return self._parse(self._elf.structs.Elf_Phdr, offset)

    def _of_type(self, name: str) -> Iterator[Mapping[str, Any]]:
        return (segment for segment in self._segments if segment["p_type"] == name)

    def _dynamic(self) -> list[tuple[str, int]]:
        """Return tags and values, up to the end mark."""
        layout = self._elf.structs.Elf_Dyn
        tags: list[tuple[str, int]] = []
        for segment in self._of_type("PT_DYNAMIC"):
            count = segment["p_filesz"] // layout.sizeof()
            for number in range(count):
                entry = self._parse(layout, segment["p_offset"] + number * layout.sizeof())
                if entry["d_tag"] == "DT_NULL":
                    return tags
                if number == _MAX_ENTRIES:
                    raise _damaged("its dynamic segment has no end")
                tags.append((entry["d_tag"], entry["d_val"]))
        return tags

    def _glibc_versions(self, where: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
        if "DT_VERNEED" not in where:
            return
        file_at = self._offset(where["DT_VERNEED"])
        left = _MAX_ENTRIES
        for _ in range(min(where.get("DT_VERNEEDNUM", 0), _MAX_ENTRIES)):
            need = self._parse(self._elf.structs.Elf_Verneed, file_at)
            at = file_at + need["vn_aux"]
            for _ in range(need["vn_cnt"]):
                left -= 1
                if left < 0:
                    raise _damaged("its needed versions have no end")
                version = self._parse(self._elf.structs.Elf_Vernaux, at)
                match = _GLIBC.fullmatch(self._string(version["vna_name"]))
                if match:
                    yield tuple(int(part) for part in match[1].split("."))
                at += version["vna_next"]
            file_at += need["vn_next"]

    def _abis(self, segment: Mapping[str, Any]) -> Iterator[tuple[int, ...]]:
        """Yield the kernel versions of the ABI notes in a segment."""
        order = "<" if self._elf.little_endian else ">"
        notes = self._read(segment["p_offset"], min(segment["p_filesz"], _MAX_NOTES))
        at = 0
        while at + 12 <= len(notes):
            name_size, size, kind = struct.unpack_from(f"{order}3I", notes, at)
            start = at + 12 + name_size
            start += -start % 4
            if kind == _NT_GNU_ABI_TAG and notes[at + 12 : at + 12 + name_size] == b"GNU\0":
                system, *version = struct.unpack_from(f"{order}4I", notes, start)
                if system == _LINUX:
                    yield tuple(version)
            at = start + size
            at += -at % 4

    def _interpreter(self, segment: Mapping[str, Any]) -> str:
        path = self._read(segment["p_offset"], min(segment["p_filesz"], _MAX_NAME))
        return os.fsdecode(path.partition(b"\0")[0])

    def _offset(self, address: int) -> int:
        """Return the offset in the file from which an address is mapped."""
        for segment in self._of_type("PT_LOAD"):
            if 0 <= address - segment["p_vaddr"] < segment["p_filesz"]:
                return int(address - segment["p_vaddr"] + segment["p_offset"])
        raise _damaged(f"it names the address {address:#x}, which no segment has")

    def _string(self, index: int) -> str:
        start, size = self._strings
        if index >= size:
            raise _damaged("a name is outside of its strings")
        text, end, _ = self._read(start + index, min(size - index, _MAX_NAME), short=True).partition(b"\0")
        if not end:
            raise _damaged("a name has no end")
        return os.fsdecode(text)

    def _parse(self, layout: Any, offset: int) -> Mapping[str, Any]:
        parsed: Mapping[str, Any] = struct_parse(layout, io.BytesIO(self._read(offset, layout.sizeof())))
        return parsed

    def _read(self, offset: int, size: int, *, short: bool = False) -> bytes:
        """Read `size` bytes; fewer are allowed only if `short` is set."""
        if offset > self._size:
            raise _damaged("it is cut off")
        self._file.seek(offset)
        data = self._file.read(size)
        if len(data) < size and not short:
            raise _damaged("it is cut off")
        return data
