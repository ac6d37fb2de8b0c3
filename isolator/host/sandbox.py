"""A task's directory on its host, as root has to deal with it: all that is opened, written, linked, renamed, made or
given away there goes through here.

What is below a sandbox may be a task's work, or came out of an archive of strangers: a link to /etc, a FIFO that
nobody writes to. So nothing is reached by a path: a directory is held open, names in it are looked up below that one,
and links are never followed. What the executor itself puts there stays root's, in a directory that is root's and
sticky: the task's user may make what it likes there, and rename or remove only what is its own.

Sources: open(2), unlinkat(2), sticky bit in unlink(2); acl(5), whose bytes are linux/posix_acl_xattr.h's.
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
#: Where the agent puts what is nested (slave/containerizer/mesos/paths.hpp), as root, following links on the way.
CONTAINERS: Final = "containers"
NESTED: Final = "task"  # name of the container that the agent runs an image in
STREAMS: Final = ("stdout", "stderr")
NOTICE: Final = "mesos-gpu-notice.json"  # what the task is told of its end
CHECKPOINT: Final = "mesos-gpu-checkpoint"  # the task writes to it when it has kept its work

_ACL: Final = "system.posix_acl_access"
_VERSION, _NO_ID = 2, 0xFFFFFFFF
_USER_OBJ, _USER, _GROUP_OBJ, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20


class Sandbox:
    """A directory, held open. Names are of what is right in it, never paths."""

    def __init__(self, path: str) -> None:
        """Open it.

        Args:
            path: Whose last part is no link; what is above it is the agent's.

        Raises:
            OSError: It is not there, or a link.
        """
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
        """Let go of it."""
        self.close()

    @property
    def path(self) -> str:
        """The path of this very directory, whatever it is called by now; good as long as it is held and this process
        lives."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def close(self) -> None:
        """Let go of it."""
        os.close(self._fd)

    def enter(self, *names: str) -> "Sandbox":
        """A directory below it, of its own to close.

        Raises:
            OSError: One of the names is not there, or no directory, as a link is none.
        """
        at = os.dup(self._fd)
        for name in names:
            above = at
            try:
                at = os.open(_one(name), _DIRECTORY, dir_fd=above)
            finally:
                os.close(above)
        return self._of(at)

    # --- whose it is

    def admit(self, uid: int, *, writes: bool = True) -> bool:
        """Let a user in: to pass through, or (`writes`) to make files of its own here. The directory stays this
        process' user's, and what is in it its owners': the user can rename and remove none but its own.

        Returns:
            Whether it is so. On a file system without access control lists others may pass through, and nothing is done
            for a user that writes: the directory would have to become that user's, who could replace what is there.

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
        """Let nobody in any more but root, who owns it then, and this process' user.

        Raises:
            OSError: The kernel refuses.
        """
        os.fchown(self._fd, os.geteuid(), -1)
        os.fchmod(self._fd, 0o700)  # which is the mask of whoever an access control list named, too (acl(5))

    def admit_to(self, name: str, uid: int) -> None:
        """Let a user write to a file here, as by reopening /dev/stdout; the name stays whose it is. Harmless if it is
        not there, or no file.

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
        """Have a file of these bytes there, in place of whatever has the name; a link is replaced, not followed.

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
        """A file to append to, made if it is not there; the caller closes it. `linked`: as of `hold`.

        Raises:
            NotAFile: What has the name is a link, a FIFO or the like, or has a second name elsewhere.
            OSError: The kernel refuses.
        """
        return self._open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, linked=linked)

    def hold(self, name: str, *, linked: bool = False) -> int:
        """A file to read and write; the caller closes it. `linked`: it may have a second name, as it has when it is
        shown here and is of a nested sandbox.

        Raises:
            NotAFile: As of `append`.
            OSError: It is not there.
        """
        return self._open(name, os.O_RDWR, linked=linked)

    def put_back(self, name: str, fd: int) -> bool:
        """See that a name is still that of a file that is held; whether it was. Else the file gets it back, and what
        had it meanwhile is gone, or if it is a directory has another name. Of a file that has no name left, and so
        can get none, a new one of that name says so.

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
        """The first bytes of a file, whoever made it; never waits.

        Raises:
            NotAFile: What has the name is a link, a FIFO or the like.
            OSError: It is not there.
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
        """When a file was last written to, or touched, seconds since the epoch; None: what has the name is no file.

        Raises:
            OSError: It is not there.
        """
        status = os.stat(_one(name), dir_fd=self._fd, follow_symlinks=False)
        return status.st_mtime if stat.S_ISREG(status.st_mode) else None

    def names(self) -> list[str]:
        """The names of all that is there, in order."""
        return sorted(os.listdir(self._fd))

    # --- directories and mount points

    def keep(self, name: str) -> None:
        """Have a directory of this process' user there, which the task cannot replace.

        Raises:
            OSError: Another's has the name, or something else.
        """
        with contextlib.suppress(FileExistsError):
            os.mkdir(_one(name), 0o755, dir_fd=self._fd)
        with self.enter(name) as directory:
            if os.fstat(directory._fd).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, f"{name} in the sandbox is not the executor's")

    def make(self, name: str, uid: int, gid: int) -> None:
        """Have a new directory of a user there. For directories that only this process' user writes to.

        Raises:
            OSError: Something has the name, or the kernel refuses.
        """
        os.mkdir(_one(name), 0o755, dir_fd=self._fd)
        with self.enter(name) as directory:
            os.fchown(directory._fd, uid, gid)

    def remove(self, name: str) -> None:
        """Remove a directory with all that is in it, following no link; what cannot be removed stays.

        Raises:
            OSError: It cannot be looked at.
        """
        import shutil  # it costs each executor what few tasks need pay

        shutil.rmtree(_one(name), ignore_errors=True, dir_fd=self._fd)

    def unlink(self, name: str) -> None:
        """Remove a file, or a link itself; harmless if nothing has the name.

        Raises:
            OSError: A directory has it.
        """
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_one(name), dir_fd=self._fd)

    def make_point(self, names: Sequence[str], *, is_file: bool) -> None:
        """What something can be mounted over, with the directories above it; they are the owner's of what they are in.

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
        """uid and gid of whose what is made here shall be: who is admitted, else the owner."""
        owner = os.fstat(self._fd)
        try:
            acl = os.getxattr(self._fd, _ACL)
        except OSError:  # none, or none can be
            return owner.st_uid, owner.st_gid
        named = [uid for tag, _, uid in struct.iter_unpack("<HHI", acl[4:]) if tag == _USER]
        return (named[0], -1) if named else (owner.st_uid, owner.st_gid)

    # --- what comes from a nested sandbox

    def take(self, source: "Sandbox", but: Collection[str]) -> str | None:
        """Move all of another directory here, by name; nothing that is here is replaced, and no link is followed.

        Returns:
            A name that is taken here already, and then nothing is moved; None: all is here.

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
        """Give a file of another directory the same name here, in place of what has it; whether that was done: it is
        not if what has the name there is no file any more, or is known by another name, too.

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
        """Link what is held, not what has a name by now (proc(5), linkat(2) with AT_SYMLINK_FOLLOW)."""
        new = _new_name(name)
        os.link(f"/proc/self/fd/{fd}", new, dst_dir_fd=self._fd, follow_symlinks=True)
        os.rename(new, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)


class NotAFile(OSError):
    """What has a name in a sandbox is no regular file of one name: it is not opened."""

    def __init__(self, name: str) -> None:
        """`name`: in its directory."""
        super().__init__(errno.EPERM, f"{name} in the sandbox is no file of its own")


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
    if made and os.fstat(directory._fd).st_uid == os.geteuid():  # else the user put its own there since
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
    """The list that leaves a mode as it is, but for others' writing, and lets one more user in. Its mask is what the
    mode then shows of the group (acl(5))."""
    group = mode >> 3 & 5
    entries = (
        (_USER_OBJ, mode >> 6 & 7, _NO_ID),
        (_USER, may, uid),
        (_GROUP_OBJ, group, _NO_ID),
        (_MASK, may | group, _NO_ID),
        (_OTHER, mode & 5, _NO_ID),
    )
    return struct.pack("<I", _VERSION) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
