"""A task's view of the host's file system: a mount namespace in which /dev holds only the devices that it may
use.

It is set up by the process that becomes the task, and vanishes with its last process, so nothing must be
undone. Sources: mount_namespaces(7), mount(2), mount_setattr(2).
"""

import contextlib
import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

from isolator.devices.cgroups import unescaped
from isolator.devices.rules import STANDARD
from isolator.host.sandbox import Sandbox
from mesos_gpu.policy.gpus.volume_paths import VOLUME_PATH

CLONE_NEWNS, CLONE_NEWIPC = 0x00020000, 0x08000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19
AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = -100, 0x8000, 1
_SYS_MOUNT_SETATTR: Final = 442  # on every architecture
_CGROUPS: Final = "/sys/fs/cgroup"
OWN_CGROUP2: Final = "/run/mesos-gpu/cgroup2"
_KEPT: Final = (
    "shm",
    "mqueue",
    "hugepages",
)  # directories of the host's /dev that stay: processes of a host share memory by them
#: Directories that all users of a host write to.
PRIVATE: Final = ("/tmp", "/var/tmp", "/dev/shm")  # nosec B108 # a task gets its own there
#: Directories of the system that may contain further ones (hier(7)): lock files, spools, crash reports.
SYSTEM: Final = ("/run", "/var", "/var/spool")
_OWN: Final = ("shm", "mqueue")
_LINKS: Final = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY
_PLAIN: Final = MS_NOSUID | MS_NODEV  # no set-user-ID programs, no device nodes
_PASSIVE: Final = _PLAIN | MS_NOEXEC  # and no programs at all
_READ_ONLY: Final = MS_REMOUNT | MS_BIND | MS_RDONLY
_TREE: Final = MS_BIND | MS_REC
_libc: Final = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Call mount(2).

    Raises:
        OSError: The kernel refuses.
    """
    _call(
        "mount", source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode()
    )


def enter(*, ipc: bool = False) -> None:
    """Enter a mount namespace of this process' own; later mounts of the host still appear in it, but not the
    other way round.

    Args:
        ipc: Whether shared memory, semaphores and queues of System V, and POSIX queues, are its own as well.

    Raises:
        OSError: The kernel refuses.
    """
    _call("unshare", CLONE_NEWNS | (CLONE_NEWIPC if ipc else 0))
    mount("none", "/", "none", MS_REC | MS_SLAVE)


def make_dev(nodes: Sequence[tuple[str, str]], *, own: bool = False) -> None:
    """Mount a new /dev over the host's: standard devices, terminals, shared memory, and these nodes.

    Args:
        nodes: Path of each node below /dev, and path of the node on the host.
        own: Whether shared memory and queues are the task's own: `make_private` mounts the memory later,
            queues are of the namespace that was entered.

    Raises:
        OSError: The kernel refuses.
    """
    kept = {
        name: os.open(f"/dev/{name}", os.O_PATH)
        for name in _KEPT
        if os.path.isdir(f"/dev/{name}") and not (own and name in _OWN)
    }
    log = os.readlink("/dev/log") if os.path.islink("/dev/log") else None
    sources = [(seen, os.open(path, os.O_PATH)) for seen, path in nodes]
    mount("tmpfs", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k")
    for device in STANDARD:
        os.mknod(device.path, stat.S_IFCHR, os.makedev(device.major, device.minor))
        os.chmod(device.path, 0o666)  # nosec B103 # null, zero and the like are open to all, as on hosts
    for name, target in (_LINKS | ({"log": log} if log else {})).items():
        os.symlink(target, f"/dev/{name}")
    os.mkdir("/dev/pts")
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    for name, fd in kept.items():
        os.mkdir(f"/dev/{name}")
        mount(f"/proc/self/fd/{fd}", f"/dev/{name}", "none", _TREE)
    if own:
        os.mkdir("/dev/shm", 0o755)  # nosec B108 # in the tmpfs mounted above
        os.mkdir("/dev/mqueue")
        with contextlib.suppress(FileNotFoundError, OSError):
            mount("mqueue", "/dev/mqueue", "mqueue", _PASSIVE)
    for seen, fd in sources:
        Path(seen).parent.mkdir(parents=True, exist_ok=True)
        Path(seen).touch()
        mount(f"/proc/self/fd/{fd}", seen, "none", MS_BIND)
    for fd in (*kept.values(), *(fd for _, fd in sources)):
        os.close(fd)


def make_private(mib: int, sandbox: str) -> dict[str, int]:
    """Mount an empty tmpfs over /tmp, /var/tmp, /dev/shm and the directories that `writable_by_all` finds.

    All mount points share one tmpfs, which ends with the mount namespace. A sandbox below one of them stays
    visible.

    Args:
        mib: Size in MiB; 0 for half of the memory, the kernel's default.
        sandbox: Sandbox of the task.

    Returns:
        Directories that were covered, by name, as open descriptors.

    Raises:
        OSError: The kernel refuses.
    """
    held = os.open(sandbox, _DIRECTORY)
    real = os.path.realpath(sandbox)
    covered: dict[str, int] = {
        place: os.open(place, _DIRECTORY)
        for place in (*PRIVATE, *writable_by_all())
        if os.path.realpath(place) == place  # /var/tmp may be a link to /tmp
    }
    first = next(iter(covered))
    mount("tmpfs", first, "tmpfs", _PLAIN, "mode=755" + (f",size={mib}m" if mib else ""))
    for place in covered:
        path = f"{first}/{place.replace('/', '-')}"
        os.mkdir(path)
        os.chmod(path, 0o1777)  # nosec B103 # sticky, and of this task alone
    for place in reversed(covered):  # the first one covers itself, so it is mounted last
        mount(f"{first}/{place.replace('/', '-')}", place, "none", MS_BIND)
    if any(real.startswith(f"{place}/") for place in covered):
        Path(real).mkdir(parents=True)
        mount(f"/proc/self/fd/{held}", real, "none", _TREE)
    os.close(held)
    return covered


def writable_by_all(roots: Iterable[str] = SYSTEM) -> list[str]:
    """Return the system directories in which every user may create files, such as /run/lock on Debian.

    Tasks could exchange files there. Each root and the directories directly below it are checked; links are not
    followed.
    """
    places: dict[str, None] = {}
    for root in roots:
        below = _directories(root)
        for path, status in [*below, *(inner for at, _ in below for inner in _directories(at))]:
            if status.st_mode & 0o002 and not path.startswith(
                tuple(f"{root_path}/" for root_path in (*PRIVATE, *places))
            ):
                places[path] = None
    return [path for path in places if path not in PRIVATE]


def _directories(path: str) -> list[tuple[str, os.stat_result]]:
    """Return path and status of the directories in a directory.

    Directories that root cannot stat are left out: they are FUSE mounts of other users, which tasks cannot access.
    """
    directories: list[tuple[str, os.stat_result]] = []
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    directories.append((entry.path, entry.stat(follow_symlinks=False)))
    return directories


def hide(places: Iterable[str], sandbox: str) -> None:
    """Mount an empty read-only file system over directories with files of others; a sandbox below one of them
    stays visible.

    Args:
        places: Directories, without symbolic links; those that do not exist are skipped.
        sandbox: Sandbox of the task.

    Raises:
        OSError: The kernel refuses.
    """
    real = os.path.realpath(sandbox)
    for place in filter(os.path.lexists, places):
        own = os.open(real, _DIRECTORY)
        mount("tmpfs", place, "tmpfs", _PASSIVE, "mode=755,size=64k")
        if real.startswith(f"{place}/"):
            Path(real).mkdir(parents=True)
            mount(f"/proc/self/fd/{own}", real, "none", _TREE)
        mount("none", place, "none", _READ_ONLY | _PASSIVE)
        os.close(own)


def mount_volume(build: str) -> None:
    """Mount a driver volume at /usr/local/nvidia, read-only, without set-user-ID programs and device nodes.

    Raises:
        OSError: The kernel refuses.
    """
    fd = os.open(build, _DIRECTORY)
    if not os.path.isdir(VOLUME_PATH):
        _make_room(*os.path.split(VOLUME_PATH))
    mount(f"/proc/self/fd/{fd}", VOLUME_PATH, "none", MS_BIND)
    mount("none", VOLUME_PATH, "none", _READ_ONLY | _PLAIN)
    os.close(fd)


def mount_paths(
    mounts: Iterable[tuple[str, str, bool]],
    sandbox: str,
    covered: Mapping[str, int] | None = None,
    identities: Iterable[Sequence[int]] = (),
) -> None:
    """Mount paths of the host for the task, without set-user-ID programs and device nodes.

    Args:
        mounts: Path on the host, without symbolic links; target, absolute and existing, or relative to the
            sandbox, where it is made; whether it is read-only.
        sandbox: Sandbox of the task.
        covered: Result of `make_private`: sources are looked up below the covered directories, targets are
            made if need be.
        identities: Device and inode that each source must have; empty for no check.

    Raises:
        OSError: The kernel refuses, or a path was exchanged for another; the text names the path.
    """
    sandbox = os.path.realpath(sandbox)
    for (source, target, read_only), identity in zip_longest(mounts, identities):
        try:
            _mount_path(
                source,
                target if target.startswith("/") else f"{sandbox}/{target}",
                sandbox,
                read_only,
                covered or {},
                identity,
            )
        except OSError as error:
            raise OSError(error.errno, f"{source} at {target}: {error.strerror}") from error


def _mount_path(
    source: str,
    target: str,
    sandbox: str,
    read_only: bool,
    covered: Mapping[str, int],
    identity: Sequence[int] | None,
) -> None:
    with held(source, {} if source.startswith(sandbox + "/") else covered) as outside:
        status = os.fstat(outside)
        if identity is not None and [status.st_dev, status.st_ino] != [*identity]:
            raise OSError(errno.ESTALE, "the source was exchanged for another file")
        is_file = not stat.S_ISDIR(status.st_mode)
        # Flags of the source's file system: a remount would drop those that are not repeated (ST_* are as
        # MS_*).
        kept = os.fstatvfs(outside).f_flag & (MS_RDONLY | _PASSIVE)
        # In the sandbox, or where no process of the task has been yet and everything is ours.
        for place in (sandbox, *covered):
            if target.startswith(place + "/"):
                with Sandbox(place) as above:
                    above.make_point(target[len(place) + 1 :].split("/"), is_file=is_file)
                break
        with held(target) as inside:
            mount(f"/proc/self/fd/{outside}", f"/proc/self/fd/{inside}", "none", MS_BIND)
    flags = MS_REMOUNT | MS_BIND | _PLAIN | kept | (MS_RDONLY if read_only else 0)
    with held(target) as mounted:  # the topmost mount; if the path is no mount, the kernel refuses
        mount("none", f"/proc/self/fd/{mounted}", "none", flags)


@contextlib.contextmanager
def held(path: str, covered: Mapping[str, int] | None = None) -> Iterator[int]:
    """Open a file by a path without symbolic links; below a covered directory, by that directory's
    descriptor.

    Raises:
        OSError: The path has a symbolic link by now, or is gone.
    """
    for place, below in (covered or {}).items():
        if path.startswith(place + "/"):
            fd = os.open(path[len(place) + 1 :], os.O_PATH, dir_fd=below)
            break
    else:
        fd = os.open(path, os.O_PATH)
    try:
        if os.readlink(f"/proc/self/fd/{fd}") != path:
            raise OSError(errno.ELOOP, "the path has become a symbolic link")
        yield fd
    finally:
        os.close(fd)


def _make_room(parent: str, name: str) -> None:
    """Make a mount point that the host does not have, on a file system with the parent's entries and one
    more.
    """
    before = os.open(parent, os.O_DIRECTORY)
    mount("tmpfs", parent, "tmpfs", _PLAIN, "mode=755,size=64k")
    for entry in os.scandir(before):
        seen = f"{parent}/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.name, dir_fd=before), seen)
            continue
        if entry.is_dir():
            os.mkdir(seen)
        else:
            Path(seen).touch()
        mount(f"/proc/self/fd/{before}/{entry.name}", seen, "none", _TREE)
    os.mkdir(f"{parent}/{name}")
    mount("none", parent, "none", MS_REMOUNT | MS_RDONLY | _PLAIN)
    os.close(before)


def mount_cgroup2() -> None:
    """Mount the hierarchy of cgroup version 2 for our own use, on hosts where it is not mounted.

    Raises:
        OSError: The kernel does not have it (before 4.5), or refuses.
    """
    os.makedirs(OWN_CGROUP2, mode=0o700, exist_ok=True)
    mount("none", OWN_CGROUP2, "cgroup2", _PASSIVE)


def freeze_cgroups(*, hides: bool = False) -> None:
    """Make cgroups read-only in all their mounts, so that not even a root task leaves its cgroup, or changes
    its limits.

    Args:
        hides: Whether to hide cgroups of version 2, too. With a descriptor of one of them, even of a
            read-only mount, root can start a process in it (clone3(2), CLONE_INTO_CGROUP).

    Raises:
        OSError: The kernel refuses.
    """
    _freeze_standard()
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        if not after.startswith(("cgroup ", "cgroup2 ")):
            continue
        device, point = before.split()[2], unescaped(before.split()[4])
        if hides and after.startswith("cgroup2 "):
            mount("tmpfs", point, "tmpfs", _PASSIVE | MS_RDONLY, "mode=555,size=4k")
        elif _is_on_top(point, device) and not os.statvfs(point).f_flag & os.ST_RDONLY:
            mount("none", point, "none", _READ_ONLY | _PASSIVE)


def _is_on_top(point: str, device: str) -> bool:
    """Return whether a mount point shows the file system of a device, and not one that was mounted over it."""
    try:
        number = os.stat(point, follow_symlinks=False).st_dev
    except (FileNotFoundError, NotADirectoryError):
        return False
    return f"{os.major(number)}:{os.minor(number)}" == device


def _freeze_standard() -> None:
    if os.path.ismount(OWN_CGROUP2):
        mount("none", OWN_CGROUP2, "none", _READ_ONLY | _PASSIVE)
    attributes = struct.pack("=QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    done = _libc.syscall(
        _SYS_MOUNT_SETATTR, AT_FDCWD, _CGROUPS.encode(), AT_RECURSIVE, attributes, len(attributes)
    )
    if done == 0:
        return
    if ctypes.get_errno() != errno.ENOSYS:
        raise OSError(ctypes.get_errno(), f"mount_setattr: {os.strerror(ctypes.get_errno())}")
    for line in (
        Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    ):  # before Linux 5.12
        point = line.split()[4]
        if point == _CGROUPS or point.startswith(_CGROUPS + "/"):
            mount("none", point, "none", _READ_ONLY | _PASSIVE)
