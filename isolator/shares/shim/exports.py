"""Comparison of a driver's exports with the functions that our libcuda intercepts.

A function that takes memory or starts work, and that our library does not know, would bypass the share.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from isolator.shares.shim.sources import SOURCES

#: Patterns of names of functions that may take memory of the card or start work on it.
_SUSPECT: Final = re.compile(
    r"cu(Mem(Alloc|Create|Free|Release|Map(?!pedH)|Unmap|Import|Retain|GetInfo|Pool(Create|Destroy|Trim)|.*Decompress)"
    r"|\w*ArrayCreate|\w*Array3DCreate|\w*ArrayDestroy|DeviceTotalMem|Launch|GetProcAddress"
    r"|Graph(AddMemAlloc|AddNode|Instantiate|Launch|Upload|ExecDestroy)|DeviceGraphMemTrim"
    r"|CtxDestroy|DevicePrimaryCtx(Retain|Release|Reset))\w*"
)
#: Functions that match, and do neither: memory or functions of the host, and copies that decompress on the
#: way.
_HARMLESS: Final = frozenset(
    {
        *(
            "cuMemAllocHost",
            "cuMemAllocHost_v2",
            "cuMemFreeHost",
            "cuLaunchHostFunc",
            "cuLaunchHostFunc_ptsz",
        ),
        *("cuLaunchHostFunc_v2", "cuLaunchHostFunc_v2_ptsz"),
        *("cuMemBatchDecompressAsync", "cuMemBatchDecompressAsync_ptsz"),
    }
)
_DECLARED: Final = re.compile(r"(BOTH\(X, |X\()(cu\w+),")


@cache
def wrapped() -> frozenset[str]:
    """Return the names of the functions that our libcuda intercepts, from its list in cuda.h."""
    text = (
        (SOURCES / "cuda.h").read_text().partition("#define WRAPPED(X)")[2].partition("#define ASKED(X)")[0]
    )
    names = set()
    for how, name in _DECLARED.findall(text):
        names |= {name, f"{name}_ptsz"} if how.startswith("BOTH") else {name}
    return frozenset(names)


def unknown(names: Iterable[str]) -> tuple[str, ...]:
    """Return the exports that may take memory or start work and that our libcuda does not know, sorted."""
    return tuple(
        sorted(name for name in names if _SUSPECT.fullmatch(name) and name not in wrapped() | _HARMLESS)
    )


def exports(library: Path) -> frozenset[str]:
    """Return the names of the functions that a library exports.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not an ELF file with dynamic symbols.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    try:
        with open(library, "rb") as file:
            symbols = ELFFile(file).get_section_by_name(".dynsym")
            if not isinstance(symbols, SymbolTableSection):
                raise ValueError(f"{library} has no dynamic symbols")
            return frozenset(
                symbol.name
                for symbol in symbols.iter_symbols()
                if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["type"] == "STT_FUNC"
            )
    except ELFError as error:
        raise ValueError(f"{library} is no ELF file: {error}") from error
