"""The root file system of a task with an image: its layers by overlayfs, with the task's /dev, /proc, /sys and mounts,
in the task's own mount namespace.

The process that becomes the task assembles it where only root can reach it, and then changes its root to it
(pivot_root(2)). The image is a tenant's: what it has at a mount point, also a symbolic link, is resolved inside its own
root (openat2(2), RESOLVE_IN_ROOT), and nothing of it is executed before.

Sources: overlayfs.rst of the kernel; proc(5) for hidepid; mount_setattr(2), pivot_root(2).
"""

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from isolator.devices import view
from isolator.host.beneath import open_below_root
from isolator.host.sandbox import Sandbox

MAX_LAYERS: Final = 200  # Docker builds 127 at most; the options of mount(2) name each of them
UPPER, WORK, MERGED = "upper", "work", "merged"  # directories of a root
STAGE: Final = "stage"  # in the same directory: place where a mount gets its flags
#: Directories of the host's /proc that are made read-only: their switches check for uid 0, and for no
#: capability.
READ_ONLY: Final = ("bus", "fs", "irq", "sys", "sysrq-trigger")
#: Paths of /proc and /sys that show facts of the whole host, and are covered.
HIDDEN_PROC: Final = (
    "acpi",
    "asound",
    "dynamic_debug",
    "kcore",
    "keys",
    "latency_stats",
    "sched_debug",
    "scsi",
    "timer_list",
    "timer_stats",
)
HIDDEN_SYS: Final = ("firmware", "devices/virtual/powercap")
#: Files of the host's /etc that are copied, as the task has the host's network.
NAMES: Final = ("hosts", "hostname", "resolv.conf")
MAX_NAMES_BYTES: Final = 1 << 20
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}  # by machine of uname(2)
_MNT_DETACH: Final = 2
_MS_MOVE: Final = 8192
_MS_PRIVATE: Final = 1 << 18
_PLAIN: Final = view.MS_NOSUID | view.MS_NODEV
_PASSIVE: Final = _PLAIN | view.MS_NOEXEC
_MAX_OPTIONS: Final = 4095  # bytes of the options of mount(2)
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY
_READ_ONLY: Final = view.MS_REMOUNT | view.MS_BIND | view.MS_RDONLY
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class RootOrder:
    """Parts of the root of a task.

    Attributes:
        place: Directory of this root, with `UPPER`, `WORK` and `MERGED` in it.
        layers: Directories of the layers, the lowest first.
        sandbox: The task's directory on the host.
        inside: Path of the sandbox in the image.
        mounts: Path on the host, path in the image, and whether it is read-only; first those of the job, then
            those of the executor, which are mounted before.
        identities: Device and inode of each mount of the job, in the order of `mounts`.
        shm_mib: Size of its /dev/shm in MiB; 0 for half of the memory.
        directory: Directory in which the command starts; made if it does not exist.
    """

    place: str
    layers: tuple[str, ...]
    sandbox: str
    inside: str
    mounts: tuple[tuple[str, str, bool], ...]
    identities: tuple[tuple[int, int], ...]
    shm_mib: int
    directory: str


