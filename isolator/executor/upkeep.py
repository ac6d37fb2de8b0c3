"""A running task's output and disk, looked after: logs keep within their limit and under their names, and a sandbox
that is larger than what was asked for ends its task.

A log is cut in place: its oldest part becomes a hole (fallocate(2)), and its first block says so. So it takes no
process between the task and its file, an offset stays what it is, and it is the same however the task runs.
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

if TYPE_CHECKING:  # it costs each executor what only one whose disk is measured need pay
    import subprocess

    from mesos_gpu.model.jobs.mount import Mount

LIMIT: Final = "MESOS_GPU_LOG_LIMIT"  # of this host, in MiB; it comes before the scheduler's
#: Seconds between two looks while the task writes to its logs. While it writes nothing, the interval grows to
#: MAX_LOOK_S: a look takes up to 1 ms of CPU time, and a host may have a thousand tasks.
LOOK_S: Final = 0.2
MAX_LOOK_S: Final = 1.0
_GROWTH: Final = 1.25
DISK_S: Final = 15.0  # as --container_disk_watch_interval of Mesos' disk/du, by default
FIRST_DISK_S: Final = 2.0
_REST: Final = 10  # times what a look at the disk took, until the next
_MIB: Final = 1 << 20
_MAX_MARK: Final = 4200  # bytes: the line has one path
_LINE: Final = 1 << 16  # how far the beginning of a line is looked for
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h
_libc: Final = ctypes.CDLL(None, use_errno=True)


def limit_of(env: Mapping[str, str], asked_mib: int) -> int:
    """MiB that each of a task's streams may keep; 0: all.

    Args:
        env: The executor's environment.
        asked_mib: What the scheduler says.

    Raises:
        BadConfiguration: This host's setting is no number.
    """
    text = env.get(LIMIT, "")
    if not text:
        return asked_mib
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadConfiguration(
            f"{LIMIT} is {text!r}", remedy="set it to a number of MiB on this agent; 0: no limit"
        )
    return int(text)


def drop_mark(fd: int) -> None:
    """Empty a task's stderr that has nothing but the line of Mesos' containerizer, as of `is_mark`.

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
    if not any(each.volume_mib for each in mounts):
        return []
    from isolator.persistent.root import PersistentRoot

    root = PersistentRoot.of(own)
    if root is None:
        return []  # the run of the task refuses the volumes
    with root:
        return [
            (each.target, root.path_of(each.source), each.volume_mib) for each in mounts if each.volume_mib
        ]


