"""Shared files between the host and our libraries in a task: `limits` for the task, `usage` from it. Layout:
layout.h.

Each task has a directory of its own: DIRECTORY/NAME/{limits,usage}. DIRECTORY is closed to all but root, so
that no user of the host reaches the files of others; the task has its own mounted, `limits` read-only. Any of
its users may write `usage`, which is trusted only as the task's own statement. Lean: the executor imports it.
"""

import contextlib
import fcntl
import os
import re
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from isolator.gpus.locks import locked_within
from mesos_gpu.errors import Damaged, Unavailable
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.policy.sharing.windows import Window
from mesos_gpu.wire.digest import blake2b

MAGIC_LIMITS: Final = 0x4C53474D  # "MGSL", little endian
MAGIC_USAGE: Final = 0x5553474D  # "MGSU"
VERSION: Final = 1
MAX_CARDS: Final = 16
MAX_PROCESSES: Final = 256
MIB: Final = 1 << 20
_HEADER: Final = struct.Struct("<IIQI44x")  # magic, version, generation, cards with windows
_LIMIT: Final = struct.Struct("<16sQQQIII12x")  # uuid, quota, context, unaccounted; period, start, length
_CARD: Final = struct.Struct("<QQQQ32x")  # refused, missed, asked_ns, peak
_PROCESS: Final = struct.Struct(f"<iI{MAX_CARDS}Q{MAX_CARDS}Q{MAX_CARDS}Q")  # pid, -, held, context, busy_ns
LIMITS_BYTES: Final = _HEADER.size + MAX_CARDS * _LIMIT.size
USAGE_BYTES: Final = _HEADER.size + MAX_CARDS * _CARD.size + MAX_PROCESSES * _PROCESS.size
#: Upper bound of numbers that a task writes: more than any card has, and small enough to add up.
_CREDIBLE: Final = 1 << 50
#: Wait for another writer, which takes microseconds unless it is stopped, for example by its container's
#: freezer.
ALONE_S: Final = 5.0
#: Time limit for testing which processes of a task live; for each the kernel looks through all locks of the
#: file.
LIVING_S: Final = 0.5
_HEX: Final = re.compile(r"[0-9a-f]{32}")
# struct flock of fcntl(2) on 64-bit Linux: type, whence, start, length, pid
_FLOCK: Final = struct.Struct("hhqqi4x")


@dataclass(frozen=True, slots=True)
class CardLimits:
    """Limits of a task on one card.

    Attributes:
        gpu: Id of the card or MIG instance.
        memory_bytes: Size of the share; 0 allows nothing.
        context_bytes: Memory that each allocating process costs beside its allocations.
        unaccounted_bytes: Memory that the driver counts for the task beyond its own account.
        window: Times when the task may start work; None for any time.
    """

    gpu: GpuId
    memory_bytes: int
    context_bytes: int = 0
    unaccounted_bytes: int = 0
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class CardUsage:
    """Use of one card by the account of the task's processes; only as true as the task.

    Attributes:
        memory_bytes: Memory held, contexts included.
        peak_bytes: Largest memory held at once.
        processes: Number of living processes that hold memory.
        refused: Number of allocations that did not fit the share.
        busy_ns: Time on the card of living processes since the task began; counted only in windows.
        missed: Number of windows lost to pay for work that ran over.
        asked_ns: CLOCK_MONOTONIC of the last request to start work, in a task with windows; 0 if there was
            none.
    """

    memory_bytes: int = 0
    peak_bytes: int = 0
    processes: int = 0
    refused: int = 0
    busy_ns: int = 0
    missed: int = 0
    asked_ns: int = 0

    def free_bytes(self, limits: CardLimits) -> int:
        """Return the free bytes of the share; 0 also if more is used than granted, as after the share was made
        smaller.
        """
        return max(0, limits.memory_bytes - limits.unaccounted_bytes - self.memory_bytes)


@dataclass(frozen=True, slots=True)
class Usage:
    """Content of a usage file.

    Attributes:
        problem: Reason why it is unusable, in words; "" if it is usable.
    """

    cards: Mapping[GpuId, CardUsage] = field(default_factory=dict)
    problem: str = ""


def regions(node_directory: Path) -> Path:
    """Return the directory of all tasks' regions."""
    return node_directory / "shares"


def region_of(node_directory: Path, task: TaskId) -> "Region":
    """Return the region of a task, which need not exist yet."""
    return Region(regions(node_directory) / blake2b(task.encode(), digest_size=8).hexdigest())


def uuid_bytes(gpu: GpuId) -> bytes:
    """Return the 16 bytes that CUDA uses for a card; a digest for ids without a UUID, as those of simulated
    cards.
    """
    text = gpu.partition("-")[2].replace("-", "").lower()
    return bytes.fromhex(text) if _HEX.fullmatch(text) else blake2b(gpu.encode(), digest_size=16).digest()


