"""Safe access by root to a task's sandbox on its host: everything that is opened, written, linked, renamed,
made or given away there goes through this module.

What is below a sandbox may be a task's work, or come from an untrusted archive: a link to /etc, a FIFO
without a writer. So nothing is reached by a path: a directory is held open, names are looked up in it, and
links are never followed. Files that the executor itself puts there belong to root, in a sticky directory of
root's: the task's user may make files there, and rename or remove only its own. Sources: open(2),
unlinkat(2), sticky bit in unlink(2); acl(5), whose bytes are linux/posix_acl_xattr.h's.
"""

import contextlib
import errno
import os
import stat
import struct
from collections.abc import Collection, Iterator, Sequence
from typing import Final, Self

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Directory of nested containers (slave/containerizer/mesos/paths.hpp), where the agent writes as root,
#: following links.
CONTAINERS: Final = "containers"
NESTED: Final = "task"  # name of the container in which the agent runs an image
STREAMS: Final = ("stdout", "stderr")
NOTICE: Final = "mesos-gpu-notice.json"  # notice of the task's end
CHECKPOINT: Final = "mesos-gpu-checkpoint"  # the task touches it when it has saved its work

_ACL: Final = "system.posix_acl_access"
_VERSION, _NO_ID = 2, 0xFFFFFFFF
_USER_OBJ, _USER, _GROUP_OBJ, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20


