"""Patches that make the distribution's library loadable on a current system, in place, without moving a byte.

It was linked on an old system: it NEEDs libssl and libcrypto 1.0.0, libcurl with the CURL_OPENSSL_3 symbol
version, Subversion and APR. None of the code that is used here calls them, so

1. their DT_NEEDED entries are pointed at libc.so.6 (a second NEEDED of one library is harmless);
2. their version requirements (.gnu.version_r) are pointed at libc too and get VER_FLG_WEAK, so that ld.so
   does not insist on, say, OPENSSL_1.0.0 in libc;
3. the undefined symbols that come from them (and from Python 2, which the extension module in the file
   refers to) become STB_WEAK. Unresolved they are null: calling one crashes at address 0.

Source: the System V ABI (Elf64_Dyn, Elf64_Sym) and the LSB (Elf64_Verneed, Elf64_Vernaux).
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from elftools.elf.elffile import ELFFile

from mesos_gpu.errors import Damaged

DROP: Final = frozenset(
    {
        "libssl.so.1.0.0",  # TLS between libprocess peers: off by default
        "libcrypto.so.1.0.0",  # JWT secrets of executors: off by default
        "libcurl.so.4",  # used by mesos-fetcher, which is not in the distribution; see `cxx.do_without_curl`
        "libsvn_delta-1.so.1",  # diffs in the registry's log: off by default
        "libsvn_subr-1.so.1",
        "libapr-1.so.0",
    }
)
FOREIGN: Final = re.compile(
    r"^(SSL|TLS|X509|RSA|ASN1|BIO|BN|CRYPTO|EC_|ERR|EVP|GENERAL_|HMAC|OPENSSL|"
    r"PEM|RAND|SHA256|sk_|apr_|svn_|curl_|Py|_Py)"
)
BUILD_ID: Final = "c70adfb7e15fd4f444f03fb2be7dbcf2ead8b0b0"
_VER_FLG_WEAK, _STB_GLOBAL, _STB_WEAK, _SHN_UNDEF = 2, 1, 2, 0

Write = tuple[int, bytes]  # file offset, new bytes


def patch(path: Path) -> None:
    """Patch the library file.

    Raises:
        Damaged: The file is not the build for which the patches were made.
    """
    with path.open("r+b") as file:
        elf: Any = ELFFile(file)
        if _build_id(elf) != BUILD_ID:
            raise Damaged(f"{path} is not the library of mesos.scheduler 1.11.0", remedy=f"rm {path}")
        strings = elf.get_section(elf.get_section_by_name(".dynamic")["sh_link"])
        libc = _libc_name(elf)
        writes = [*_needed(elf, libc), *_versions(elf, file, strings, libc), *_symbols(elf, file, strings)]
        for offset, data in writes:
            file.seek(offset)
            file.write(data)


def _build_id(elf: Any) -> str | None:
    section = elf.get_section_by_name(".note.gnu.build-id")
    return next((note["n_desc"] for note in section.iter_notes()), None) if section else None


def _libc_name(elf: Any) -> int:
    tags = elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
    return next(int(tag.entry.d_val) for tag in tags if tag.needed == "libc.so.6")


def _needed(elf: Any, libc: int) -> Iterator[Write]:
    dynamic = elf.get_section_by_name(".dynamic")
    for number, tag in enumerate(dynamic.iter_tags()):
        if tag.entry.d_tag == "DT_NEEDED" and tag.needed in DROP:
            # Elf64_Dyn {d_tag; d_un}: d_un is the name's offset
            yield dynamic["sh_offset"] + 16 * number + 8, struct.pack("<Q", libc)


def _versions(elf: Any, file: BinaryIO, strings: Any, libc: int) -> Iterator[Write]:
    """Yield the writes that redirect and weaken version requirements of libraries in DROP."""
    offset = elf.get_section_by_name(".gnu.version_r")["sh_offset"]
    while True:
        file.seek(offset)
        # Elf64_Verneed {vn_version, vn_cnt, vn_file, vn_aux, vn_next}
        _, count, name, first, following = struct.unpack("<HHIII", file.read(16))
        if strings.get_string(name) in DROP:
            yield offset + 4, struct.pack("<I", libc)
            entry = offset + first
            for _ in range(count):
                file.seek(entry)
                # Elf64_Vernaux {vna_hash, vna_flags, vna_other, vna_name, vna_next}
                _, flags, _, _, step = struct.unpack("<IHHII", file.read(16))
                yield entry + 4, struct.pack("<H", flags | _VER_FLG_WEAK)
                entry += step
        if not following:
            return
        offset += following


def _symbols(elf: Any, file: BinaryIO, strings: Any) -> Iterator[Write]:
    section = elf.get_section_by_name(".dynsym")
    base, size = section["sh_offset"], section["sh_entsize"]
    file.seek(base)
    table = file.read(section["sh_size"])
    file.seek(strings["sh_offset"])
    names = file.read(strings["sh_size"])
    for at in range(0, len(table), size):
        # Elf64_Sym {st_name, st_info, st_other, st_shndx, …}
        name, info, _, home = struct.unpack_from("<IBBH", table, at)
        if home == _SHN_UNDEF and info >> 4 == _STB_GLOBAL:
            text = names[name : names.index(b"\0", name)].decode()
            if FOREIGN.match(text):
                yield base + at + 4, bytes([_STB_WEAK << 4 | info & 15])
