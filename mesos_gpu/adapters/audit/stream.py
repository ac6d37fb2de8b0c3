"""A chain of records in numbered files: appended to, synced, begun anew at a size, the oldest removed by number."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mesos_gpu.access.chain import Entry, Head, decode, digest, encode
from mesos_gpu.adapters.audit.directory import Directory, name_of, set_mark
from mesos_gpu.adapters.disk import room
from mesos_gpu.model.access.record import NO_PROOF, AuditRecord, Result

BLOCK: Final = 1 << 16
WRITER: Final = "scheduler"  # who, of the lines that the log writes of itself


@dataclass(frozen=True, slots=True)
class _Tail:
    """The end of a file: its last entry, and what a crash left behind it."""

    head: Head | None
    rest: bytes  # no entry; without the end of its last line
    open: bool  # the last line has no end


class Stream:
    """Not for several threads at once. Whoever makes one holds the directory's lock."""

    def __init__(self, directory: Directory, kind: str, *, most_bytes: int, files: int, reserve: int) -> None:
        """Find how far it has come; nothing is written yet.

        Args:
            directory: Of the log.
            kind: What the names of its files begin with.
            most_bytes: Of all its files.
            files: Into how many that is divided.
            reserve: Bytes that are taken on the disk ahead; 0: none.
        """
        self._directory, self._kind = directory, kind
        self._most_bytes, self._files, self._reserve = most_bytes, files, reserve
        self._fd: int | None = None
        self._mark: int | None = None
        self._size = self._taken = 0  # of the file in hand
        numbers = directory.numbers(kind)
        self._number = numbers[-1] if numbers else 0
        self.head, self._torn, self._open = Head(), b"", False
        for number in reversed(numbers):
            tail = _tail(directory, kind, number)
            self._torn = b"\n".join(filter(None, (tail.rest, self._torn)))
            self._open = tail.open if number == self._number else self._open
            if tail.head is not None:
                self.head = tail.head
                break

    def begin(self, at: float, detail: str) -> None:
        """Open the newest file, and write that a writer begins.

        Raises:
            OSError: It cannot be written.
        """
        self._take_up()
        torn = bool(self._torn)
        before = digest(self._torn) if torn else self.head.hash
        own = AuditRecord(at, "audit:begin", Result.DONE, WRITER, NO_PROOF, detail=detail)
        line = encode(Entry(self.head.seq + 1, before, own, torn=torn))
        self._put((b"\n" if self._open else b"") + line + b"\n")
        self.head = Head(self.head.seq + 1, digest(line))
        self._torn, self._open = b"", False
        self._directory.sync()

    def resume(self, at: float) -> None:
        """Open the newest file; only after what a crash left does it get a line that says so.

        Raises:
            OSError: It cannot be written.
        """
        if self._torn or self._open:
            self.begin(at, "")
        else:
            self._take_up()

    def _take_up(self) -> None:
        if self._fd is None:
            self._number = max(self._number, 1)
            self._open_file()

    def append(self, records: Sequence[AuditRecord]) -> None:
        """Write records as one piece; when the file is full, a next one is begun first.

        Raises:
            OSError: None of them is written.
        """
        if self._size * self._files >= self._most_bytes:
            # Where there is no room for a new file, there may be some in this one.
            with contextlib.suppress(OSError):
                self._next(records[0].at)
        lines, head = [], self.head
        for record in records:
            line = encode(Entry(head.seq + 1, head.hash, record))
            head = Head(head.seq + 1, digest(line))
            lines.append(line)
        self._put(b"\n".join(lines) + b"\n")
        self.head = head

    def sync(self) -> None:
        """Force what was written to the disk, then say how far that is.

        Raises:
            OSError: It cannot be.
        """
        if self._fd is None:
            return
        os.fdatasync(self._fd)
        if self._mark is None:
            self._mark = self._directory.open_mark(self._kind)
        set_mark(self._mark, self.head)

    def take_room(self) -> None:
        """Have the reserve ahead of the end.

        Raises:
            OSError: There is no room for it.
        """
        if self._fd is not None and self._reserve and self._taken - self._size < self._reserve // 2:
            room.take(self._fd, self._size, self._reserve)
            self._taken = self._size + self._reserve

    def close(self) -> None:
        """Let go of the files, and of the room that was not needed."""
        self._close_file()
        if self._mark is not None:
            os.close(self._mark)
            self._mark = None

    def _put(self, data: bytes) -> None:
        assert self._fd is not None
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError:
            self._taken = self._size
            if written:
                os.ftruncate(self._fd, self._size)  # else a piece of a line would stay there
            raise
        self._size += written

    def _next(self, at: float) -> None:
        """Begin the next file with a line that says what was removed, then remove it."""
        numbers = self._directory.numbers(self._kind)
        old = numbers[: max(len(numbers) - self._files + 1, 0)]
        gone = max((_last_seq(self._directory, self._kind, number) for number in old), default=0)
        before = self._fd, self._number, self._size, self._taken
        self._number += 1
        try:
            self._open_file()
            words = f"begins {name_of(self._kind, self._number)}"
            detail = f"{words}; lines to {gone} are removed" if old else words
            record = AuditRecord(at, "audit:rotate", Result.DONE, WRITER, NO_PROOF, detail=detail)
            line = encode(Entry(self.head.seq + 1, self.head.hash, record, gone=gone))
            self._put(line + b"\n")
        except OSError:
            if self._fd is not None and self._fd != before[0]:
                os.close(self._fd)
                self._directory.remove(self._kind, self._number)
            self._fd, self._number, self._size, self._taken = before
            raise
        self.head = Head(self.head.seq + 1, digest(line))
        _shrink(before[0], before[2])
        for number in old:
            self._directory.remove(self._kind, number)
        self._directory.sync()

    def _open_file(self) -> None:
        self._fd = self._directory.open_to_append(self._kind, self._number)
        self._size = self._taken = os.fstat(self._fd).st_size
        self.take_room()

    def _close_file(self) -> None:
        _shrink(self._fd, self._size)
        self._fd = None


def _shrink(fd: int | None, size: int) -> None:
    """Close a file that is not written any more; room beyond its end is given back."""
    if fd is not None:
        os.fdatasync(fd)
        os.ftruncate(fd, size)
        os.close(fd)


def _tail(directory: Directory, kind: str, number: int) -> _Tail:
    """Look back from the end of a file, as far as its last entry."""
    fd = directory.open_to_read(kind, number)
    try:
        begin, data = os.fstat(fd).st_size, b""
        while True:
            before, begin = begin, max(begin - BLOCK, 0)
            data = os.pread(fd, before - begin, begin) + data
            tail = _tail_of(data, whole=begin == 0)
            if tail is not None:
                return tail
    finally:
        os.close(fd)


def _tail_of(data: bytes, *, whole: bool) -> _Tail | None:
    """The end of what was read; None: more must be read. `whole`: that is all."""
    is_open = bool(data) and not data.endswith(b"\n")
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    for i in range(len(lines) - 1, -1 if whole else 0, -1):
        entry = decode(lines[i])
        if entry is not None:
            return _Tail(Head(entry.seq, digest(lines[i])), b"\n".join(lines[i + 1 :]), is_open)
    return _Tail(None, b"\n".join(lines), is_open) if whole else None


def _last_seq(directory: Directory, kind: str, number: int) -> int:
    try:
        tail = _tail(directory, kind, number)
    except FileNotFoundError:
        return 0
    return tail.head.seq if tail.head else 0