class Region:
    """Directory with the shared files of one task.

    Only the host's root changes it, except for `usage`, which the task writes.

    Args:
        path: Directory, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.limits_path, self.usage_path = path / "limits", path / "usage"

    def create(self, cards: Sequence[CardLimits]) -> None:
        """Make the directory and the files; to be called once, before the task's first process.

        Raises:
            ValueError: There are more than 16 cards.
            OSError: They cannot be made, or exist already.
        """
        content = _limits(cards, generation=0)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.mkdir(mode=0o755)
        self.path.chmod(0o755)  # whatever the umask
        _write_new(self.usage_path, _HEADER.pack(MAGIC_USAGE, VERSION, 0, 0).ljust(USAGE_BYTES, b"\0"), 0o666)
        # By rename: an incomplete file would look damaged to the planner of the card's windows.
        part = self.path / ".limits"
        _write_new(part, content, 0o644)
        part.rename(self.limits_path)

    def remove(self) -> None:
        """Remove the directory; harmless if it does not exist."""
        with contextlib.suppress(FileNotFoundError):
            import shutil  # deferred: not needed before the end of the task

            shutil.rmtree(self.path)

    def write(self, cards: Sequence[CardLimits]) -> None:
        """Replace the limits atomically: the task sees either the old or the new ones.

        A writer that is killed halfway leaves an odd generation: tasks keep what they read last, and the next
        write makes it even again.

        Raises:
            ValueError: There are more than 16 cards.
            Unavailable: Another writer does not end.
            OSError: The file cannot be written.
        """
        with _alone(self.path.parent):
            self._write(cards)

    def _write(self, cards: Sequence[CardLimits]) -> None:
        with _opened(self.limits_path, os.O_RDWR) as fd:
            before = os.pread(fd, _HEADER.size, 0)
            generation = _HEADER.unpack(before)[2] if len(before) == _HEADER.size else 0
            odd = (generation + 1) | 1
            content = _limits(cards, generation=odd)
            os.pwrite(fd, content[: _HEADER.size], 0)
            os.pwrite(fd, content[_HEADER.size :], _HEADER.size)
            os.pwrite(fd, _limits(cards, generation=odd + 1)[: _HEADER.size], 0)

    def change(self, gpu: GpuId, **fields: object) -> None:
        """Change fields (`CardLimits`) of one card's limits; the others stay.

        Raises:
            Damaged: The file is unusable, or does not name the card.
            Unavailable: Another writer does not end.
            OSError: The file cannot be written.
        """
        with _alone(self.path.parent):  # an executor and the monitor may each change another field
            cards = self.limits((gpu,))
            if all(card.gpu != gpu for card in cards):
                raise Damaged(f"{self.limits_path} does not name {gpu}", remedy=_REMEDY)
            self._write([replace(card, **fields) if card.gpu == gpu else card for card in cards])  # type: ignore[arg-type]

    def mend(self) -> None:
        """Complete a write that was cut short by a kill; harmless if none was.

        Without that, a process that starts would reject the file, and could use nothing of the card.

        Raises:
            Damaged, Unavailable, OSError: As for `change`.
        """
        if not self._is_torn():
            return
        with _alone(self.path.parent):
            if self._is_torn():  # again under the lock: no other writer is at work
                self._write(self.limits())

    def _is_torn(self) -> bool:
        header = _read(self.limits_path, _HEADER.size)
        return header is not None and bool(_HEADER.unpack(header)[2] & 1)

    def limits(self, gpus: Iterable[GpuId] = ()) -> tuple[CardLimits, ...]:
        """Return the limits of the task, by card.

        Args:
            gpus: Ids to use for cards; others are named by their UUID, "GPU-…".

        Raises:
            Damaged: The file does not exist or is invalid.
        """
        named = {uuid_bytes(gpu): gpu for gpu in gpus}
        content = _read(self.limits_path, LIMITS_BYTES)
        if content is None or _HEADER.unpack_from(content)[:2] != (MAGIC_LIMITS, VERSION):
            raise Damaged(f"{self.limits_path} is not a valid file of limits", remedy=_REMEDY)
        return tuple(_parsed_limits(content, named))

    def usage(self, gpus: Sequence[GpuId]) -> Usage:
        """Return the use by the task's own account.

        Never fails or hangs, whatever bytes the task wrote. A file that it made longer is cut.

        Args:
            gpus: Cards in the order in which `write` had them.
        """
        try:
            with _opened(self.usage_path, os.O_RDWR) as fd:
                return _usage(fd, gpus)
        except OSError as error:
            return Usage(problem=f"{self.usage_path}: {error.strerror}")


_REMEDY: Final = "its task keeps the limits that it read last; end it before the card takes new shares"


def _write_new(path: Path, content: bytes, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)


def _read(path: Path, size: int) -> bytes | None:
    """Return the first bytes of a file; None if it is shorter or unreadable."""
    try:
        with _opened(path, os.O_RDONLY) as fd:
            content = os.pread(fd, size, 0)
    except OSError:
        return None
    return content if len(content) == size else None


@contextlib.contextmanager
def _opened(path: Path, how: int) -> Iterator[int]:
    fd = os.open(path, how | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Hold the lock of writers of limits.

    The lock is on a directory that no task can open, as a task that held it would stop the host. A writer may
    hold it for long only if it is stopped halfway, as an executor in a frozen cgroup; others then give up.

    Raises:
        Unavailable: Another writer does not end within `ALONE_S`.
    """
    with _opened(directory, os.O_RDONLY | os.O_DIRECTORY) as fd:
        if not locked_within(fd, ALONE_S):
            raise Unavailable(
                f"another process has been writing limits below {directory} for {ALONE_S:g} s",
                remedy=f"see which has {directory} open; if it hangs, end it",
            )
        yield


