"""Limits on a running task's logs and disk: logs are cut at their limit and keep their names, and a sandbox
that exceeds its size ends the task.

A log is cut in place: its oldest part becomes a hole (fallocate(2)), as its first block says. So no process
is needed between the task and its file, offsets stay valid, and it works in the same way however the task
runs.
"""

import contextlib
import ctypes
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from isolator.executor.times import LogTimes
from isolator.host.sandbox import STREAMS, Sandbox
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.wire.mesos.cuts import HEAD_BYTES, head, is_mark

if TYPE_CHECKING:  # deferred: only tasks whose disk is measured need them
    import subprocess

    from mesos_gpu.model.jobs.mount import Mount

LIMIT: Final = "MESOS_GPU_LOG_LIMIT"  # limit of this host in MiB, which precedes the scheduler's
#: Seconds between two looks while the task writes to its logs. While it writes nothing, the interval grows to
#: MAX_LOOK_S: a look takes up to 1 ms of CPU time, and a host may have a thousand tasks.
LOOK_S: Final = 0.2
MAX_LOOK_S: Final = 1.0
_GROWTH: Final = 1.25
DISK_S: Final = 15.0  # default of --container_disk_watch_interval for Mesos' disk/du
FIRST_DISK_S: Final = 2.0
# pause until the next measurement of the disk, in multiples of the time that the last one took
_REST: Final = 10
_MIB: Final = 1 << 20
_MAX_MARK: Final = 4200  # bytes; the line contains one path
_LINE: Final = 1 << 16  # bytes in which the beginning of a line is searched
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h
_libc: Final = ctypes.CDLL(None, use_errno=True)


def limit_of(env: Mapping[str, str], asked_mib: int) -> int:
    """Return the MiB that each of a task's streams may keep; 0 for no limit.

    Args:
        env: Environment of the executor.
        asked_mib: Limit that the scheduler gives.

    Raises:
        BadConfiguration: This host's setting is not a number.
    """
    text = env.get(LIMIT, "")
    if not text:
        return asked_mib
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadConfiguration(
            f"{LIMIT} is {text!r}", remedy="set it to a number of MiB on this agent, or 0 for no limit"
        )
    return int(text)


def drop_mark(fd: int) -> None:
    """Empty a task's stderr if it contains nothing but the line of Mesos' containerizer (`is_mark`).

    Args:
        fd: Descriptor of the stream, before the task has started.
    """
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_MARK:
        return
    reading = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(reading, _MAX_MARK)
    finally:
        os.close(reading)
    if is_mark(text):
        os.ftruncate(fd, 0)


def volumes_of(own: Mapping[str, str], mounts: "Sequence[Mount]") -> list[tuple[str, str, int]]:
    """Return the persistent volumes among mounts, as `Upkeep` has them.

    Raises:
        BadConfiguration: The root of this host cannot be used.
    """
    if not any(mount.volume_mib for mount in mounts):
        return []
    from isolator.persistent.root import PersistentRoot

    root = PersistentRoot.of(own)
    if root is None:
        return []  # the run of the task refuses the volumes
    with root:
        return [
            (mount.target, root.path_of(mount.source), mount.volume_mib)
            for mount in mounts
            if mount.volume_mib
        ]


