"""Program that mounts files of secrets in a container; `handing` runs it in an interpreter of its own, as
root, before anything of the container's task has run.

The file system is made and filled while it is mounted nowhere, and then attached in the container's mount
namespace: no path leads to it before. It ends with the container, whatever else dies before. Sources:
fsopen(2), fsconfig(2), fsmount(2), move_mount(2), since Linux 5.2; mount_setattr(2), since 5.12; setns(2).
"""

import ctypes
import errno
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from isolator.secrets import mount

_MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 429, 430, 431, 432, 442  # on every architecture
_CLOEXEC = 1  # FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC
_SET_FLAG, _SET_STRING, _CREATE = 0, 1, 6  # FSCONFIG_*
_RDONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8  # MOUNT_ATTR_*
_EMPTY_PATHS = 0x4 | 0x40  # MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH
_AT_EMPTY_PATH = 0x1000
_CLONE_NEWNS = 0x00020000
_libc = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def detached(files: dict[str, bytes], uid: int, gid: int) -> int:
    """Make a file system with these files that is mounted nowhere; return a descriptor of its directory.

    Raises:
        OSError: The kernel does not have these calls, or refuses.
    """
    context = _call(_FSOPEN, b"tmpfs", _CLOEXEC)
    for key, value in mount.options(files, uid, gid).items():
        _call(_FSCONFIG, context, _SET_STRING, key.encode(), value.encode(), 0)
    try:
        _call(_FSCONFIG, context, _SET_FLAG, b"noswap", None, 0)
    except OSError as error:  # before Linux 6.4
        if error.errno != errno.EINVAL:
            raise
    _call(_FSCONFIG, context, _CREATE, None, None, 0)
    top = _call(_FSMOUNT, context, _CLOEXEC, _NOSUID | _NODEV | _NOEXEC)
    os.close(context)
    mount.fill(top, files, uid, gid)
    attributes = (ctypes.c_uint64 * 4)(_RDONLY, 0, 0, 0)
    try:
        _call(_MOUNT_SETATTR, top, b"", _AT_EMPTY_PATH, attributes, ctypes.sizeof(attributes))
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
    return top


def attach(top: int, namespace: int, root: int, place: tuple[int, int]) -> None:
    """Mount the file system in a container, over the directory with that device and inode.

    Raises:
        OSError: Another directory is there, or the kernel refuses.
    """
    if _libc.setns(namespace, _CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.fchdir(root)
    os.chroot(".")
    at = os.open(mount.PLACE, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(at)
    if (status.st_dev, status.st_ino) != place:
        raise OSError(errno.EXDEV, f"the container has another directory at {mount.PLACE}")
    _call(_MOVE_MOUNT, top, b"", at, b"", _EMPTY_PATHS)


def main() -> None:
    """Carry out the order on standard input; print an error to standard output."""
    with open(0, "rb", closefd=False) as file:
        order = json.load(file)
    files = {path: bytes.fromhex(value) for path, value in order["files"].items()}
    uid, gid = order["user"]
    try:
        top = detached(files, uid, gid)
        attach(top, order["namespace"], order["root"], tuple(order["place"]))
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        mount.link(list(files), order["sandbox"])
    except OSError as error:
        os.write(1, str(error.strerror).encode())
        os._exit(1)


if __name__ == "__main__":
    main()
