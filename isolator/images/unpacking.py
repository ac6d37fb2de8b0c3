"""Unpacking of an image's layer from its tar stream into a directory, in the format of overlayfs' lower
directories.

The stream comes from a tenant. Every name is opened below the layer's directory (openat2(2),
RESOLVE_IN_ROOT), so no link leads out of it. Sources: OCI Image Specification, "Image Layer Filesystem
Changeset"; overlayfs.rst of the kernel ("whiteouts and opaque directories"); tar(5).
"""

import contextlib
import errno
import gzip
import hashlib
import math
import os
import shutil
import stat
import subprocess
import tarfile
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Final, Protocol

from isolator.host.beneath import open_below_root
from mesos_gpu.errors import Damaged, Unavailable

MAX_ENTRIES: Final = 4_000_000  # of a layer
MAX_HEADER_BYTES: Final = 1 << 20  # largest extended header, which tarfile holds in memory
# largest sum of a layer's global headers, which apply to each entry after them
MAX_GLOBAL_BYTES: Final = 1 << 16
MAX_CHAINED: Final = 8  # most extended headers of an entry, for each of which tarfile calls itself
MAX_PATH_BYTES: Final = 4096  # PATH_MAX of limits.h
MAX_DEPTH: Final = 200  # most names of a path
GROWTH_BYTES: Final = 1 << 26  # growth between two reports of a layer's size
ENTRY_BYTES: Final = 4096  # bytes of the disk for each entry besides its content
STRANGER: Final = 0x7FFFFFFE  # uid and gid of the program zstd; neither an account nor a pool has it
_PIECE: Final = 1 << 20
_BUFFER: Final = 1 << 15  # tarfile copies the rest of its buffer at each read
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_OTHERS: Final = {b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
_HEAD: Final = 6
_WHITEOUT, _OPAQUE, _RESERVED = ".wh.", ".wh..wh..opq", ".wh..wh."
_OPAQUE_ATTRIBUTE: Final = "trusted.overlay.opaque"
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY
_NO_ID: Final = (1 << 32) - 1  # chown(2) leaves the owner as it is
#: Errors that names and links of a layer can cause.
_FAULTS: Final = frozenset(
    {errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EMLINK}
)
_HEADERS: Final = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes | None:
        """Return up to `size` bytes; none at the end."""


class TooLarge(Exception):
    """Error: a layer is larger than the host allows."""


@dataclass(slots=True)
class Unpacked:
    """Result of `unpack`.

    Attributes:
        size: Bytes of the disk that the layer takes, approximately.
        digest: "sha256:" with the digest of the tar stream, after decompression.
    """

    size: int
    digest: str


def unpack(
    source: Readable,
    directory: int,
    max_bytes: int,
    is_aborted: Callable[[], bool] = lambda: False,
    grown: Callable[[int], None] = lambda _: None,
) -> Unpacked:
    """Unpack a layer into an empty directory.

    Owners, modes and times are as in the layer. Set-user-ID and set-group-ID bits of files, extended
    attributes and device nodes are left out: no task may use them. Whiteouts become those of overlayfs.

    Args:
        source: Tar stream, plain or compressed by gzip or zstd.
        directory: Descriptor of the directory, which only root can reach.
        max_bytes: Limit of the result's size, and of the tar stream.
        is_aborted: Function that returns whether to give up; called now and then.
        grown: Function that is called with the result's size in bytes, each time that `GROWTH_BYTES` have
            been added; may raise.

    Raises:
        Damaged: The stream is not a layer.
        TooLarge: The layer exceeds the limit.
        InterruptedError: `is_aborted` returned True.
        Unavailable: The host has no program for this compression, or an old kernel.
        OSError: The directory cannot be written; ENOSPC: the disk is full.
    """
    with _decompressed(source) as plain:
        counted = _Counted(plain, max_bytes, is_aborted)
        try:
            with _Archive.open(
                fileobj=counted,  # type: ignore[call-overload]  # it is only read
                mode="r|",
                tarinfo=_Member,
                encoding="utf-8",
                bufsize=_BUFFER,
            ) as tar:
                tree = _Tree(directory, counted, max_bytes, grown)
                with contextlib.closing(tree):
                    for member in tar:
                        tar.members = []  # or all of them would be kept
                        tree.add(member, tar)
                    tree.finish()
            while counted.read(_PIECE):  # padding; a compressed stream is verified by its end
                pass
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
            raise _damaged(str(error) or type(error).__name__) from error
        except OverflowError as error:
            raise _damaged(f"a number is out of range: {error}") from error
    return Unpacked(tree.size, f"sha256:{counted.hash.hexdigest()}")


class _Counted:
    """Stream that limits and hashes the bytes that are read."""

    def __init__(self, source: Readable, max_bytes: int, is_aborted: Callable[[], bool]) -> None:
        self._source, self._left, self._is_aborted = source, max_bytes, is_aborted
        self.hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        self.see()
        data = self._source.read(size) or b""
        self._left -= len(data)
        if self._left < 0:
            raise TooLarge
        self.hash.update(data)
        return data

    def see(self) -> None:
        if self._is_aborted():
            raise InterruptedError(errno.EINTR, "killed before it was started")


class _Archive(tarfile.TarFile):
    """Tar stream with counts of its headers.

    Attributes:
        chained: Number of extended headers since the last entry.
        global_bytes: Sum of the global headers.
    """

    chained = global_bytes = 0


class _Member(tarfile.TarInfo):
    """Entry whose headers are limited in size. Maps of sparse files are not, so these are refused: no builder
    writes them.
    """

    def _proc_member(self, archive: Any) -> Any:
        archive.chained = archive.chained + 1 if self.type in _HEADERS else 0
        if archive.chained > MAX_CHAINED:
            raise _damaged(f"more than {MAX_CHAINED} extended headers of one entry")
        if self.type in _HEADERS and not 0 <= self.size <= MAX_HEADER_BYTES:
            raise _damaged(f"an extended header of {self.size} bytes")
        if self.type == tarfile.XGLTYPE:
            archive.global_bytes += self.size
            if archive.global_bytes > MAX_GLOBAL_BYTES:
                raise _damaged(f"global headers of more than {MAX_GLOBAL_BYTES} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise _damaged("it has a sparse file")
        return super()._proc_member(archive)  # type: ignore[misc]

    def _proc_gnusparse_10(self, *_: Any) -> None:
        raise _damaged("it has a sparse file")


class _Tree:
    """The directory of a layer while its entries arrive."""

    def __init__(self, root: int, counted: _Counted, max_bytes: int, grown: Callable[[int], None]) -> None:
        self._root, self._counted, self._max_bytes, self._grown = root, counted, max_bytes, grown
        self._above, self._parent = "", os.dup(root)  # the directory of the last entry, held open
        self._status = os.fstat(root)  # of that directory before the entries that change its times
        self._count = self.size = self._reported = 0

    def close(self) -> None:
        os.close(self._parent)

    def add(self, member: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
        """Add an entry.

        Raises:
            Damaged, TooLarge, OSError: See `unpack`.
        """
        self._count_entry()
        names = [name for name in member.name.split("/") if name not in ("", ".")]
        if ".." in names or len(names) > MAX_DEPTH or len(os.fsencode(member.name)) > MAX_PATH_BYTES:
            raise _damaged(f"the name {member.name[:200]!r}")
        if "\0" in member.name + member.linkname:
            raise _damaged(f"a NUL in the name {member.name[:200]!r}, or in its link")
        if any(key.startswith("GNU.sparse.") for key in member.pax_headers):
            raise _damaged(f"{member.name!r} is a sparse file")
        if not 0 <= member.uid < _NO_ID or not 0 <= member.gid < _NO_ID or member.size < 0:
            raise _damaged(f"{member.name!r} of {member.uid}:{member.gid} with {member.size} bytes")
        if not names:
            if member.isdir():
                _own(self._root, member)
            return
        try:
            self._enter("/".join(names[:-1]))
            self._make(names[-1], member, tar)
        except OSError as error:
            if error.errno in _FAULTS:
                raise _damaged(f"{member.name!r} cannot be made: {error.strerror}") from error
            raise

    def finish(self) -> None:
        """Set the times of the last directory."""
        _set_times(self._parent, self._status)

    def _count_entry(self) -> None:
        self._count += 1
        if self._count > MAX_ENTRIES:
            raise TooLarge
        self._take(ENTRY_BYTES)

    def _take(self, size: int) -> None:
        self.size += size
        if self.size > self._max_bytes:
            raise TooLarge
        if self.size - self._reported >= GROWTH_BYTES:
            self._reported = self.size
            self._grown(self.size)

    def _enter(self, path: str) -> None:
        """Open the directory of an entry, made if it does not exist; links are followed in the layer."""
        if path == self._above:
            return
        fd = self._directory(path)
        _set_times(self._parent, self._status)
        os.close(self._parent)
        self._above, self._parent, self._status = path, fd, os.fstat(fd)

    def _directory(self, path: str) -> int:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return self._opened(path or "/", _DIRECTORY)
        above, _, name = path.rpartition("/")
        fd = self._directory(above)
        try:
            status = os.fstat(fd)
            was_hidden = _clear(name, fd, only_whiteouts=True)
            self._count_entry()  # one name of an entry can have many directories
            os.mkdir(name, 0o755, dir_fd=fd)
            if was_hidden:
                _make_opaque(name, fd)
            _set_times(fd, status)
        finally:
            os.close(fd)
        return self._opened(path, _DIRECTORY)

    def _opened(self, path: str, flags: int) -> int:
        try:
            return open_below_root(path, self._root, flags)
        except OSError as error:
            if error.errno == errno.ENOSYS:
                raise Unavailable(
                    "this kernel has no openat2, with which images are unpacked",
                    remedy="run Linux 5.6 or newer, or another container engine",
                ) from error
            raise

    def _make(self, name: str, member: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
        if name == _OPAQUE:
            if not self._above:
                raise _damaged("it hides all layers below")
            os.setxattr(self._parent, _OPAQUE_ATTRIBUTE, b"y")
        elif name.startswith(_RESERVED):
            pass  # a name that AUFS reserves
        elif name.startswith(_WHITEOUT):
            self._hide(name.removeprefix(_WHITEOUT))
        elif member.isdir():
            self._make_directory(name, member)
        elif member.isreg():
            _clear(name, self._parent)
            self._write(name, member, tar)
        elif member.issym():
            _clear(name, self._parent)
            os.symlink(member.linkname, name, dir_fd=self._parent)
            os.chown(name, member.uid, member.gid, dir_fd=self._parent, follow_symlinks=False)
        elif member.islnk():
            self._link(name, member)
        elif member.isfifo():
            _clear(name, self._parent)
            os.mkfifo(name, 0o600, dir_fd=self._parent)
            os.chown(name, member.uid, member.gid, dir_fd=self._parent, follow_symlinks=False)

    def _hide(self, name: str) -> None:
        """Hide entries of lower layers with a name; this layer's own entry stays."""
        if name in ("", ".", ".."):
            raise _damaged(f"a whiteout of {name!r}")
        mode = _mode_of(name, self._parent)
        if mode is None:
            os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=self._parent)
        elif stat.S_ISDIR(mode):
            _make_opaque(name, self._parent)

    def _make_directory(self, name: str, member: tarfile.TarInfo) -> None:
        mode = _mode_of(name, self._parent)
        if mode is None or not stat.S_ISDIR(mode):
            was_hidden = _clear(name, self._parent)
            os.mkdir(name, 0o700, dir_fd=self._parent)
            if was_hidden:
                _make_opaque(name, self._parent)
        fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._parent)
        try:
            _own(fd, member)
            os.utime(fd, (_time(member), _time(member)))
        finally:
            os.close(fd)

    def _write(self, name: str, member: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=self._parent)
        with open(fd, "wb", buffering=0) as file:
            content: IO[bytes] | None = tar.extractfile(member)
            while content is not None and (data := content.read(_PIECE)):
                self._counted.see()
                self._take(len(data))
                written = 0
                while written < len(data):
                    written += file.write(data[written:]) or 0
            _own(fd, member)
            os.utime(fd, (_time(member), _time(member)))

    def _link(self, name: str, member: tarfile.TarInfo) -> None:
        target = "/".join(part for part in member.linkname.split("/") if part not in ("", "."))
        if not target or ".." in target.split("/"):
            raise _damaged(f"the hard link {member.name!r} to {member.linkname[:200]!r}")
        above, _, last = target.rpartition("/")
        fd = self._opened(above or "/", _DIRECTORY)
        try:
            status = os.stat(last, dir_fd=fd, follow_symlinks=False)
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                raise _damaged(f"the hard link {member.name!r} to something that is not a file")
            mine = _mode_of(name, self._parent) is not None and os.stat(
                name, dir_fd=self._parent, follow_symlinks=False
            )
            if mine and (mine.st_dev, mine.st_ino) == (status.st_dev, status.st_ino):
                return
            _clear(name, self._parent)
            os.link(last, name, src_dir_fd=fd, dst_dir_fd=self._parent, follow_symlinks=False)
        finally:
            os.close(fd)


def _mode_of(name: str, above: int) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
    return None


def _clear(name: str, above: int, *, only_whiteouts: bool = False) -> bool:
    """Remove what has a name and is no directory; return whether it was a whiteout."""
    mode = _mode_of(name, above)
    is_whiteout = mode is not None and stat.S_ISCHR(mode)
    if mode is not None and (is_whiteout or not only_whiteouts):
        os.unlink(name, dir_fd=above)
    return is_whiteout


def _make_opaque(name: str, above: int) -> None:
    fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        os.setxattr(fd, _OPAQUE_ATTRIBUTE, b"y")
    finally:
        os.close(fd)


def _own(fd: int, member: tarfile.TarInfo) -> None:
    """Set owner and mode, without the set-user-ID bit of a file, which could not be used."""
    os.fchown(fd, member.uid, member.gid)
    os.fchmod(fd, member.mode & (0o7777 if member.isdir() else 0o1777))


def _set_times(fd: int, status: os.stat_result) -> None:
    os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))


