"""Writing of a stream of records (`mesos_gpu.wire.channel.tree`) as files and directories of this host.

The sender is not trusted: nothing is written outside the destination, no link there is followed, and modes have
permission bits only. A file gets its name when it is complete and on disk; until then it is `.mesos-gpu-part-HEX`
beside it, which is removed if the rest never comes, unless this process is killed.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mesos_gpu.wire.channel.tree import MODES, Done, Entry, Mark, Record, Said, leads_out

PART: Final = ".mesos-gpu-part-"  # prefix of the names of incomplete files
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class _Held:
    """An open directory that is written to."""

    path: tuple[str, ...]
    fd: int
    entry: Entry | None  # mode and time to set at the end; None if the directory existed before


@dataclass(slots=True)
class _Part:
    """A file that is being written."""

    entry: Entry
    above: int  # descriptor of its directory
    name: str  # final name
    part: str  # current name
    fd: int
    bytes: int = 0


class Receiving:
    """Writer of received records. Closing it removes an incomplete file.

    Args:
        to: Destination as for cp(1): an existing directory, into which the root goes under its name, or a new name in
            an existing directory.
        name: Name of the root; "" to put its content into the directory `to`, which may be new.
        tell: Callback for entries that are not written.

    Attributes:
        sent: Summary that the sender gives at the end; None before.
    """

    def __init__(self, to: str, name: str, tell: Callable[[Said], None]) -> None:
        self._to, self._name, self._tell = to, name, tell
        self._above = -1  # descriptor of the directory that contains the root
        self._held: list[_Held] = []  # open directories from the root to the latest entry
        self._part: _Part | None = None
        # A directory that cannot be created: its content is skipped.
        self._skipped: tuple[str, ...] | None = None
        self._begun = False
        self.files = self.bytes = self.faults = 0
        self.sent: Done | None = None

    def take(self, record: Record) -> None:
        """Process a record.

        Raises:
            ValueError: The record is not valid after the earlier ones.
        """
        if record.mark is Mark.DATA:
            self._write(record.data)
        elif record.mark is Mark.END:
            self._finish()
        elif isinstance(record.what, Entry):
            if self._part is not None:
                raise ValueError("an entry came before the end of a file")
            self._enter(record.what)
        elif record.mark is Mark.FAULT:
            self._give_up()
        elif isinstance(record.what, Done):
            self.close()
            self.sent = record.what

    def close(self) -> None:
        """Close all descriptors, and remove an incomplete file."""
        self._give_up()
        while self._held:
            self._leave()
        if self._above >= 0:
            self._settle(self._above)
            self._above = -1

    # --- entries

    def _enter(self, entry: Entry) -> None:
        """Process an entry: close directories that are complete, and create the entry."""
        if self._skipped is not None and entry.path[: len(self._skipped)] == self._skipped:
            return
        if self._begun == (not entry.path):
            raise ValueError("an entry is not below the root, or there are two roots")
        self._begun, self._skipped = True, None
        try:
            if entry.path:
                while self._held and self._held[-1].path != entry.path[: len(self._held[-1].path)]:
                    self._leave()
                while self._held and len(self._held[-1].path) >= len(entry.path):
                    self._leave()
                if not self._held or self._held[-1].path != entry.path[:-1]:
                    raise ValueError("an entry came without the directory that it is in")
                self._place(entry, self._held[-1].fd, entry.path[-1])
            else:
                self._begin(entry)
        except OSError as error:
            self._fail(entry, error)

    def _begin(self, root: Entry) -> None:
        """Find the place of the root, and create it there."""
        if not self._name and root.kind == "dir":
            is_new = _make_directory(self._to)
            self._held.append(_Held((), os.open(self._to, _DIRECTORY), root if is_new else None))
            return
        above, name = self._to, self._name
        if not os.path.isdir(self._to):
            above, name = os.path.split(self._to.rstrip("/") or "/")
            if self._to.endswith("/") and root.kind != "dir":
                raise NotADirectoryError(errno.ENOTDIR, f"there is no directory {self._to}")
        if not name:
            raise IsADirectoryError(
                errno.EISDIR, f"{self._to} is a directory: give the name of the new file there"
            )
        try:
            self._above = os.open(above or ".", _DIRECTORY)
        except OSError as error:
            raise OSError(error.errno, f"there is no directory {above}: {error.strerror}") from error
        self._place(root, self._above, name)

    def _place(self, entry: Entry, above: int, name: str) -> None:
        if entry.kind == "dir":
            is_new = _make_directory(name, above)
            fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            self._held.append(_Held(entry.path, fd, entry if is_new else None))
        elif entry.kind == "file":
            _check_replaceable(above, name)
            part = PART + os.urandom(8).hex()
            self._part = _Part(entry, above, name, part, os.open(part, _NEW, 0o600, dir_fd=above))
        elif entry.kind == "link":
            self._link(entry, above, name)

    def _link(self, entry: Entry, above: int, name: str) -> None:
        if leads_out(entry.path, entry.target):
            raise OSError(errno.EPERM, f"it is a link to {entry.target}, outside of the copied tree")
        _check_replaceable(above, name)
        part = PART + os.urandom(8).hex()
        os.symlink(entry.target, part, dir_fd=above)
        try:
            os.rename(part, name, src_dir_fd=above, dst_dir_fd=above)
        except OSError:
            os.unlink(part, dir_fd=above)
            raise

    def _fail(self, entry: Entry, error: OSError) -> None:
        self._skipped = entry.path
        self._fault(entry.path, error)

    def _fault(self, path: tuple[str, ...], error: OSError) -> None:
        self.faults += 1
        self._tell(Said(path, error.strerror or str(error)))

    def _leave(self) -> None:
        """Close the innermost directory, as all its content has come, after setting its mode and time."""
        directory = self._held.pop()
        if directory.entry is not None:
            try:
                os.fchmod(directory.fd, directory.entry.mode & MODES)
                os.utime(directory.fd, ns=(directory.entry.mtime_ns, directory.entry.mtime_ns))
            except OSError as error:
                self._fault(directory.path, error)
        self._settle(directory.fd)

    def _settle(self, directory: int) -> None:
        """Sync and close a directory; some file systems do not support fsync of directories."""
        with contextlib.suppress(OSError):
            os.fsync(directory)
        os.close(directory)

    # --- bytes

    def _write(self, data: bytes) -> None:
        part = self._part
        if part is None:
            return  # data of a file that was skipped
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(part.fd, view) :]
        except OSError as error:
            self._give_up()
            self._fail(part.entry, error)
        else:
            part.bytes += len(data)

    def _finish(self) -> None:
        """Complete the current file: set mode and time, sync it, and give it its name."""
        part = self._part
        if part is None:
            return
        try:
            os.fchmod(part.fd, part.entry.mode & MODES)
            if part.entry.mtime_ns:
                os.utime(part.fd, ns=(part.entry.mtime_ns, part.entry.mtime_ns))
            os.fsync(part.fd)
            os.rename(part.part, part.name, src_dir_fd=part.above, dst_dir_fd=part.above)
        except OSError as error:
            self._give_up()
            self._fail(part.entry, error)
            return
        os.close(part.fd)
        self._part = None
        self.files += 1
        self.bytes += part.bytes

    def _give_up(self) -> None:
        """Remove the current, incomplete file."""
        part, self._part = self._part, None
        if part is not None:
            os.close(part.fd)
            with contextlib.suppress(OSError):  # the file was removed by others, or its directory is gone
                os.unlink(part.part, dir_fd=part.above)


def _make_directory(name: str, above: int | None = None) -> bool:
    """Create a directory if missing. Return whether it is new; until it is complete, only its owner may enter."""
    try:
        os.mkdir(name, 0o700, dir_fd=above)
    except FileExistsError:
        return False
    return True


def _check_replaceable(above: int, name: str) -> None:
    """Check that a name is free, or belongs to a file, or to a link to a file or to nothing: never to a device.

    Raises:
        OSError: The name belongs to something else.
    """
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=above, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            status = os.stat(name, dir_fd=above)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "there is a directory of that name")
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EEXIST, "that name belongs to something that is not a file")
