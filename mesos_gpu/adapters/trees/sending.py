"""Reading of files and directories of this host as a stream of records (`mesos_gpu.wire.channel.tree`).

The root may be a link. Below it no link is followed: directories are held open, and names are looked up in them, so
concurrent renames and links cannot redirect the reader elsewhere. Of a file that grows meanwhile, only its size at the
start is sent; a file that gets shorter is reported as a fault, and the receiver drops it.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from mesos_gpu.wire.channel import tree
from mesos_gpu.wire.channel.tree import Done, Entry, Mark, Said

PIECE: Final = 1 << 17  # bytes of one read
_PASSWD: Final = "/etc/passwd"
_MAX_PASSWD: Final = 1 << 20  # bytes
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS: Final = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}


class Sending:
    """Reader of a path with everything below it.

    Args:
        path: Path of a file or directory.
        tell: Callback for entries that are not sent; the receiver gets the same message.
    """

    def __init__(self, path: str, tell: Callable[[Mark, Said], None] = lambda _mark, _report: None) -> None:
        self._path, self._tell = path, tell
        self.files = self.bytes = self.faults = 0

    def records(self) -> Iterator[bytes]:
        """Yield the stream of records, from the first to DONE."""
        yield from self._at_root()
        yield tree.done(Done(self.files, self.bytes, self.faults))

    def withheld(self, status: os.stat_result) -> str:
        """Return why a file with this status is not sent; "" if it is sent."""
        return ""

    def opened(self, path: str) -> int:
        """Open a file or a directory; return the descriptor, which the caller closes.

        Raises:
            OSError: The path is neither a file nor a directory, or cannot be opened.
        """
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            return os.open(path, _DIRECTORY)
        if stat.S_ISREG(status.st_mode):
            return os.open(path, _FILE)
        raise OSError(0, "it is neither a file nor a directory")

    def _at_root(self) -> Iterator[bytes]:
        try:
            fd = self.opened(self._path)
            is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        except OSError as error:
            yield self._fault((), error)
            return
        yield from self._directory(fd, ()) if is_directory else self._file(fd, ())

    def _fault(self, path: tuple[str, ...], error: OSError) -> bytes:
        self.faults += 1
        return self._report(Mark.FAULT, path, error.strerror or str(error))

    def _report(self, mark: Mark, path: tuple[str, ...], why: str) -> bytes:
        message = Said(path, why)
        self._tell(mark, message)
        return tree.said(mark, message)

    def _directory(self, fd: int, path: tuple[str, ...]) -> Iterator[bytes]:
        """Yield the records of a directory, and close it."""
        try:
            yield tree.entry(entry_of(path, os.fstat(fd)))
            for name in sorted(os.listdir(fd)):
                yield from self._inner(fd, (*path, name))
        except OSError as error:
            yield self._fault(path, error)
        finally:
            os.close(fd)

    def _inner(self, above: int, path: tuple[str, ...]) -> Iterator[bytes]:
        """Yield the records of a name in an open directory."""
        name = path[-1]
        try:
            status = os.stat(name, dir_fd=above, follow_symlinks=False)
            kind = _KINDS.get(stat.S_IFMT(status.st_mode))
            if why := self.withheld(status):
                yield self._report(Mark.LEFT, path, why)
                return
            if kind is None:
                yield self._report(Mark.LEFT, path, "it is neither a file nor a directory")
                return
            if kind == "link":
                yield self._link(path, status, os.readlink(name, dir_fd=above))
                return
            if len(path) >= tree.MAX_DEPTH:
                raise OSError(0, f"it is nested in more than {tree.MAX_DEPTH} directories")
            fd = os.open(name, (_FILE if kind == "file" else _DIRECTORY) | os.O_NOFOLLOW, dir_fd=above)
        except OSError as error:
            yield self._fault(path, error)
            return
        yield from self._file(fd, path) if kind == "file" else self._directory(fd, path)

    def _link(self, path: tuple[str, ...], status: os.stat_result, target: str) -> bytes:
        if tree.leads_out(path, target):
            return self._report(Mark.LEFT, path, f"it is a link to {target}, outside of the copied tree")
        return tree.entry(entry_of(path, status, target))

    def _file(self, fd: int, path: tuple[str, ...]) -> Iterator[bytes]:
        """Yield the records of a file, and close it."""
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(0, "it is not a file any more")
            yield tree.entry(entry_of(path, status))
            sent = 0
            # A size of 0 means nothing in /proc: such files are read to their end.
            while piece := os.read(fd, min(PIECE, status.st_size - sent) if status.st_size else PIECE):
                sent += len(piece)
                yield tree.data(piece)
            if sent < status.st_size:
                raise OSError(0, f"it was truncated while it was read: {sent} bytes, not {status.st_size}")
            yield tree.end()
            self.files += 1
            self.bytes += sent
        except OSError as error:
            yield self._fault(path, error)
        finally:
            os.close(fd)


def listed(path: str) -> Iterator[bytes]:
    """Yield the entries of a path and, if it is a directory, of its names; links among them are not followed."""
    faults, names_of = 0, _users()
    try:
        status = os.stat(path)
        yield tree.entry(entry_of((), status, users=names_of))
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(path) as names:
                for child in names:
                    yield _listed(child, names_of)
    except OSError as error:
        faults = 1
        yield tree.said(Mark.FAULT, Said((), error.strerror or str(error)))
    yield tree.done(Done(0, 0, faults))


def _users() -> dict[int, str]:
    """Return names of users by uid, as /etc/passwd of this view has them; no library of the view is loaded for it."""
    try:
        fd = os.open(_PASSWD, _FILE)  # non-blocking: a task's image may have any kind of file of that name
    except OSError:
        return {}
    with open(fd, "rb") as file:
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        lines = file.read(_MAX_PASSWD if is_file else 0).decode(errors="replace").split("\n")
    fields = [line.split(":") for line in reversed(lines)]  # reversed, so that the first line of a uid wins
    return {
        int(field[2]): field[0]
        for field in fields
        if len(field) > 2 and field[0].isprintable() and field[2].isascii() and field[2].isdigit()
    }


def _listed(child: "os.DirEntry[str]", users: Mapping[int, str]) -> bytes:
    try:
        status = child.stat(follow_symlinks=False)
        target = os.readlink(child.path) if stat.S_ISLNK(status.st_mode) else ""
    except OSError as error:
        return tree.said(Mark.LEFT, Said((child.name,), error.strerror or str(error)))
    return tree.entry(entry_of((child.name,), status, target, users=users))


def entry_of(
    path: tuple[str, ...], status: os.stat_result, target: str = "", *, users: Mapping[int, str] | None = None
) -> Entry:
    """Return an entry for a status; without `users` (names by uid) it has no owner."""
    return Entry(
        path,
        _KINDS.get(stat.S_IFMT(status.st_mode), "other"),
        stat.S_IMODE(status.st_mode),
        status.st_size,
        max(status.st_mtime_ns, 0),
        target,
        *((status.st_uid, status.st_gid, users.get(status.st_uid, "")) if users is not None else ()),
    )
