"""Program that lists and reads the files that an ended task left in its sandbox.

`isolator.runs.joined` starts it with the sandbox as its root directory, as root without capabilities. The sandbox is
sealed (`isolator.host.sealing`), so only root can change names in it; a directory that is not sealed is not entered.
Paths are opened one name at a time, and links are not followed.
"""

import os
import resource
import stat
from collections.abc import Iterator
from typing import Final

from isolator.host.beneath import DIRECTORY, FILE, open_in
from isolator.host.sealing import is_sealed
from mesos_gpu.adapters.trees.sending import Sending, entry_of
from mesos_gpu.wire.channel import tree
from mesos_gpu.wire.channel.file import GET
from mesos_gpu.wire.channel.tree import Done, Mark, Said

FAULTY = 1  # exit code: some files were not sent
#: Limit on this process' memory, a third of which it uses at the start. It is in the container of the node
#: monitor, and a tenant chooses how many names there are: a directory of some 100,000 is not listed.
MAX_DATA_BYTES: Final = 24 << 20
_STDOUT = 1


def main(words: tuple[str, ...]) -> int:
    """Write the records of a path in the sandbox to standard output.

    Args:
        words: Four words: `GET` or `LIST`; the path; the task's own directory in the sandbox, "" for the sandbox
            itself; "root" if the task ran as root.

    Returns:
        The exit code: 0 or `FAULTY`.
    """
    what, path, below, user = words
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    sending = KeptSending(path, below, as_root=user == "root")
    try:
        for record in sending.records() if what == GET else sending.listed():
            _write(record)
    except MemoryError:
        _write(
            tree.said(
                Mark.FAULT,
                Said((), "the directory has more entries than can be listed: name a directory below it"),
            )
        )
        return FAULTY
    return FAULTY if sending.faults else 0


def _write(record: bytes) -> None:
    view = memoryview(record)
    while view:
        view = view[os.write(_STDOUT, view) :]


class KeptSending(Sending):
    """Records of a path in the sandbox, which is the working directory.

    Args:
        path: Path below the task's own directory.
        below: The task's own directory in the sandbox; "" for the sandbox itself.
        as_root: Whether the task ran as root.
    """

    def __init__(self, path: str, below: str, *, as_root: bool) -> None:
        super().__init__(path)
        self._below, self._as_root = below, as_root

    def withheld(self, status: os.stat_result) -> str:
        """Return why a file is left out: the task could not read it, or it is not sealed; "" if it is sent.

        Sealed files of the task keep its group; files of root have the group root. A file with several names
        is treated as root's.
        """
        if os.geteuid() != 0:
            return ""  # an agent without root runs all tasks as its own user, and seals nothing
        if stat.S_ISDIR(status.st_mode) and not is_sealed(status):
            return "the directory is not sealed yet: try again, or see the log of the node monitor"
        needed = 0o005 if stat.S_ISDIR(status.st_mode) else 0o004
        # Without fs.protected_hardlinks, a task may have linked to any file of root.
        may_be_roots = status.st_gid == 0 or (status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode))
        owned = status.st_uid == 0 and may_be_roots and not stat.S_ISLNK(status.st_mode)
        if owned and not self._as_root and status.st_mode & needed != needed:
            return "the file belongs to root, and the job could not read it"
        return ""

    def opened(self, path: str) -> int:
        """Open a path, one name at a time; return the descriptor, which the caller closes.

        Raises:
            OSError: A name does not exist, is a link, or is withheld.
        """
        names = [name for name in path.split("/") if name not in ("", ".")]
        at = os.open(".", DIRECTORY)
        try:
            if not is_sealed(os.fstat(at)) and os.geteuid() == 0:
                raise OSError(
                    0, "the sandbox is not sealed yet: try again, or see the log of the node monitor"
                )
            try:
                for name in self._below.split("/") if self._below else ():
                    at = self._into(at, name)
            except FileNotFoundError:  # the image was never started, so the task has no directory of its own
                at = _replaced(at, os.open(".", DIRECTORY))
            for name in names:
                at = self._into(at, name)
        except OSError:
            os.close(at)
            raise
        return at

    def _into(self, at: int, name: str) -> int:
        """Open a name in the directory `at`, close `at`, and return the new descriptor."""
        status = os.stat(name, dir_fd=at, follow_symlinks=False)
        if why := self.withheld(status):
            raise OSError(0, why)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(0, f"{name} is a link to {os.readlink(name, dir_fd=at)}: name its target")
        if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
            raise OSError(0, "the entry is neither a file nor a directory")
        return _replaced(at, open_in(name, at, DIRECTORY if stat.S_ISDIR(status.st_mode) else FILE))

    def listed(self) -> Iterator[bytes]:
        """Yield the record of the path and, if it is a directory, of each name directly in it."""
        try:
            fd = self.opened(self._path)
        except OSError as error:
            yield self._fault((), error)
        else:
            status = os.fstat(fd)
            yield tree.entry(entry_of((), status))
            for name in sorted(os.listdir(fd)) if stat.S_ISDIR(status.st_mode) else ():
                inner = os.stat(name, dir_fd=fd, follow_symlinks=False)
                target = os.readlink(name, dir_fd=fd) if stat.S_ISLNK(inner.st_mode) else ""
                why = self.withheld(inner)
                yield (
                    tree.said(Mark.LEFT, Said((name,), why))
                    if why
                    else tree.entry(entry_of((name,), inner, target))
                )
            os.close(fd)
        yield tree.done(Done(0, 0, self.faults))


def _replaced(before: int, after: int) -> int:
    os.close(before)
    return after
