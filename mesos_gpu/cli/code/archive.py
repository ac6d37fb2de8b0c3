"""Archives of directories with reproducible bytes: equal files give equal archives on any machine.

Files that .gitignore and .mesosgpuignore name are left out, as is .git. Owners and times are not stored; of the mode
only the executable bit is.
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

IGNORES: Final = (".gitignore", ".mesosgpuignore")  # the later file takes precedence
MAX_FILES: Final = 100_000
_NEVER: Final = frozenset({".git", ".hg", ".svn"})
_LARGEST: Final = 5  # number of files named in the error of a too large archive
_OF_KERNEL: Final = ("/proc", "/sys")  # virtual file systems


class BadDirectory(MesosGpuError):
    """A directory that cannot be archived (EX_DATAERR)."""

    exit_code, http_status = 65, 400


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or link to pack.

    Attributes:
        name: Path below the directory, with slashes.
        runs: Whether the file is executable.
        link: Target of a symbolic link; "" for a file.
    """

    name: str
    path: Path
    size: int
    runs: bool = False
    link: str = ""


@dataclass(slots=True)
class Found:
    """Contents of a directory to pack.

    Attributes:
        entries: Files and links, sorted by name.
        skipped: Names of other entries, each with the reason.
        outside: Names of links that lead out of the directory, each with its target.
    """

    entries: list[Entry] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    outside: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Packed:
    """A written archive: its SHA-256 in hexadecimal digits, and its size in bytes."""

    digest: str
    size: int


def find(directory: Path) -> Found:
    """Return the entries of a directory to pack.

    Raises:
        BadDirectory: The directory is one of the system, cannot be read, has too many files or none, or a link in it
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
            remedy="make it readable, or exclude it with .mesosgpuignore",
        ) from error
    if outside := [f"{name} (leads to {target})" for name, target in finds.outside]:
        raise BadDirectory(
            f"links of {directory} lead out of it: {', '.join(outside[:_LARGEST])}",
            remedy="copy what they lead to, or exclude them with .mesosgpuignore",
        )
    if not finds.entries:
        raise BadDirectory(f"{directory} has no files to upload", remedy="choose another directory")
    finds.entries.sort(key=lambda entry: entry.name)
    return finds


def _refuse_system(directory: Path, whole: Path) -> None:
    """Refuse the root directory and directories of the kernel, before reading any file in them.

    Args:
        directory: Directory as the user gave it.
        whole: Path of that directory without symbolic links.

    Raises:
        BadDirectory: The directory is one of them.
    """
    of_kernel = next((top for top in _OF_KERNEL if whole.is_relative_to(top)), "")
    if whole == whole.parent or whole == Path("/dev") or of_kernel:
        what = (
            f"part of {of_kernel}, a virtual file system of the kernel"
            if of_kernel
            else "not a directory of program files"
        )
        raise BadDirectory(
            f"directory {directory} cannot be uploaded: it is {what}",
            remedy="choose the directory of your program; for directories of the hosts use --volume",
        )


def pack(entries: Sequence[Entry], file: BinaryIO, most_bytes: int) -> Packed:
    """Write a gzip-compressed tar archive.

    Raises:
        BadDirectory: The archive exceeds `most_bytes`, or a file cannot be read.
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
    """A file wrapper that limits and hashes the written bytes."""

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
    """Return the error for an archive that exceeds its limit, naming the largest files."""
    largest = sorted(entries, key=lambda entry: -entry.size)[:_LARGEST]
    named = ", ".join(f"{entry.name} ({in_mib(entry.size)})" for entry in largest)
    return BadDirectory(
        f"the archive of {len(entries)} files would exceed {in_mib(most_bytes)}; the largest files are {named}",
        remedy="exclude files with .mesosgpuignore; provide data with --fetch or --volume",
    )


def in_mib(size: int) -> str:
    """Return an amount of bytes as text."""
    return f"{size / 2**20:.1f} MiB" if size >= 1 << 19 else f"{size / 2**10:.1f} KiB"


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    """Add a file or link to an archive, with a fixed owner and time."""
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
    except OSError as error:  # also if the file became shorter meanwhile
        raise BadDirectory(
            f"{entry.path} cannot be read: {error.strerror or error}",
            remedy="try again while it is not being changed, or exclude it with .mesosgpuignore",
        ) from error


# Patterns by directory: "" or a path with a trailing slash.
_Specs = tuple[tuple[str, GitIgnoreSpec], ...]


def _walk(root: Path, at: Path, prefix: str, specs: _Specs, finds: Found) -> None:
    """Collect the entries of a directory recursively, without ignored ones."""
    specs = (*specs, *((prefix, spec) for spec in _specs_in(at)))
    with os.scandir(at) as entries:
        for item in sorted(entries, key=lambda entry: entry.name):
            name = prefix + item.name
            if item.name in _NEVER or _ignored(name, item.is_dir(follow_symlinks=False), specs):
                continue
            if not prefix and item.name in TAKEN:
                finds.skipped.append((name, "the sandbox has its own file of that name"))
            elif item.is_dir(follow_symlinks=False):
                _walk(root, Path(item.path), f"{name}/", specs, finds)
            else:
                _take(root, item, name, finds)
            if len(finds.entries) > MAX_FILES:
                raise BadDirectory(
                    f"{root} has more than {MAX_FILES} files",
                    remedy="exclude some with .mesosgpuignore, or choose a directory below it",
                )


def _take(root: Path, item: "os.DirEntry[str]", name: str, finds: Found) -> None:
    status = item.stat(follow_symlinks=False)
    path = Path(item.path)
    if item.is_symlink():
        target = os.readlink(path)
        leads_to = Path(os.path.normpath(path.parent / target))
        if os.path.isabs(target) or not leads_to.is_relative_to(root):
            finds.outside.append((name, target))
        else:
            finds.entries.append(Entry(name, path, 0, link=target))
    elif stat.S_ISREG(status.st_mode):
        finds.entries.append(Entry(name, path, status.st_size, bool(status.st_mode & 0o100)))
    else:
        finds.skipped.append((name, "not a regular file"))


def _specs_in(directory: Path) -> Iterator[GitIgnoreSpec]:
    for name in IGNORES:
        path = directory / name
        if path.is_file():
            yield GitIgnoreSpec.from_lines(path.read_text(encoding="utf-8", errors="replace").splitlines())


def _ignored(name: str, is_directory: bool, specs: _Specs) -> bool:
    """Return whether a path is ignored; the deepest ignore file that matches decides."""
    ignored = False
    for prefix, spec in specs:
        verdict = spec.check_file(name.removeprefix(prefix) + ("/" if is_directory else "")).include
        if verdict is not None:
            ignored = verdict
    return ignored