def _limits(cards: Sequence[CardLimits], generation: int) -> bytes:
    if len(cards) > MAX_CARDS:
        raise ValueError(f"a task may share {MAX_CARDS} cards at most, got {len(cards)}")
    windows = sum(card.window is not None for card in cards)
    header = _HEADER.pack(MAGIC_LIMITS, VERSION, generation, windows)
    return (header + b"".join(map(_packed, cards))).ljust(LIMITS_BYTES, b"\0")


def _packed(card: CardLimits) -> bytes:
    window = card.window
    times = (0, 0, 0) if window is None else (window.period_us, window.start_us, window.length_us)
    amounts = (card.memory_bytes, card.context_bytes, card.unaccounted_bytes)
    return _LIMIT.pack(uuid_bytes(card.gpu), *(max(0, amount) for amount in amounts), *times)


def _parsed_limits(content: bytes, named: Mapping[bytes, GpuId]) -> Iterator[CardLimits]:
    for number in range(MAX_CARDS):
        uuid, memory, context, unaccounted, period, start, length = _LIMIT.unpack_from(
            content, _HEADER.size + number * _LIMIT.size
        )
        if uuid != bytes(16):
            window = Window(start, length, period) if period else None
            yield CardLimits(named.get(uuid) or _id_of(uuid), memory, context, unaccounted, window)


def _id_of(uuid: bytes) -> GpuId:
    text = uuid.hex()
    return GpuId(f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")


def _usage(fd: int, gpus: Sequence[GpuId]) -> Usage:
    if os.fstat(fd).st_size > USAGE_BYTES:  # longer only if the task tries to fill the host's disk
        os.ftruncate(fd, USAGE_BYTES)
    content = os.pread(fd, USAGE_BYTES, 0)
    if len(content) != USAGE_BYTES or _HEADER.unpack_from(content)[:2] != (MAGIC_USAGE, VERSION):
        return Usage(problem="the task has damaged its file of usage")
    processes = _living(fd, content)
    if processes is None:
        return Usage(
            problem="the task has locked its file of usage too often to see which of its processes live"
        )
    return Usage({gpu: _card_usage(content, processes, card) for card, gpu in enumerate(gpus[:MAX_CARDS])})


def _living(fd: int, content: bytes) -> list[tuple[int, ...]] | None:
    """Return the slots of living processes; None if testing them takes too long, by locks that the task has
    made for that.
    """
    deadline, living = time.monotonic() + LIVING_S, []
    at = _HEADER.size + MAX_CARDS * _CARD.size
    for number, fields in enumerate(_PROCESS.iter_unpack(content[at:])):
        if fields[0] <= 0:
            continue
        if time.monotonic() > deadline:
            return None
        if _lives(fd, number):
            living.append(fields)
    return living


def _lives(fd: int, number: int) -> bool:
    """Return whether a process holds its slot's lock, which the kernel releases when it dies. Never blocks."""
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 1 + number, 1, 0)
    answer: bytes = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, query)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _card_usage(content: bytes, processes: Iterable[tuple[int, ...]], card: int) -> CardUsage:
    refused, missed, asked_ns, peak = _CARD.unpack_from(content, _HEADER.size + card * _CARD.size)
    memory = busy_ns = holders = 0
    for fields in processes:
        held, context, busy = (fields[2 + group * MAX_CARDS + card] for group in range(3))
        memory += min(held, _CREDIBLE) + min(context, _CREDIBLE)
        busy_ns += min(busy, _CREDIBLE)
        holders += bool(held or context)
    return CardUsage(
        memory_bytes=min(memory, _CREDIBLE),
        peak_bytes=min(peak, _CREDIBLE),
        processes=holders,
        refused=min(refused, _CREDIBLE),
        busy_ns=min(busy_ns, _CREDIBLE),
        missed=min(missed, _CREDIBLE),
        asked_ns=asked_ns,
    )
