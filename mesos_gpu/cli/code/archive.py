"""A directory as an archive whose bytes follow from its files alone: the same files are the same archive anywhere.

What .gitignore and .mesosgpuignore name is left out, as is .git. Owners and times are left out, too; of the mode only
whether a file may be run is kept.
"""

import gzip
import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from pathspec import GitIgnoreSpec

from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.jobs.artifact import SENT_AT, TAKEN

IGNORES: Final = (".gitignore", ".mesosgpuignore")  # the later one has the last word
MAX_FILES: Final = 100_000
_NEVER: Final = frozenset({".git", ".hg", ".svn"})
_LARGEST: Final = 5  # that are named if it is too large
_OF_KERNEL: Final = ("/proc", "/sys")  # their files, and those below them, are on no disk


class BadDirectory(MesosGpuError):
    """A directory that cannot be sent along (EX_DATAERR)."""

    exit_code, http_status = 65, 400


@dataclass(frozen=True, slots=True)
class Entry:
    """What is packed. `name`: below the directory, with slashes; `link`: where a link leads, "" for a file."""

    name: str
    path: Path
    size: int
    runs: bool = False
    link: str = ""


@dataclass(slots=True)
class Found:
    """What there is to pack, in the order of names; `skipped`: what cannot be, each with the reason."""

    entries: list[Entry] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Packed:
    """An archive that was written: its digest in hexadecimal digits, and its size in bytes."""

    digest: str
    size: int


def find(directory: Path) -> Found:
    """What of a directory is packed.

    Raises:
        BadDirectory: It is a directory of the system, cannot be read, has too much in it, or nothing; or a link in it
            leads out of it.
    """
    finds = Found()
    try:
        whole = directory.resolve(strict=True)
        _refuse_system(directory, whole)
        _walk(whole, whole, "", (), finds)
    except OSError as error:
        raise BadDirectory(
            f"{error.filename or directory} cannot be read: {error.strerror}",
            remedy="make it readable, or leave it out with .mesosgpuignore",
        ) from error
    if outside := [f"{name} ({why})" for name, why in finds.skipped if why.startswith("leads")]:
        raise BadDirectory(
            f"links of {directory} lead out of it: {', '.join(outside[:_LARGEST])}",
            remedy="copy what they lead to, or leave them out with .mesosgpuignore",
        )
    if not finds.entries:
        raise BadDirectory(f"{directory} has no files to send along", remedy="name another directory")
    finds.entries.sort(key=lambda each: each.name)
    return finds


def _refuse_system(directory: Path, whole: Path) -> None:
    """Refuse the root directory and directories of the kernel, before a file in them is read.

    Args:
        directory: Directory as it was named.
        whole: Path of that directory without symbolic links.

    Raises:
        BadDirectory: It is one of them.
    """
    of_kernel = next((top for top in _OF_KERNEL if whole.is_relative_to(top)), "")
    if whole == whole.parent or whole == Path("/dev") or of_kernel:
        what = (
            f"part of {of_kernel}, which the kernel makes up" if of_kernel else "not one of a program's files"
        )
        raise BadDirectory(
            f"directory {directory} cannot be sent along: it is {what}",
            remedy="name the directory that has your program; for directories of the hosts use --volume",
        )


