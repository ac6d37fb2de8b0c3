"""Audit records as lines of a chain: each has the SHA-256 of the line before it, which reveals changes; pure functions.

Lines are never changed. A line that a crash cut off stays as it is; the line after it is marked `torn` and has its
hash, and the writer continues from there.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Final

import msgspec

from mesos_gpu.model.access.record import AuditRecord

GENESIS: Final = "0" * 64  # hash that the first line of a chain has
NO_RECORD: Final = "is neither a record nor one that a crash cut off"
MAX_LINE: Final = 32 << 10  # bytes of a line: texts are bounded, and a character takes at most 12 bytes


class _Place(msgspec.Struct, omit_defaults=True):
    """Fields of a line besides its record."""

    seq: int
    prev: str
    torn: bool = False
    gone: int = 0


_DEFAULTS: Final = tuple((field.name, field.default) for field in fields(AuditRecord))
_places: Final = msgspec.json.Decoder(_Place)
_records: Final = msgspec.json.Decoder(AuditRecord)


@dataclass(frozen=True, slots=True)
class Entry:
    """A record with its place in the chain."""

    seq: int  # from 1, without gaps
    prev: str  # SHA-256 of the line before, hexadecimal
    record: AuditRecord
    torn: bool = False  # whether the line before was cut off by a crash
    gone: int = 0  # number of the last line that rotation has removed


@dataclass(frozen=True, slots=True)
class Head:
    """End of a chain: number and hash of its last line."""

    seq: int = 0
    hash: str = GENESIS


@dataclass(frozen=True, slots=True)
class Flaw:
    """A place where a chain is damaged or was changed."""

    where: str  # file and number of a line in it
    why: str


def digest(line: bytes) -> str:
    """Return the SHA-256 of a line without its end, hexadecimal."""
    return hashlib.sha256(line).hexdigest()


def encode(entry: Entry) -> bytes:
    """Return a line without its end: ASCII without control characters, at most `MAX_LINE` bytes."""
    record, place = entry.record.bounded(), _Place(entry.seq, entry.prev, entry.torn, entry.gone)
    texts = {name: value for name, default in _DEFAULTS if (value := getattr(record, name)) != default}
    value = msgspec.to_builtins(place) | texts | {"result": record.result.value}
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("\x7f", "\\u007f").encode()


def decode(line: bytes) -> Entry | None:
    """Return the entry in a line; None if it is no entry, as after a crash."""
    try:
        place, record = _places.decode(line), _records.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return Entry(place.seq, place.prev, record, place.torn, place.gone)


@dataclass(slots=True)
class Follower:
    """Checks a chain line by line, from the oldest existing line on.

    Args:
        mark: End of the chain according to a record beside it; None without such a record.
    """

    mark: Head | None = None
    head: Head = Head()
    first: int = 0  # number of the oldest line
    lines: int = 0
    _rest: list[bytes] = field(default_factory=list)  # successive lines that are no entries
    _rest_at: str = ""
    _gone: int = 0

    def read(self, where: str, line: bytes) -> Iterator[Flaw]:
        """Check the next line; yield flaws of it or of the lines before."""
        self.lines += 1
        entry, own = decode(line), digest(line)
        if entry is None:
            if not self._rest:
                self._rest_at = where
            self._rest.append(line)
            return
        yield from self._linked(where, entry)
        self._rest, self._gone = [], max(self._gone, entry.gone)
        self.head = Head(entry.seq, own)
        if self.mark is not None and self.mark.seq == entry.seq and self.mark.hash != own:
            yield Flaw(where, "is not the line that was written here: the mark has another hash")

    def end(self) -> Iterator[Flaw]:
        """Check the end of the chain; yield its flaws."""
        if self._rest:
            yield Flaw(self._rest_at, NO_RECORD)
        if self.first > self._gone + 1:
            yield Flaw("the beginning", f"lines {self._gone + 1} to {self.first - 1} are missing")
        if self.mark is not None and self.mark.seq > self.head.seq:
            what = f"lines {self.head.seq + 1} to {self.mark.seq} are missing"
            yield Flaw("the end", what)

    def _linked(self, where: str, entry: Entry) -> Iterator[Flaw]:
        """Yield the flaws of an entry compared with the lines before it."""
        if not self.first:
            self.first = entry.seq
            if entry.seq == 1 and entry.prev != GENESIS and not entry.torn:
                yield Flaw(where, "is the first line, but has the hash of another before it")
            if not self._rest:
                return  # the line before it was removed by rotation
        elif entry.seq != self.head.seq + 1:
            yield Flaw(where, f"is number {entry.seq}, but follows number {self.head.seq}")
        if self._rest and not entry.torn:
            yield Flaw(self._rest_at, NO_RECORD)
        elif entry.torn and not self._rest:
            yield Flaw(where, "follows a line that a crash cut off, but that line is missing")
        if entry.prev != (digest(b"\n".join(self._rest)) if self._rest else self.head.hash):
            yield Flaw(
                where,
                "does not have the hash of the line before it: that line was changed, or lines are missing",
            )


def flaws(lines: Iterable[bytes], mark: Head | None = None) -> list[Flaw]:
    """Return all flaws of a chain; lines are numbered from 1."""
    follower = Follower(mark)
    within = [flaw for number, line in enumerate(lines, 1) for flaw in follower.read(f"line {number}", line)]
    return [*within, *follower.end()]
