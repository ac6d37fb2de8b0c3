"""Store of the unpacked layers that a host keeps for images, by their digests, up to a size.

The store is a directory that only root can enter. A layer `KEY` has two entries there: `KEY`, its tree, which
appears complete or not at all, and `KEY.lock`, whose lock (flock(2)) is shared by executors that use the
layer, and exclusive for one that makes or removes it. The kernel drops locks with their processes, so nothing
that a killed executor left is in the way: a tree that was not completed, `KEY.part`, is removed by the next
executor. `KEY.lock` contains the size of the tree (while it is being unpacked, its size so far), and its time
of change is that of the last use.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from isolator.host.not_started import KILLED_BEFORE_START, NotStarted
from isolator.host.rootfs import REMOVE_S, remove
from isolator.images.unpacking import Readable, TooLarge, Unpacked, unpack
from mesos_gpu.errors import BadConfiguration, Damaged, Unavailable
from mesos_gpu.wire.plain import clean

DIRECTORY: Final = "MESOS_GPU_IMAGE_CACHE"
MIB: Final = "MESOS_GPU_IMAGE_CACHE_MIB"
DEFAULT_MIB: Final = 65536
MAX_RESERVE: Final = 1 << 30  # bytes of a large disk that stay free; of smaller disks a fiftieth
_LOOK_S: Final = 0.1  # pause between checks whether another executor has unpacked a layer
_SWEEP_S: Final = 10.0  # time that a launch waits for the removal of unfinished layers
_LOCK, _PART, _ROOTS = ".lock", ".part", "roots"
_libc: Final = ctypes.CDLL(None, use_errno=True)
_SHARED, _EXCLUSIVE = fcntl.LOCK_SH | fcntl.LOCK_NB, fcntl.LOCK_EX | fcntl.LOCK_NB


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of an image; layers with the same key are equal.

    Attributes:
        key: Name of the layer in stores, from its digest and its origin.
        size: Bytes as it is sent.
        digest: Digest of the tar stream to compare; empty if `open` verifies its stream.
        open: Function that opens its stream; raises at its end if that is not the layer's.
    """

    key: str
    size: int = field(compare=False)
    digest: str = field(compare=False)
    open: Callable[[], AbstractContextManager[Readable]] = field(compare=False)


class Held:
    """Unpacked layers that stay until `close`, or until this process ends.

    Args:
        paths: Directories of the layers, the lowest first.
        locks: Locks of the layers.
    """

    def __init__(self, paths: tuple[str, ...], locks: contextlib.ExitStack) -> None:
        self.paths, self._locks = paths, locks

    def close(self) -> None:
        """Release the layers, which may be removed then; harmless if called again."""
        self._locks.close()


