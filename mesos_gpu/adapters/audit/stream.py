"""Chain of records in numbered files: a full file is followed by a next one, and the oldest files are removed."""

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
WRITER: Final = "scheduler"  # user of records about the log itself


@dataclass(frozen=True, slots=True)
class _Tail:
    """End of a file: its last entry, and what a crash left after it."""

    head: Head | None
    rest: bytes  # bytes after the entry, without a final newline
    open: bool  # whether the last line has no newline


class Stream:
    """Writer of one chain; not thread-safe. The caller must hold the directory's lock.

    Args:
        directory: Directory of the log.
        kind: Prefix of the names of its files.
        most_bytes: Maximum size of all its files.
        files: Number of files into which that is divided.
        reserve: Bytes that are allocated on disk in advance; 0 for none.
    """

    def __init__(self, directory: Directory, kind: str, *, most_bytes: int, files: int, reserve: int) -> None:
        self._directory, self._kind = directory, kind
        self._most_bytes, self._files, self._reserve = most_bytes, files, reserve
        self._fd: int | None = None
        self._mark: int | None = None
        self._size = self._taken = 0  # of the current file
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
        """Open the newest file, and write a record that a writer begins.

        Raises:
            OSError: The record cannot be written.
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
        """Open the newest file; a record of the beginning is written only after a crash.

        Raises:
            OSError: The file cannot be opened or written.
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
        """Write records together; if the file is full, begin the next one before.

        Raises:
            OSError: None of them is written.
        """
        if self._size * self._files >= self._most_bytes:
            # If there is no room for a new file, there may be some in this one.
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
        """Force all written records to disk, then update the mark.

        Raises:
            OSError: The disk fails or is full.
        """
        if self._fd is None:
            return
        os.fdatasync(self._fd)
        if self._mark is None:
            self._mark = self._directory.open_mark(self._kind)
        set_mark(self._mark, self.head)

    def take_room(self) -> None:
        """Allocate the reserve after the end of the file.

        Raises:
            OSError: There is not enough room.
        """
        if self._fd is not None and self._reserve and self._taken - self._size < self._reserve // 2:
            room.take(self._fd, self._size, self._reserve)
            self._taken = self._size + self._reserve

    def close(self) -> None:
        """Close the files, and release unused room."""
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
                os.ftruncate(self._fd, self._size)  # remove the incomplete line
            raise
        self._size += written

    def _next(self, at: float) -> None:
        """Begin the next file with a record of the removal of old files, then remove these."""
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
    """Close a file that is complete, and release room beyond its end."""
    if fd is not None:
        os.fdatasync(fd)
        os.ftruncate(fd, size)
        os.close(fd)


def _tail(directory: Directory, kind: str, number: int) -> _Tail:
    """Read a file back from its end to its last entry."""
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
    """Return the end of the data; None if more must be read. `whole`: whether the data is all of the file."""
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