class Log:
    """File of a task's stream, held open.

    Args:
        sandbox: Sandbox of the task.
        name: Name of the file.
        limit_mib: MiB that the file may keep; 0 for no limit.
        linked: Whether the file may have several names, see `Sandbox.hold`.

    Raises:
        OSError: The file does not exist, or is not a regular file.
    """

    def __init__(self, sandbox: Sandbox, name: str, limit_mib: int, *, linked: bool = False) -> None:
        self.name, self._sandbox, self._limit_mib = name, sandbox, limit_mib
        self._fd = sandbox.hold(name, linked=linked)
        self._begin = 0  # offset of the part that is left

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def is_open_as(self, fd: int) -> bool:
        """Return whether a descriptor of this process is this file."""
        return os.path.samestat(os.fstat(fd), os.fstat(self._fd))

    @property
    def size(self) -> int:
        """Length in bytes, with the parts that were cut off."""
        return os.fstat(self._fd).st_size

    def look(self) -> str:
        """Cut the file if it is too long, and restore its name if another file has it; return what was
        restored, for the log.

        Raises:
            OSError: The kernel refuses.
        """
        self._cut()
        if self._sandbox.put_back(self.name, self._fd):
            return ""
        if not os.fstat(self._fd).st_nlink:
            gone, self._fd = self._fd, self._sandbox.hold(self.name)
            # closed last: if the new one cannot be opened, the number must not become another file's
            os.close(gone)
        return f"{self.name} was replaced by another file: restored"

    def _cut(self) -> None:
        status = os.fstat(self._fd)
        if status.st_size < self._begin:  # the task has truncated it
            self._begin = 0
        used = min(status.st_size - self._begin, status.st_blocks * 512)
        keeps = self._limit_mib * _MIB
        if not keeps or used <= keeps:
            return
        self._begin = self._line_at(max(status.st_size - keeps // 2, HEAD_BYTES))
        os.pwrite(self._fd, head(self._begin, self._limit_mib), 0)
        _punch(self._fd, HEAD_BYTES, self._begin - HEAD_BYTES)

    def _line_at(self, offset: int) -> int:
        """Return the offset of the next line, or this one if no line begins soon."""
        return offset + os.pread(self._fd, _LINE, offset).find(b"\n") + 1


def _punch(fd: int, offset: int, length: int) -> None:
    """Free blocks of a file, which then read as zeros (fallocate(2)); without support by the file system free
    all of it.
    """
    if length <= 0:
        return
    arguments = (ctypes.c_int(_PUNCH_HOLE | _KEEP_SIZE), ctypes.c_int64(offset), ctypes.c_int64(length))
    if _libc.fallocate64(fd, *arguments) == 0:
        return
    first, size = os.pread(fd, HEAD_BYTES, 0), os.fstat(fd).st_size
    os.ftruncate(fd, 0)
    os.ftruncate(fd, size)
    os.pwrite(fd, first, 0)


class Upkeep:
    """Upkeep of a task's logs and disk in a thread of its own; errors are logged and do not end the task.

    Args:
        sandbox: Sandbox directory of the task.
        limit_mib: MiB that each stream may keep; 0 for no limit.
        disk_mib: MiB that the sandbox may hold; 0 for no limit.
        volumes: Persistent volumes: path in the sandbox, path on the host, and MiB that each may hold.
        streams: Descriptors of the files that stdout and stderr must be. Files that a logger writes and
            rotates are left alone. They are opened at once, so make this before the task can replace them.
            None for a file that exists, and is linked, when the task has started.
        say: Function that logs a line.
        end: Function that is called once, with the reason why the task must end.
        more: Function for further checks, called some times a second.

    Raises:
        OSError: The directory does not exist.
    """

    def __init__(
        self,
        sandbox: str,
        *,
        limit_mib: int,
        disk_mib: int,
        volumes: Sequence[tuple[str, str, int]] = (),
        streams: Sequence[int | None],
        say: Callable[[str], None],
        end: Callable[[str], None],
        more: Callable[[], None],
    ) -> None:
        self._sandbox = Sandbox(sandbox)
        self._disk_mib, self._say, self._end, self._more = disk_mib, say, end, more
        self._volumes = volumes
        self._limit_mib, self._streams = limit_mib, dict(zip(STREAMS, streams, strict=True))
        self._logs = [*self._held()]
        self._times: LogTimes | None = None  # set at the start
        self._stop, self._told = threading.Event(), ""
        self._lock = threading.Lock()
        self._measure: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _held(self) -> Iterator[Log]:
        """Yield the logs whose files are open as the expected descriptors."""
        for name, fd in self._streams.items():
            with contextlib.suppress(OSError):
                if fd is not None:
                    log = Log(self._sandbox, name, self._limit_mib)
                    if log.is_open_as(fd):
                        yield log
                    else:
                        log.close()

    def _linked(self) -> Iterator[Log]:
        """Yield the logs that are found by name once the task has started."""
        for name, fd in self._streams.items():
            with contextlib.suppress(OSError):
                if fd is None:
                    yield Log(self._sandbox, name, self._limit_mib, linked=True)

    def _timed(self) -> LogTimes | None:
        """Return the notes of the times of output; None if they cannot be written."""
        try:
            return LogTimes(self._sandbox)
        except OSError as error:
            self._say(f"the times of log lines cannot be recorded: {error}")
            return None

    def start(self) -> None:
        """Start the thread; to be called once, after the start of the task."""
        self._logs += self._linked()
        self._times = self._timed() if self._logs else None
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and look at the logs once more; to be called when no process of the task runs any
        more.
        """
        with self._lock:
            self._stop.set()
            if self._measure is not None:
                self._measure.kill()
        if self._thread.ident is not None:  # not if the task never started
            self._thread.join()
        self._look(last=True)
        for log in self._logs:
            log.close()
        if self._times is not None:
            self._times.close()
        self._sandbox.close()

    def _work(self) -> None:
        disk_at = time.monotonic() + FIRST_DISK_S if self._disk_mib or self._volumes else float("inf")
        wait_s, size = LOOK_S, 0
        while not self._stop.wait(wait_s):
            before, size = size, self._look()
            wait_s = min(wait_s * _GROWTH, MAX_LOOK_S) if size == before else LOOK_S
            self._more()
            if (begun := time.monotonic()) >= disk_at:
                self._weigh()
                now = time.monotonic()
                disk_at = now + max(DISK_S, _REST * (now - begun))

    def _look(self, *, last: bool = False) -> int:
        """Look at each log; return the bytes that the task has written to them."""
        written = 0
        for log in self._logs:
            try:
                message = log.look()
                written += (size := log.size)
                if self._times is not None:
                    self._times.note(log.name, size, last=last)
            except OSError as error:
                message = f"{log.name} cannot be limited or restored: {error}"
            if message and message != self._told:
                self._told = message
                self._say(message)
        return written

    def _weigh(self) -> None:
        """Measure the sandbox and the volumes; end the task if one exceeds its size."""
        if self._disk_mib and (used_mib := self._excess_mib(self._sandbox.path, self._disk_mib)):
            detail = f"{self._disk_mib} MiB asked, {used_mib} used in its sandbox; ask for more with --disk"
            self._end(f"out of disk: {detail}")
            return
        for name, path, size_mib in self._volumes:
            if used_mib := self._excess_mib(path, size_mib):
                self._end(
                    f"out of disk: {used_mib} MiB used in the persistent volume {name} of {size_mib} MiB; its "
                    "data stays; let the next task remove some of it when it starts"
                )
                return

    def _excess_mib(self, path: str, most_mib: int) -> int:
        """Return the MiB of a directory if it exceeds its limit; 0 if not, or if the size is unknown."""
        used = self._kib(path)
        return 0 if used is None or used <= most_mib << 10 else -(-used // 1024)

    def _kib(self, path: str) -> int | None:
        """Return the size of a directory in KiB by du(1), which follows no links; None if du did not answer,
        as when killed.
        """
        import subprocess

        with self._lock:
            if self._stop.is_set():
                return None
            self._measure = subprocess.Popen(
                ["du", "-skx", "."],
                cwd=path,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        size = self._measure.communicate()[0].split(b"\t")[0]
        return int(size) if size.isdigit() else None