def pack(entries: Sequence[Entry], file: BinaryIO, most_bytes: int) -> Packed:
    """Write an archive: gzip of tar.

    Raises:
        BadDirectory: It has more than `most_bytes`, or a file cannot be read.
    """
    counting = _Counting(file, most_bytes, entries)
    with (
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=counting, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for entry in entries:
            _add(tar, entry)
    return Packed(counting.digest.hexdigest(), counting.size)


class _Counting:
    """A file that is written to, with the digest of what was."""

    def __init__(self, file: BinaryIO, most: int, entries: Sequence[Entry]) -> None:
        self._file, self._most, self._entries = file, most, entries
        self.digest, self.size = hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.size += len(data)
        if self.size > self._most:
            raise too_large(self._entries, self._most)
        self.digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def too_large(entries: Sequence[Entry], most_bytes: int) -> BadDirectory:
    """What is said of a directory whose archive is larger than it may be, with its largest files."""
    largest = sorted(entries, key=lambda each: -each.size)[:_LARGEST]
    named = ", ".join(f"{each.name} ({in_mib(each.size)})" for each in largest)
    return BadDirectory(
        f"the archive of {len(entries)} files would have more than {in_mib(most_bytes)}; the largest are {named}",
        remedy="leave files out with .mesosgpuignore; data comes by --fetch or --volume",
    )


def in_mib(size: int) -> str:
    """An amount of bytes, in words."""
    return f"{size / 2**20:.1f} MiB" if size >= 1 << 19 else f"{size / 2**10:.1f} KiB"


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.name)
    info.mtime, info.mode = SENT_AT, 0o755 if entry.runs else 0o644
    if entry.link:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.link, 0o777
        tar.addfile(info)
        return
    try:
        with entry.path.open("rb") as file:
            info.size = os.fstat(file.fileno()).st_size
            tar.addfile(info, file)
    except OSError as error:  # also of a file that has become shorter meanwhile
        raise BadDirectory(
            f"{entry.path} cannot be read: {error.strerror or error}",
            remedy="try again when nobody changes it, or leave it out with .mesosgpuignore",
        ) from error


_Specs = tuple[
    tuple[str, GitIgnoreSpec], ...
]  # by the directory that they are in, "" or with a slash at its end


def _walk(root: Path, at: Path, prefix: str, specs: _Specs, finds: Found) -> None:
    specs = (*specs, *((prefix, spec) for spec in _specs_in(at)))
    with os.scandir(at) as entries:
        for each in sorted(entries, key=lambda entry: entry.name):
            name = prefix + each.name
            if each.name in _NEVER or _ignored(name, each.is_dir(follow_symlinks=False), specs):
                continue
            if not prefix and each.name in TAKEN:
                finds.skipped.append((name, "the sandbox has a file of that name of its own"))
            elif each.is_dir(follow_symlinks=False):
                _walk(root, Path(each.path), f"{name}/", specs, finds)
            else:
                _take(root, each, name, finds)
            if len(finds.entries) > MAX_FILES:
                raise BadDirectory(
                    f"{root} has more than {MAX_FILES} files",
                    remedy="leave some out with .mesosgpuignore, or name a directory below it",
                )


def _take(root: Path, each: "os.DirEntry[str]", name: str, finds: Found) -> None:
    status = each.stat(follow_symlinks=False)
    path = Path(each.path)
    if each.is_symlink():
        target = os.readlink(path)
        leads_to = Path(os.path.normpath(path.parent / target))
        if os.path.isabs(target) or not leads_to.is_relative_to(root):
            finds.skipped.append((name, f"leads to {target}"))
        else:
            finds.entries.append(Entry(name, path, 0, link=target))
    elif stat.S_ISREG(status.st_mode):
        finds.entries.append(Entry(name, path, status.st_size, bool(status.st_mode & 0o100)))
    else:
        finds.skipped.append((name, "it is no file"))


def _specs_in(directory: Path) -> Iterator[GitIgnoreSpec]:
    for name in IGNORES:
        path = directory / name
        if path.is_file():
            yield GitIgnoreSpec.from_lines(path.read_text(encoding="utf-8", errors="replace").splitlines())


def _ignored(name: str, is_directory: bool, specs: _Specs) -> bool:
    """Whether it is left out: what the deepest file says of it that says anything holds."""
    ignored = False
    for prefix, spec in specs:
        said = spec.check_file(name.removeprefix(prefix) + ("/" if is_directory else "")).include
        if said is not None:
            ignored = said
    return ignored
