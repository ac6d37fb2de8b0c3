"""Verification of the files of an audit log, also while a scheduler writes them."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mesos_gpu.access.chain import MAX_LINE, Flaw, Follower, Head
from mesos_gpu.adapters.audit.directory import Directory, name_of
from mesos_gpu.adapters.audit.search import KINDS
from mesos_gpu.errors import NotFound, Unavailable

MAX_FLAWS: Final = 100  # reported for a chain
_BLOCK: Final = 1 << 20
_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True)
class Verified:
    """Result for one chain. `unfinished`: it ends with an incomplete line, which the next start will record."""

    kind: str
    files: int
    lines: int
    first: int
    head: Head
    flaws: tuple[Flaw, ...]
    unfinished: bool


def verify(path: Path) -> tuple[Verified, ...]:
    """Verify both chains from their beginnings.

    Raises:
        BadConfiguration: The directory does not exist.
        NotFound: The directory has no audit log; missing files are no proof of integrity.
        Unavailable: Files are removed faster than they can be opened.
        OSError: A file cannot be read.
    """
    with Directory(path, make=False) as directory:
        chains = tuple(_verified(directory, kind) for kind in KINDS)
    if not any(chain.files or chain.flaws for chain in chains):
        raise NotFound(
            f"{path} has no audit log",
            remedy="give the directory of the scheduler's --audit-dir; if this is it, its files were removed",
        )
    return chains


def _verified(directory: Directory, kind: str) -> Verified:
    """Follow one chain through its files, and return the result."""
    mark = directory.mark(kind)  # read before the lines, as a writer only adds lines
    with ExitStack() as opened:
        files = _opened(directory, kind, opened)
        follower, flaws, unfinished = Follower(mark), list[Flaw](), False
        for number, fd in files.items():
            for line, at, whole in _lines(fd):
                if whole or number != max(files):
                    flaws += follower.read(f"{name_of(kind, number)}:{at}", line)
                else:
                    unfinished = True
    flaws += follower.end()
    missing = sorted(set(range(min(files), max(files))) - files.keys()) if files else []
    flaws += [Flaw(name_of(kind, number), "is missing, although later files exist") for number in missing]
    return Verified(
        kind, len(files), follower.lines, follower.first, follower.head, tuple(flaws[:MAX_FLAWS]), unfinished
    )


def _opened(directory: Directory, kind: str, opened: ExitStack) -> dict[int, int]:
    """Return descriptors of all files by number, so that files can be read that rotation removes meanwhile."""
    for _ in range(_ATTEMPTS):
        files = dict[int, int]()
        try:
            for number in directory.numbers(kind):
                files[number] = directory.open_to_read(kind, number)
                opened.callback(os.close, files[number])
        except FileNotFoundError:
            continue  # rotation removed it meanwhile
        return files
    raise Unavailable(f"{directory.path}: files are removed while they are opened", remedy="try again")


def _lines(fd: int) -> Iterator[tuple[bytes, int, bool]]:
    """Yield the lines of a file at its present size, each with its number and whether it has a newline.

    A line that is too long for a record comes in pieces.
    """
    size, offset, rest, at = os.fstat(fd).st_size, 0, b"", 0
    while offset < size:
        data = os.pread(fd, min(_BLOCK, size - offset), offset)
        if not data:
            break
        offset += len(data)
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            at += 1
            yield line, at, True
        if len(rest) > MAX_LINE + _BLOCK:
            yield rest, at + 1, True
            rest = b""
    if rest:
        yield rest, at + 1, False