class Store:
    """Unpacked layers of this host.

    Args:
        directory: Directory of the layers.
        max_bytes: Limit for all layers together, also those in use, and for one image.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory, self._max_bytes = directory, max_bytes

    @classmethod
    def of(cls, own: Mapping[str, str], node: str) -> "Store":
        """Return the store of this host.

        Args:
            own: Environment of the executor.
            node: The node directory.

        Raises:
            BadConfiguration: The operator's size is not a number.
        """
        text = own.get(MIB) or str(DEFAULT_MIB)
        if not text.isdecimal() or not int(text):
            raise BadConfiguration(
                f"{MIB} is {text!r}", remedy="set it to the MiB that layers of images may take"
            )
        return cls(Path(own.get(DIRECTORY) or f"{node}/images"), int(text) << 20)

    def root_of(self, container: str) -> Path:
        """Return the directory for what a container writes to its image, which is not made."""
        return self._directory / _ROOTS / container

    def hold(self, layers: Sequence[Layer], is_aborted: Callable[[], bool]) -> Held:
        """Unpack the layers of an image if need be, and keep them.

        Args:
            layers: Layers, the lowest first; of equal ones only the highest is used.
            is_aborted: Function that returns whether to give up.

        Raises:
            NotStarted: The image is invalid, or larger than the store may be; or the start is given up.
            Unavailable: The disk is full, or images in use leave no space for this one.
            MesosGpuError, OSError: A layer cannot be fetched or unpacked.
        """
        if not layers:
            raise NotStarted(
                "the image has no layers, and so no program; build it from a base, or copy files into it"
            )
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory.chmod(0o700)
        with contextlib.ExitStack() as locks:
            paths, size = list[str](), 0
            for layer in reversed(dict.fromkeys(reversed(layers))):
                if size + layer.size > self._max_bytes:
                    raise self._too_large()
                lock = self._get(layer, self._max_bytes - size, is_aborted)
                locks.callback(os.close, lock)
                size += _size_in(lock)
                paths.append(str(self._directory / layer.key))
            return Held(tuple(paths), locks.pop_all())

    def _too_large(self) -> NotStarted:
        return NotStarted(
            f"the image is larger than the {self._max_bytes >> 20} MiB that this host has for layers of images; use a "
            f"smaller one, or have the operator set {MIB} on the agent"
        )

    def _get(self, layer: Layer, max_bytes: int, is_aborted: Callable[[], bool]) -> int:
        """Return the shared lock of a layer that is unpacked."""
        tree = self._directory / layer.key
        while True:
            if is_aborted():
                raise NotStarted(KILLED_BEFORE_START)
            with self._locked(layer.key, _SHARED) as lock:
                if lock is not None and tree.is_dir():
                    os.utime(lock)
                    return os.dup(lock)  # a duplicate shares the open file, and so its lock
            with self._locked(layer.key, _EXCLUSIVE) as lock:
                if lock is not None and not tree.is_dir():
                    self._make(layer, lock, max_bytes, is_aborted)
            if lock is None:  # another executor unpacks it
                time.sleep(_LOOK_S)

    @contextlib.contextmanager
    def _locked(self, key: str, how: int) -> Iterator[int | None]:
        """Hold the lock of a layer; None if others hold it, or the layer is just being removed."""
        path = self._directory / f"{key}{_LOCK}"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, how)
            except BlockingIOError:
                yield None
                return
            yield lock if os.fstat(lock).st_nlink else None
        finally:
            os.close(lock)

    def _make(self, layer: Layer, lock: int, max_bytes: int, is_aborted: Callable[[], bool]) -> None:
        self._sweep()
        part = self._directory / f"{layer.key}{_PART}"
        remove(str(part))
        try:
            self._claim(lock, layer.size, unwritten=layer.size)
            size = self._unpack(layer, part, max_bytes, is_aborted, partial(self._claim, lock))
            self._claim(lock, size)
            part.rename(self._directory / layer.key)
        except BaseException as error:
            self._is_removed(layer.key, REMOVE_S)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._full(error.strerror or "") from error
            raise

    def _full(self, why: str) -> Unavailable:
        return Unavailable(
            f"an image cannot be unpacked in {self._directory}: {why}",
            remedy=f"free space there, let layers take less ({MIB}), or use a directory of another disk ({DIRECTORY})",
        )

    def _unpack(
        self,
        layer: Layer,
        part: Path,
        max_bytes: int,
        is_aborted: Callable[[], bool],
        grown: Callable[[int], None],
    ) -> int:
        part.mkdir(mode=0o755)
        directory = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fchmod(directory, 0o755)  # nosec B103 # regardless of the umask; only root can reach it
            done: Unpacked | Damaged
            with layer.open() as stream:
                try:
                    done = unpack(stream, directory, max_bytes, is_aborted, grown)
                except TooLarge:
                    raise self._too_large() from None
                except InterruptedError:
                    raise NotStarted(KILLED_BEFORE_START) from None
                except Damaged as error:
                    done = error  # the image's fault, if its digest is correct
            if isinstance(done, Damaged):
                raise NotStarted(f"{done.what}; {done.remedy}")
            if layer.digest not in ("", done.digest):
                raise NotStarted(
                    f"a layer has the digest {done.digest}, not {layer.digest}; save the image again"
                )
            if _libc.syncfs(directory):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            return done.size
        finally:
            os.close(directory)

    def _sweep(self) -> None:
        """Remove layers that killed executors left unfinished, or some of them, as a launch waits for that."""
        deadline = time.monotonic() + _SWEEP_S
        for part in self._directory.glob(f"*{_PART}"):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            with self._locked(part.name.removesuffix(_PART), _EXCLUSIVE) as lock:
                if lock is not None:
                    self._is_removed(part.name.removesuffix(_PART), left_s)

    def _claim(self, lock: int, size: int, unwritten: int = 0) -> None:
        """Record the size of a layer for all executors, and make space for it.

        Args:
            lock: Descriptor of the layer's lock, held exclusively.
            size: Bytes that the layer takes.
            unwritten: Bytes of these that are not on the disk yet.

        Raises:
            Unavailable: Layers in use, or other files, leave no space.
        """
        os.pwrite(lock, f"{size:020}".encode(), 0)
        if short := self._trim(unwritten):
            raise short

    def _trim(self, unwritten: int) -> Unavailable | None:
        """Remove layers that are not in use, the least recently used first, until there is enough space.

        Returns:
            The error if the space does not suffice; None if it does.
        """
        used = dict[str, tuple[float, int]]()
        for path in self._directory.glob(f"*{_LOCK}"):
            with contextlib.suppress(FileNotFoundError):
                used[path.name.removesuffix(_LOCK)] = (path.stat().st_mtime, _number(path.read_bytes()))
        total = sum(size for _, size in used.values())
        for key, (_, size) in sorted(used.items(), key=lambda item: item[1]):
            if self._shortage(total, unwritten) is None:
                return None
            with self._locked(key, _EXCLUSIVE) as lock:
                if lock is not None and self._is_removed(key, REMOVE_S):
                    total -= size
        return self._shortage(total, unwritten)

    def _shortage(self, total: int, unwritten: int) -> Unavailable | None:
        """Return the error for a lack of space, or None."""
        if total > self._max_bytes:
            return Unavailable(
                f"images in use leave no space for another: with it, layers would take {_mib(total)} of "
                f"{self._max_bytes >> 20} MiB",
                remedy=f"wait until tasks with other images end, or let layers take more ({MIB})",
            )
        disk = os.statvfs(self._directory)
        free, reserve = disk.f_bavail * disk.f_frsize, min(disk.f_blocks * disk.f_frsize // 50, MAX_RESERVE)
        if free - unwritten >= reserve:
            return None
        return self._full(
            f"{_mib(unwritten)} more are needed, {_mib(free)} are free, and {_mib(reserve)} must stay free"
        )

    def _is_removed(self, key: str, limit_s: float) -> bool:
        """Remove a layer whose lock is held, and its lock; return whether that succeeded.

        An error is logged, and the layer stays unfinished: it is no reason to refuse another image, and later
        launches remove more of it.
        """
        tree, part = self._directory / key, self._directory / f"{key}{_PART}"
        try:
            remove(str(part), limit_s)
            if tree.is_dir():
                tree.rename(part)  # from here on it is incomplete
                remove(str(part), limit_s)
            (self._directory / f"{key}{_LOCK}").unlink()
        except OSError as error:
            print(
                clean(f"{part} cannot be removed now (a later launch tries again): {error}"),
                file=sys.stderr,
                flush=True,
            )  # the executor's log
            return False
        return True


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def _size_in(lock: int) -> int:
    return _number(os.pread(lock, 32, 0))


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() else 0