class Sandbox:
    """A directory, held open. Names are those of its direct entries, never paths.

    Args:
        path: Path whose last part is no link; the directories above it belong to the agent.

    Raises:
        OSError: It does not exist, or is a link.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, _DIRECTORY)

    @classmethod
    def _of(cls, fd: int) -> Self:
        sandbox = cls.__new__(cls)
        sandbox._fd = fd
        return sandbox

    def __enter__(self) -> Self:
        """Enter the directory; leaving closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the directory."""
        self.close()

    @property
    def path(self) -> str:
        """Path of this very directory, whatever its name is by now; valid while it is held open and this
        process lives.
        """
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def close(self) -> None:
        """Close the directory."""
        os.close(self._fd)

    def enter(self, *names: str) -> "Sandbox":
        """Open a directory below this one, which the caller closes.

        Raises:
            OSError: A name does not exist, or is not a directory (a link is not).
        """
        at = os.dup(self._fd)
        for name in names:
            above = at
            try:
                at = os.open(_one(name), _DIRECTORY, dir_fd=above)
            finally:
                os.close(above)
        return self._of(at)

    # --- owners and permissions

    def admit(self, uid: int, *, writes: bool = True) -> bool:
        """Let a user pass through the directory or, with `writes`, make files in it.

        The directory and its entries keep their owners: the user can rename and remove only its own files.

        Returns:
            True on success. False on a file system without access control lists: others may pass through
                then, and nothing is done for a user that writes, as the directory would have to be its own,
                who could then replace its entries.

        Raises:
            OSError: The kernel refuses.
        """
        before = os.fstat(self._fd)
        acl = _acl(uid, 7 if writes else 1, before.st_mode)
        try:
            os.setxattr(self._fd, _ACL, acl)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            if not writes:
                os.fchmod(self._fd, stat.S_IMODE(before.st_mode) | 0o001)
            return False
        os.fchmod(self._fd, (stat.S_IMODE(os.fstat(self._fd).st_mode) & ~0o002) | stat.S_ISVTX)
        return True

    def shut(self) -> None:
        """Close the directory to all users but root and this process' user, who owns it then.

        Raises:
            OSError: The kernel refuses.
        """
        os.fchown(self._fd, os.geteuid(), -1)
        os.fchmod(self._fd, 0o700)  # also the mask for users that an access control list names (acl(5))

    def admit_to(self, name: str, uid: int) -> None:
        """Let a user write to a file here, for example by reopening /dev/stdout; the entry keeps its owner.

        Harmless if the file does not exist, or is not a regular file.

        Raises:
            OSError: The kernel refuses, or the file system has no access control lists.
        """
        try:
            fd = self._open(name, os.O_RDWR)
        except (FileNotFoundError, NotAFile):
            return
        with _closing(fd):
            os.setxattr(fd, _ACL, _acl(uid, 6, os.fstat(fd).st_mode))

    # --- files of the executor's own

    def put(self, name: str, data: bytes) -> None:
        """Write a file with these bytes in place of any entry of that name; a link is replaced, not followed.

        Raises:
            OSError: The disk is full, or a directory has the name.
        """
        new = _new_name(name)
        fd = os.open(
            new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=self._fd
        )
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            os.rename(new, _one(name), src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except OSError:
            os.unlink(new, dir_fd=self._fd)
            raise

    def append(self, name: str, *, linked: bool = False) -> int:
        """Open a file for appending, made if it does not exist; the caller closes it.

        Args:
            linked: Whether the file may have a second name, see `hold`.

        Raises:
            NotAFile: The entry is a link, a FIFO or the like, or the file has a second name elsewhere.
            OSError: The kernel refuses.
        """
        return self._open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, linked=linked)

    def hold(self, name: str, *, linked: bool = False) -> int:
        """Open a file for reading and writing; the caller closes it.

        Args:
            linked: Whether the file may have a second name, as it has if it is shown here and belongs to a
                nested sandbox.

        Raises:
            NotAFile: As for `append`.
            OSError: It does not exist.
        """
        return self._open(name, os.O_RDWR, linked=linked)

    def put_back(self, name: str, fd: int) -> bool:
        """Make sure that a name is still that of an open file; return whether it was.

        If not, the file gets its name back, and the entry that had it is replaced, or renamed if it is a
        directory. If the file has no name left, and so can get none, a new file says so.

        Raises:
            OSError: The kernel refuses.
        """
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(_one(name), dir_fd=self._fd, follow_symlinks=False)
            if os.path.samestat(status, os.fstat(fd)):
                return True
            if stat.S_ISDIR(status.st_mode):
                os.rename(name, _new_name(name), src_dir_fd=self._fd, dst_dir_fd=self._fd)
        if os.fstat(fd).st_nlink:
            self._link(fd, name)
        else:
            self.put(name, b"[mesos-gpu] the task removed this file: what it writes to it is lost\n")
        return False

    def read(self, name: str, most: int) -> bytes:
        """Return the first bytes of a file, whatever its owner, without ever blocking.

        Raises:
            NotAFile: The entry is a link, a FIFO or the like.
            OSError: It does not exist.
        """
        with os.fdopen(self._open(name, os.O_RDONLY, linked=True), "rb") as file:
            return file.read(most)

    def _open(self, name: str, flags: int, *, linked: bool = False) -> int:
        try:
            fd = os.open(_one(name), flags | _FILE, 0o644, dir_fd=self._fd)
        except OSError as error:
            if error.errno in (
                errno.ELOOP,
                errno.ENXIO,
                errno.EISDIR,
            ):  # a link, a FIFO or socket, a directory
                raise NotAFile(name) from error
            raise
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or (status.st_nlink > 1 and not linked):
            os.close(fd)
            raise NotAFile(name)
        return fd

    def changed_at(self, name: str) -> float | None:
        """Return when a file was last written or touched, in seconds since the epoch; None if the entry is
        not a regular file.

        Raises:
            OSError: It does not exist.
        """
        status = os.stat(_one(name), dir_fd=self._fd, follow_symlinks=False)
        return status.st_mtime if stat.S_ISREG(status.st_mode) else None

    def names(self) -> list[str]:
        """Return the names of all entries, sorted."""
        return sorted(os.listdir(self._fd))

    # --- directories and mount points

    def keep(self, name: str) -> None:
        """Make a directory of this process' user, which the task cannot replace; harmless if it exists.

        Raises:
            OSError: The entry belongs to another user, or is no directory.
        """
        with contextlib.suppress(FileExistsError):
            os.mkdir(_one(name), 0o755, dir_fd=self._fd)
        with self.enter(name) as directory:
            if os.fstat(directory._fd).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, f"{name} in the sandbox is not the executor's")

    def make(self, name: str, uid: int, gid: int) -> None:
        """Make a new directory of a user. To be used in directories that only this process' user can write.

        Raises:
            OSError: The name is taken, or the kernel refuses.
        """
        os.mkdir(_one(name), 0o755, dir_fd=self._fd)
        with self.enter(name) as directory:
            os.fchown(directory._fd, uid, gid)

    def remove(self, name: str) -> None:
        """Remove a directory with its content, without following links; what cannot be removed stays.

        Raises:
            OSError: It cannot be read.
        """
        import shutil  # deferred: few tasks need it, and the import slows the start

        shutil.rmtree(_one(name), ignore_errors=True, dir_fd=self._fd)

    def unlink(self, name: str) -> None:
        """Remove a file, or a link itself; harmless if it does not exist.

        Raises:
            OSError: The entry is a directory.
        """
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_one(name), dir_fd=self._fd)

    def make_point(self, names: Sequence[str], *, is_file: bool) -> None:
        """Make a mount point with the directories above it; each belongs to the owner of the directory that
        it is in.

        Raises:
            OSError: A name on the way is a link or no directory, or the kernel refuses.
        """
        at: Sandbox = self
        with contextlib.ExitStack() as held:
            for name in names[: -1 if is_file else None]:
                at = held.enter_context(_make_directory(at, name))
            if is_file:
                _make_file(at, names[-1])

    def heir(self) -> tuple[int, int]:
        """Return uid and gid for new entries: those of the admitted user, else of the owner."""
        owner = os.fstat(self._fd)
        try:
            acl = os.getxattr(self._fd, _ACL)
        except OSError:  # no list, or the file system has none
            return owner.st_uid, owner.st_gid
        named = [uid for tag, _, uid in struct.iter_unpack("<HHI", acl[4:]) if tag == _USER]
        return (named[0], -1) if named else (owner.st_uid, owner.st_gid)

    # --- files of a nested sandbox

    def take(self, source: "Sandbox", but: Collection[str]) -> str | None:
        """Move all entries of another directory here; nothing that is here is replaced, and no link is
        followed.

        Args:
            but: Names that are not moved.

        Returns:
            A name that exists here already, in which case nothing is moved; None if all are moved.

        Raises:
            OSError: The kernel refuses.
        """
        names = set(os.listdir(source._fd)) - {*but}
        if taken := names & set(os.listdir(self._fd)):
            return min(taken)
        for name in names:
            os.rename(name, name, src_dir_fd=source._fd, dst_dir_fd=self._fd)
        return None

    def show(self, source: "Sandbox", name: str) -> bool:
        """Link a file of another directory here under its name, in place of any entry; return whether that
        was done.

        It is not done if the entry there is not a regular file, or has another name, too.

        Raises:
            OSError: The kernel refuses.
        """
        try:
            fd = source._open(name, os.O_RDONLY)
        except (FileNotFoundError, NotAFile):
            return False
        with _closing(fd):
            self._link(fd, name)
        return True

    def _link(self, fd: int, name: str) -> None:
        """Link an open file to a name, whatever its own name is by now (proc(5), linkat(2) with
        AT_SYMLINK_FOLLOW).
        """
        new = _new_name(name)
        os.link(f"/proc/self/fd/{fd}", new, dst_dir_fd=self._fd, follow_symlinks=True)
        os.rename(new, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)


class NotAFile(OSError):
    """Error: an entry of a sandbox is not a regular file with one name, so it is not opened.

    Args:
        name: Name in its directory.
    """

    def __init__(self, name: str) -> None:
        super().__init__(errno.EPERM, f"{name} in the sandbox is not a regular file with one name")


def has_acls(path: str) -> bool:
    """Return whether the file system of a path has access control lists, which `admit` needs.

    Raises:
        OSError: The path is not there, or the kernel refuses.
    """
    try:
        os.getxattr(path, _ACL)
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
            raise
        return error.errno == errno.ENODATA
    return True


def _make_file(sandbox: Sandbox, name: str) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with (
        contextlib.suppress(FileExistsError),
        _closing(os.open(_one(name), flags, 0o644, dir_fd=sandbox._fd)) as fd,
    ):
        _pass_on(sandbox, fd)


def _make_directory(sandbox: Sandbox, name: str) -> "Sandbox":
    made = True
    try:
        os.mkdir(_one(name), dir_fd=sandbox._fd)
    except FileExistsError:
        made = False
    directory = sandbox.enter(name)
    # otherwise the user has put a directory of its own there meanwhile
    if made and os.fstat(directory._fd).st_uid == os.geteuid():
        _pass_on(sandbox, directory._fd)
    return directory


def _pass_on(sandbox: Sandbox, fd: int) -> None:
    uid, gid = sandbox.heir()
    os.fchown(fd, uid, gid)


def _one(name: str) -> str:
    if "/" in name or name in ("", ".", ".."):
        raise ValueError(f"{name!r} is not a name in a directory")
    return name


def _new_name(name: str) -> str:
    return f".{_one(name)}.{os.urandom(8).hex()}"


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _acl(uid: int, may: int, mode: int) -> bytes:
    """Return a list that keeps a mode, except writing by others, and admits one more user.

    Its mask is what the mode then shows for the group (acl(5)).
    """
    group = mode >> 3 & 5
    entries = (
        (_USER_OBJ, mode >> 6 & 7, _NO_ID),
        (_USER, may, uid),
        (_GROUP_OBJ, group, _NO_ID),
        (_MASK, may | group, _NO_ID),
        (_OTHER, mode & 5, _NO_ID),
    )
    return struct.pack("<I", _VERSION) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