class Log:
    """A stream's file, held open."""

    def __init__(self, sandbox: Sandbox, name: str, limit_mib: int, *, linked: bool = False) -> None:
        """Nothing is cut yet. `linked`: as of `Sandbox.hold`.

        Raises:
            OSError: It is not there, or no file.
        """
        self.name, self._sandbox, self._limit_mib = name, sandbox, limit_mib
        self._fd = sandbox.hold(name, linked=linked)
        self._begin = 0  # of what is left

    def close(self) -> None:
        """Let go of it."""
        os.close(self._fd)

    def is_open_as(self, fd: int) -> bool:
        """Whether that is this file."""
        return os.path.samestat(os.fstat(fd), os.fstat(self._fd))

    @property
    def size(self) -> int:
        """Bytes from its beginning to its end, with those that were cut off."""
        return os.fstat(self._fd).st_size

    def look(self) -> str:
        """Put its name back if something else has it, and cut it if it is too long; what had to be done, for a log.

        Raises:
            OSError: The kernel refuses.
        """
        self._cut()
        if self._sandbox.put_back(self.name, self._fd):
            return ""
        if not os.fstat(self._fd).st_nlink:
            gone, self._fd = self._fd, self._sandbox.hold(self.name)
            os.close(gone)  # not before: if the new one cannot be had, the number must be no other file's
        return f"something else was in place of {self.name}: put back"

    def _cut(self) -> None:
        status = os.fstat(self._fd)
        if status.st_size < self._begin:  # its task has truncated it
            self._begin = 0
        used = min(status.st_size - self._begin, status.st_blocks * 512)
        keeps = self._limit_mib * _MIB
        if not keeps or used <= keeps:
            return
        self._begin = self._line_at(max(status.st_size - keeps // 2, HEAD_BYTES))
        os.pwrite(self._fd, head(self._begin, self._limit_mib), 0)
        _punch(self._fd, HEAD_BYTES, self._begin - HEAD_BYTES)

    def _line_at(self, offset: int) -> int:
        """Where the next line begins, if it does soon."""
        return offset + os.pread(self._fd, _LINE, offset).find(b"\n") + 1


def _punch(fd: int, offset: int, length: int) -> None:
    """Give blocks back; what is read there is zero (fallocate(2)). A file system that cannot do it loses all."""
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
    """The upkeep of a task, on a thread of its own. What goes wrong in it ends no task, but is told."""

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
        """Nothing is done yet.

        Args:
            sandbox: The task's directory.
            limit_mib: What each stream may keep; 0: all.
            disk_mib: What the sandbox may hold; 0: all that there is.
            volumes: Persistent volumes: path in the sandbox, path on the host, and MiB that each may hold.
            streams: Of stdout and stderr the number of this process' file that it must be; of a logger that writes
                and rotates files of its own this keeps its hands off. Such files are held from now on, so make this
                before the task can replace them. None: a file that is there, and linked, when the task has started.
            say: Takes a line for the executor's log.
            end: Is told, once, why the task must end.
            more: What else is to be looked at, some times a second.

        Raises:
            OSError: There is no such directory.
        """
        self._sandbox = Sandbox(sandbox)
        self._disk_mib, self._say, self._end, self._more = disk_mib, say, end, more
        self._volumes = volumes
        self._limit_mib, self._streams = limit_mib, dict(zip(STREAMS, streams, strict=True))
        self._logs = [*self._held()]
        self._times: LogTimes | None = None  # since the start
        self._stop, self._told = threading.Event(), ""
        self._lock = threading.Lock()
        self._measure: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _held(self) -> Iterator[Log]:
        for name, fd in self._streams.items():
            with contextlib.suppress(OSError):
                if fd is not None:
                    log = Log(self._sandbox, name, self._limit_mib)
                    if log.is_open_as(fd):
                        yield log
                    else:
                        log.close()

    def _linked(self) -> Iterator[Log]:
        for name, fd in self._streams.items():
            with contextlib.suppress(OSError):
                if fd is None:
                    yield Log(self._sandbox, name, self._limit_mib, linked=True)

    def _timed(self) -> LogTimes | None:
        """What notes when they were written; None: it cannot be noted."""
        try:
            return LogTimes(self._sandbox)
        except OSError as error:
            self._say(f"when the logs are written is not noted: {error}")
            return None

    def start(self) -> None:
        """Begin, once; the task has started."""
        self._logs += self._linked()
        self._times = self._timed() if self._logs else None
        self._thread.start()

    def stop(self) -> None:
        """Look at the logs once more, when nothing of the task runs any more, and end."""
        with self._lock:
            self._stop.set()
            if self._measure is not None:
                self._measure.kill()
        if self._thread.ident is not None:  # else the task never started
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
                told = log.look()
                written += (size := log.size)
                if self._times is not None:
                    self._times.note(log.name, size, last=last)
            except OSError as error:
                told = f"{log.name} cannot be looked after: {error}"
            if told and told != self._told:
                self._told = told
                self._say(told)
        return written

    def _weigh(self) -> None:
        if self._disk_mib and (used_mib := self._excess_mib(self._sandbox.path, self._disk_mib)):
            asked = f"{self._disk_mib} MiB asked, {used_mib} used in its sandbox; ask for more with --disk"
            self._end(f"out of disk: {asked}")
            return
        for name, path, size_mib in self._volumes:
            if used_mib := self._excess_mib(path, size_mib):
                self._end(
                    f"out of disk: {used_mib} MiB used in the persistent volume {name} of {size_mib} MiB; its "
                    "data stays; let the next task remove some of it when it starts"
                )
                return

    def _excess_mib(self, path: str, most_mib: int) -> int:
        """Return the size of a directory if that is more than it may hold, MiB; 0 if it is not, or is not known."""
        used = self._kib(path)
        return 0 if used is None or used <= most_mib << 10 else -(-used // 1024)

    def _kib(self, path: str) -> int | None:
        """The size of a directory by du(1), KiB, which nothing leads astray; None: it did not say, as when it was
        ended."""
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