def _time(member: tarfile.TarInfo) -> int:
    if not math.isfinite(member.mtime):
        raise _damaged(f"{member.name!r} of the time {member.mtime}")
    return min(max(int(member.mtime), 0), 1 << 40)


# --- compression


@contextlib.contextmanager
def _decompressed(source: Readable) -> Iterator[Readable]:
    begun = _Begun(source)
    if begun.head.startswith(_GZIP):
        yield gzip.GzipFile(fileobj=begun, mode="rb")  # type: ignore[call-overload]  # it is only read
    elif begun.head.startswith(_ZSTD):
        with _by_zstd(begun) as plain:
            yield plain
    else:
        for head, name in _OTHERS.items():
            if begun.head.startswith(head):
                raise _damaged(f"it is compressed by {name}; layers are plain, or compressed by gzip or zstd")
        yield begun


class _Begun:
    """Stream whose first bytes are known."""

    def __init__(self, source: Readable) -> None:
        self._source, self.head = source, b""
        while len(self.head) < _HEAD and (data := source.read(_HEAD - len(self.head))):
            self.head += data
        self._rest = self.head

    def read(self, size: int = -1) -> bytes:
        if self._rest:
            data = self._rest if size < 0 else self._rest[:size]
            self._rest = self._rest[len(data) :]
            return data
        return self._source.read(size) or b""


