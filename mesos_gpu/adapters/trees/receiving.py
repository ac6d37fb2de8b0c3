"""A stream of records (`mesos_gpu.wire.channel.tree`) as files and directories of this host.

Who sends is not believed: nothing is written but below the destination, no link there is followed, and modes are
those of permissions alone. A file gets its name when it is whole and on the disk; until then, and if the rest never
comes, it is `.mesos-gpu-part-HEX` beside it, which is removed unless this process is killed.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mesos_gpu.wire.channel.tree import MODES, Done, Entry, Mark, Record, Said, leads_out

PART: Final = ".mesos-gpu-part-"  # what the name of a file begins with that is not whole
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class _Held:
    """A directory that is written to."""

    path: tuple[str, ...]
    fd: int
    entry: Entry | None  # whose mode and time it gets at last; None: it was there before


@dataclass(slots=True)
class _Part:
    """A file that is under way."""

    entry: Entry
    above: int  # a file of its directory
    name: str  # that it is to have
    part: str  # that it has
    fd: int
    bytes: int = 0


class Receiving:
    """What comes, as it is written. Close it: what is not whole then is gone."""

    def __init__(self, to: str, name: str, tell: Callable[[Said], None]) -> None:
        """Nothing has come.

        Args:
            to: As of cp(1): a directory that is there, into which it comes under its name; or the name that it gets in
                one that is there.
            name: Of what comes; "": what is in it goes into the directory `to`, which may be new.
            tell: Is told what is not written.
        """
        self._to, self._name, self._tell = to, name, tell
        self._above = -1  # the directory that the root is in
        self._held: list[_Held] = []  # from the root down to where the latest entry is
        self._part: _Part | None = None
        self._skipped: tuple[str, ...] | None = (
            None  # a directory that cannot be: all that is in it is passed over
        )
        self._begun = False
        self.files = self.bytes = self.faults = 0
        self.sent: Done | None = None  # what the sender says at the end

    def take(self, record: Record) -> None:
        """Do what a record says.

        Raises:
            ValueError: It makes no sense after what came before.
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
        """Let go of all that is open; a file that is under way is removed."""
        self._give_up()
        while self._held:
            self._leave()
        if self._above >= 0:
            self._settle(self._above)
            self._above = -1

    # --- entries

    def _enter(self, each: Entry) -> None:
        if self._skipped is not None and each.path[: len(self._skipped)] == self._skipped:
            return
        if self._begun == (not each.path):
            raise ValueError("an entry is not below the first, or there are two of those")
        self._begun, self._skipped = True, None
        try:
            if each.path:
                while self._held and self._held[-1].path != each.path[: len(self._held[-1].path)]:
                    self._leave()
                while self._held and len(self._held[-1].path) >= len(each.path):
                    self._leave()
                if not self._held or self._held[-1].path != each.path[:-1]:
                    raise ValueError("an entry came without the directory that it is in")
                self._place(each, self._held[-1].fd, each.path[-1])
            else:
                self._begin(each)
        except OSError as error:
            self._fail(each, error)

    def _begin(self, root: Entry) -> None:
        """Find where the root goes, and place it there."""
        if not self._name and root.kind == "dir":
            made = _made(self._to)
            self._held.append(_Held((), os.open(self._to, _DIRECTORY), root if made else None))
            return
        above, name = self._to, self._name
        if not os.path.isdir(self._to):
            above, name = os.path.split(self._to.rstrip("/") or "/")
            if self._to.endswith("/") and root.kind != "dir":
                raise NotADirectoryError(errno.ENOTDIR, f"there is no directory {self._to}")
        if not name:
            raise IsADirectoryError(
                errno.EISDIR, f"{self._to} is a directory: say what name it is to have there"
            )
        try:
            self._above = os.open(above or ".", _DIRECTORY)
        except OSError as error:
            raise OSError(error.errno, f"there is no directory {above}: {error.strerror}") from error
        self._place(root, self._above, name)

    def _place(self, each: Entry, above: int, name: str) -> None:
        if each.kind == "dir":
            made = _made(name, above)
            fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            self._held.append(_Held(each.path, fd, each if made else None))
        elif each.kind == "file":
            _see_replaceable(above, name)
            part = PART + os.urandom(8).hex()
            self._part = _Part(each, above, name, part, os.open(part, _NEW, 0o600, dir_fd=above))
        elif each.kind == "link":
            self._link(each, above, name)

    def _link(self, each: Entry, above: int, name: str) -> None:
        if leads_out(each.path, each.target):
            raise OSError(errno.EPERM, f"it is a link to {each.target}, elsewhere")
        _see_replaceable(above, name)
        part = PART + os.urandom(8).hex()
        os.symlink(each.target, part, dir_fd=above)
        try:
            os.rename(part, name, src_dir_fd=above, dst_dir_fd=above)
        except OSError:
            os.unlink(part, dir_fd=above)
            raise

    def _fail(self, each: Entry, error: OSError) -> None:
        self._skipped = each.path
        self._fault(each.path, error)

    def _fault(self, path: tuple[str, ...], error: OSError) -> None:
        self.faults += 1
        self._tell(Said(path, error.strerror or str(error)))

    def _leave(self) -> None:
        """Let go of a directory: all that is in it has come."""
        held = self._held.pop()
        if held.entry is not None:
            try:
                os.fchmod(held.fd, held.entry.mode & MODES)
                os.utime(held.fd, ns=(held.entry.mtime_ns, held.entry.mtime_ns))
            except OSError as error:
                self._fault(held.path, error)
        self._settle(held.fd)

    def _settle(self, directory: int) -> None:
        """Close a directory when its names are on the disk. Some file systems know no fsync of directories."""
        with contextlib.suppress(OSError):
            os.fsync(directory)
        os.close(directory)

    # --- bytes

    def _write(self, data: bytes) -> None:
        part = self._part
        if part is None:
            return  # of what was passed over
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
        """All bytes of a file have come: it gets its name."""
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
        """Remove a file that is under way."""
        part, self._part = self._part, None
        if part is not None:
            os.close(part.fd)
            with contextlib.suppress(OSError):  # somebody else has removed it, or the directory is gone
                os.unlink(part.part, dir_fd=part.above)


def _made(name: str, above: int | None = None) -> bool:
    """Have a directory; whether it is new. Until all is in it, its owner alone may enter."""
    try:
        os.mkdir(name, 0o700, dir_fd=above)
    except FileExistsError:
        return False
    return True


def _see_replaceable(above: int, name: str) -> None:
    """See that what has a name, if anything has, is a file, or a link to one or to nothing: never a device.

    Raises:
        OSError: It is something else.
    """
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=above, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            status = os.stat(name, dir_fd=above)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "there is a directory of that name")
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EEXIST, "there is something of that name that is no file")
