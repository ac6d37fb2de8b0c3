"""Files of secrets: a tmpfs in the task's own mount namespace, which ends with the task's last process.

They are never on a disk and, where the kernel supports it, never swapped out. Lean: the process that becomes
a task imports it. Source: tmpfs(5), Documentation/filesystems/tmpfs.rst (noswap since Linux 6.4).
"""

import ctypes
import errno
import os
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

PLACE: Final = "/dev/mesos_gpu/secrets"
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 8, 32, 4096
_FLAGS: Final = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_libc: Final = ctypes.CDLL(None, use_errno=True)


def show(files: Mapping[str, bytes], uid: int, gid: int, place: str = PLACE) -> None:
    """Mount a read-only file system with the files, readable by one user only. This process is in the task's
    mount namespace.

    Args:
        files: Contents by relative path.
        uid, gid: Ids of the task's user.
        place: Mount point; made if need be.

    Raises:
        OSError: The kernel refuses.
    """
    os.makedirs(place, mode=0o755, exist_ok=True)
    given = ",".join(f"{key}={value}" for key, value in options(files, uid, gid).items())
    try:
        _mount("tmpfs", place, "tmpfs", _FLAGS, f"{given},noswap")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _mount("tmpfs", place, "tmpfs", _FLAGS, given)
    top = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fill(top, files, uid, gid)
    finally:
        os.close(top)
    _mount("none", place, "none", _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _FLAGS, "")


def options(files: Mapping[str, bytes], uid: int, gid: int) -> dict[str, str]:
    """Return the options of a file system with room for exactly these files."""
    directories = _directories(files)
    pages = sum(-(-len(value) // _PAGE) for value in files.values()) + len(directories) + 1
    inodes = len(files) + len(directories) + 1  # one more for its root
    return {
        "mode": "500",
        "uid": str(uid),
        "gid": str(gid),
        "size": str(pages * _PAGE),
        "nr_inodes": str(inodes + 1),
    }


def fill(top: int, files: Mapping[str, bytes], uid: int, gid: int) -> None:
    """Write the files to an open directory, readable by one user."""
    for directory in sorted(_directories(files)):
        os.mkdir(directory, 0o500, dir_fd=top)
        os.chown(directory, uid, gid, dir_fd=top)
    for path, value in files.items():
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400, dir_fd=top)
        with os.fdopen(made, "wb") as opened:
            opened.write(value)
            os.fchown(made, uid, gid)


def _directories(files: Mapping[str, bytes]) -> set[str]:
    return {str(above) for path in files for above in PurePosixPath(path).parents} - {"."}


def link(paths: Mapping[str, bytes] | list[str], sandbox: str, place: str = PLACE) -> None:
    """Link the files into the sandbox; to be called as the task's user, because the sandbox is the task's.

    Raises:
        OSError: The sandbox has another entry there.
    """
    for path in paths:
        where, target = os.path.join(sandbox, path), f"{place}/{path}"
        os.makedirs(os.path.dirname(where), exist_ok=True)
        try:
            os.symlink(target, where)
        except FileExistsError:
            if not os.path.islink(where) or os.readlink(where) != target:
                raise


def _mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    arguments = source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode()
    if _libc.mount(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"mount of a file system for secrets: {os.strerror(number)}")