@contextlib.contextmanager
def _by_zstd(source: _Begun) -> Iterator[Readable]:
    """Decompress by the host's program zstd, which runs without rights; Python has zstd only since 3.14."""
    program = shutil.which("zstd")
    if program is None:
        raise Unavailable(
            "a layer is compressed by zstd, but this host has no program zstd",
            remedy="install it: apt-get install zstd",
        )
    nobody = {"user": STRANGER, "group": STRANGER, "extra_groups": []} if os.geteuid() == 0 else {}
    process = subprocess.Popen(
        [program, "-dcq"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        **nobody,  # type: ignore[call-overload]
    )
    assert process.stdin is not None
    assert process.stdout is not None
    failures: list[BaseException] = []
    feeder = threading.Thread(target=_feed, args=(source, process.stdin, failures), daemon=True)
    feeder.start()
    try:
        yield process.stdout
        feeder.join()
        if process.wait() and not failures:
            raise _damaged("zstd cannot decompress it")
    except Exception as error:
        process.kill()
        feeder.join()
        if failures:  # a stream that broke off looks damaged
            raise failures[0] from error
        raise
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    if failures:
        raise failures[0]


def _feed(source: _Begun, sink: IO[bytes], failures: list[BaseException]) -> None:
    try:
        while data := source.read(_PIECE):
            sink.write(data)
    except BrokenPipeError:  # zstd has ended, and its exit status tells why
        pass
    except BaseException as error:  # noqa: BLE001 - any error belongs to the thread that unpacks
        failures.append(error)
    finally:
        with contextlib.suppress(OSError):
            sink.close()


def _damaged(why: str) -> Damaged:
    return Damaged(f"a layer of the image cannot be unpacked: {why}", remedy="build and push the image again")