class ImageRoot:
    """Root of a task while it is assembled.

    Args:
        order: Fields of a `RootOrder`.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._order = order
        self._merged = f"{order['place']}/{MERGED}"
        self._root = -1

    def overlay(self) -> None:
        """Mount the layers, with a directory of the task's own for what it writes.

        Raises:
            OSError: The kernel refuses.
        """
        order = self._order
        opened = [os.open(path, _DIRECTORY | os.O_CLOEXEC) for path in reversed(order["layers"])]
        lower = ":".join(f"/proc/self/fd/{fd}" for fd in opened)
        options = f"lowerdir={lower},upperdir={order['place']}/{UPPER},workdir={order['place']}/{WORK}"
        if len(options) > _MAX_OPTIONS:
            raise OSError(errno.E2BIG, f"{len(opened)} layers are more than this kernel can mount")
        view.mount("overlay", self._merged, "overlay", _PLAIN, options)
        for fd in opened:
            os.close(fd)
        self._root = os.open(self._merged, _DIRECTORY | os.O_CLOEXEC)

    def fill(self) -> None:
        """Mount /dev, /proc, /sys, the sandbox and all mounts of the task in the image.

        Raises:
            OSError: The image has something in the way, or the kernel refuses; the text names the path.
        """
        order = self._order
        # First, so that links of the image lead into the image, and to nothing that is mounted.
        for name in NAMES:
            self._copy_name(name)
        os.close(self._point(order["directory"], is_file=False))
        self._fill_proc()
        self._fill_sys()
        size = f",size={order['shm_mib']}m" if order["shm_mib"] else ""
        view.mount("tmpfs", "/dev/shm", "tmpfs", _PASSIVE, f"mode=1777{size}")  # nosec B108 # the task's own
        view.mount("/dev", self._directory_of("dev"), "none", view.MS_BIND | view.MS_REC)
        count = len(order["identities"])
        # Those of the executor first, so that links of an image lead none of them into files that other tasks
        # write.
        own = [
            (target, self._bind(source, target, (), read_only=read_only))
            for source, target, read_only in order["mounts"][count:]
        ]
        self._bind(order["sandbox"], order["inside"], (), read_only=False)
        for (source, target, read_only), identity in zip(order["mounts"], order["identities"], strict=False):
            self._bind(source, target, identity, read_only=read_only)
        for target, status in own:
            self._see_shown(target, status)

    def enter(self) -> None:
        """Change the root of this process to the assembled one; the host's is out of reach then.

        Raises:
            OSError: The kernel refuses.
        """
        number = _PIVOT_ROOT.get(os.uname().machine)
        if number is None:
            raise OSError(errno.ENOSYS, f"images are not supported on {os.uname().machine}")
        os.fchdir(self._root)
        if _libc.syscall(number, b".", b"."):
            raise OSError(ctypes.get_errno(), f"pivot_root: {os.strerror(ctypes.get_errno())}")
        if _libc.umount2(b".", _MNT_DETACH):
            raise OSError(ctypes.get_errno(), f"umount2: {os.strerror(ctypes.get_errno())}")
        os.chdir("/")
        view.mount("none", "/", "none", view.MS_REC | _MS_PRIVATE)
        os.close(self._root)

    # --- content of the root

    def _fill_proc(self) -> None:
        """Mount a /proc that shows the task only processes that it may trace, which are its own."""
        proc = self._directory_of("proc")
        try:
            view.mount("proc", proc, "proc", _PASSIVE, "hidepid=ptraceable")
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            view.mount("/proc", proc, "none", view.MS_BIND)  # before Linux 5.8
        for name in READ_ONLY:
            if os.path.exists(path := f"{proc}/{name}"):
                view.mount(path, path, "none", view.MS_BIND)
                view.mount("none", path, "none", _READ_ONLY | _PASSIVE)
        for name in HIDDEN_PROC:
            _cover(f"{proc}/{name}")

    def _fill_sys(self) -> None:
        """Mount the host's /sys and its cgroups read-only, but nothing else that is mounted there."""
        sys = self._directory_of("sys")
        view.mount("/sys", sys, "none", view.MS_BIND)
        view.mount("none", sys, "none", _READ_ONLY | _PASSIVE)
        for name in HIDDEN_SYS:
            _cover(f"{sys}/{name}")
        if os.path.isdir(cgroups := f"{sys}/fs/cgroup"):  # read-only already
            view.mount("/sys/fs/cgroup", cgroups, "none", view.MS_BIND | view.MS_REC)

    def _bind(
        self, source: str, target: str, identity: "tuple[int, int] | tuple[()]", *, read_only: bool
    ) -> os.stat_result:
        """Mount a path of the host at a path of the image, and return its status.

        The mount has all its flags before it is in the image: other tasks exchange what leads to the target, and a
        second look at the target would find another mount.
        """
        outside = os.open(source, os.O_PATH | os.O_CLOEXEC)
        try:
            status = os.fstat(outside)
            if identity and [status.st_dev, status.st_ino] != [*identity]:
                raise OSError(errno.ESTALE, f"{source} was exchanged for another")
            # A remount would drop flags of the file system of the source unless they are repeated (ST_* are
            # as MS_*).
            kept = os.fstatvfs(outside).f_flag & (view.MS_RDONLY | _PASSIVE)
            flags = _PLAIN | kept | (view.MS_RDONLY if read_only else 0)
            self._mount_at(target, outside, flags, is_file=not stat.S_ISDIR(status.st_mode))
        except OSError as error:
            raise OSError(error.errno, f"{source} at {target}: {error.strerror}") from error
        finally:
            os.close(outside)
        return status

    def _mount_at(self, target: str, outside: int, flags: int, *, is_file: bool) -> None:
        """Mount an open path of the host at a path of the image."""
        stage = f"{self._order['place']}/{STAGE}"  # only root reaches it
        if is_file:
            os.close(os.open(stage, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        else:
            os.mkdir(stage, 0o700)
        view.mount(f"/proc/self/fd/{outside}", stage, "none", view.MS_BIND)
        view.mount("none", stage, "none", view.MS_REMOUNT | view.MS_BIND | flags)
        inside = self._point(target, is_file=is_file)
        try:
            # A mount over the root would hide the image from checks.
            if os.path.samestat(os.fstat(inside), os.fstat(self._root)):
                raise OSError(errno.EEXIST, "that is a link to the root of the image")
            view.mount(stage, f"/proc/self/fd/{inside}", "none", _MS_MOVE)
        finally:
            os.close(inside)
        (os.unlink if is_file else os.rmdir)(stage)

    def _see_shown(self, target: str, status: os.stat_result) -> None:
        """Check that no mount of the job hides one of the executor."""
        try:
            inside = open_below_root(target, self._root, os.O_PATH)
        except FileNotFoundError:
            inside = -1
        try:
            if inside < 0 or not os.path.samestat(os.fstat(inside), status):
                raise OSError(errno.ESTALE, f"a mount of the job hides {target}")
        finally:
            if inside >= 0:
                os.close(inside)

    def _directory_of(self, name: str) -> str:
        """Return the path of a directory right below the root, made in place of anything that is no
        directory.
        """
        path = f"{self._merged}/{name}"
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                return path
            os.unlink(path)
        os.mkdir(path, 0o755)
        return path

    def _point(self, path: str, *, is_file: bool) -> int:
        """Open a path of the image, made if it does not exist; links are followed in the image."""
        try:
            return self._made(path, is_file=is_file)
        except OSError as error:
            raise OSError(error.errno, f"{path}: {error.strerror}") from error

    def _made(self, path: str, *, is_file: bool) -> int:
        """Open a path of the image, and make it and its parents if they do not exist."""
        inside = self._order["inside"] + "/"
        if path.startswith(inside):  # a path in the sandbox is made as in every sandbox
            with Sandbox(self._order["sandbox"]) as sandbox:
                sandbox.make_point(path.removeprefix(inside).split("/"), is_file=is_file)
        with contextlib.suppress(FileNotFoundError):
            return open_below_root(path, self._root, os.O_PATH)
        above, _, name = path.rstrip("/").rpartition("/")
        directory = self._made(above or "/", is_file=False)
        try:
            if os.fstat(directory).st_dev != os.fstat(self._root).st_dev:
                raise OSError(errno.ENOENT, "no mount point is made in what is mounted", path)
            if _is_link(name, directory):  # a link of the image to a path that it does not have
                os.unlink(name, dir_fd=directory)
            if is_file:
                os.close(
                    os.open(
                        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=directory
                    )
                )
            else:
                os.mkdir(name, 0o755, dir_fd=directory)
        finally:
            os.close(directory)
        return open_below_root(path, self._root, os.O_PATH)

    def _copy_name(self, name: str) -> None:
        """Copy a file of the host's /etc into the image's, if the host has it."""
        try:
            with open(f"/etc/{name}", "rb") as file:
                text = file.read(MAX_NAMES_BYTES)
        except FileNotFoundError:
            return
        etc = self._point("/etc", is_file=False)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=etc)
            made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=etc)
            with open(made, "wb") as copy:
                copy.write(text)
        finally:
            os.close(etc)


def _is_link(name: str, directory: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    return False


def _cover(path: str) -> None:
    """Cover a directory or file by an empty one, if it exists."""
    if os.path.isdir(path):
        view.mount("tmpfs", path, "tmpfs", _PASSIVE | view.MS_RDONLY, "mode=755,size=4k")
    elif os.path.exists(path):
        view.mount("/dev/null", path, "none", view.MS_BIND)
