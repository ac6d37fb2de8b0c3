"""Audit records as lines of a chain: each carries the SHA-256 of the line before it, so what was changed shows. Pure.

A line is never changed. What a crash left of one stays as it is, and the line after it says `torn`, and carries its
hash: the writer began anew there.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Final

import msgspec

from mesos_gpu.model.access.record import AuditRecord

GENESIS: Final = "0" * 64  # what the first line of a chain carries
NO_RECORD: Final = "is no record, nor what a crash left of one"
MAX_LINE: Final = 32 << 10  # bytes of a line: of bounded texts, each character twelve bytes at most


class _Place(msgspec.Struct, omit_defaults=True):
    """What a line says beside its record."""

    seq: int
    prev: str
    torn: bool = False
    gone: int = 0


_DEFAULTS: Final = tuple((each.name, each.default) for each in fields(AuditRecord))
_places: Final = msgspec.json.Decoder(_Place)
_records: Final = msgspec.json.Decoder(AuditRecord)


@dataclass(frozen=True, slots=True)
class Entry:
    """A record in its place."""

    seq: int  # from 1, without gaps
    prev: str  # SHA-256 of the line before, in hexadecimal digits
    record: AuditRecord
    torn: bool = False  # the line before is what a crash left of one
    gone: int = 0  # the number of the last line that rotation has removed


@dataclass(frozen=True, slots=True)
class Head:
    """How far a chain has come: number and hash of its last line."""

    seq: int = 0
    hash: str = GENESIS


@dataclass(frozen=True, slots=True)
class Flaw:
    """A place where a chain is not what was written."""

    where: str  # a file and the number of a line in it
    why: str


def digest(line: bytes) -> str:
    """SHA-256 of a line without its end, in hexadecimal digits."""
    return hashlib.sha256(line).hexdigest()


def encode(entry: Entry) -> bytes:
    """A line without its end: ASCII without control characters, `MAX_LINE` bytes at most."""
    record, place = entry.record.bounded(), _Place(entry.seq, entry.prev, entry.torn, entry.gone)
    told = {name: value for name, default in _DEFAULTS if (value := getattr(record, name)) != default}
    value = msgspec.to_builtins(place) | told | {"result": record.result.value}
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("\x7f", "\\u007f").encode()


def decode(line: bytes) -> Entry | None:
    """An entry; None: the line is none, as one that was torn."""
    try:
        place, record = _places.decode(line), _records.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return Entry(place.seq, place.prev, record, place.torn, place.gone)


@dataclass(slots=True)
class Follower:
    """Reads a chain line by line, from the oldest that is kept.

    Args:
        mark: How far the chain had come, as something beside it says; None: nothing does.
    """

    mark: Head | None = None
    head: Head = Head()
    first: int = 0  # the number of the oldest line
    lines: int = 0
    _rest: list[bytes] = field(default_factory=list)  # lines that are no entries, and where they begin
    _rest_at: str = ""
    _gone: int = 0

    def read(self, where: str, line: bytes) -> Iterator[Flaw]:
        """Take the next line, and say what is wrong with it, or with the ones before."""
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
        """No line follows."""
        if self._rest:
            yield Flaw(self._rest_at, NO_RECORD)
        if self.first > self._gone + 1:
            yield Flaw("the beginning", f"lines {self._gone + 1} to {self.first - 1} are missing")
        if self.mark is not None and self.mark.seq > self.head.seq:
            what = f"lines {self.head.seq + 1} to {self.mark.seq} are missing"
            yield Flaw("the end", what)

    def _linked(self, where: str, entry: Entry) -> Iterator[Flaw]:
        if not self.first:
            self.first = entry.seq
            if entry.seq == 1 and entry.prev != GENESIS and not entry.torn:
                yield Flaw(where, "is the first line, and follows another")
            if not self._rest:
                return  # what it follows is gone
        elif entry.seq != self.head.seq + 1:
            yield Flaw(where, f"is number {entry.seq}, and follows number {self.head.seq}")
        if self._rest and not entry.torn:
            yield Flaw(self._rest_at, NO_RECORD)
        elif entry.torn and not self._rest:
            yield Flaw(where, "follows what a crash left of a line, and that is not there")
        if entry.prev != (digest(b"\n".join(self._rest)) if self._rest else self.head.hash):
            yield Flaw(where, "does not follow the line before it: that was changed, or one is missing")


def flaws(lines: Iterable[bytes], mark: Head | None = None) -> list[Flaw]:
    """All that is wrong with a chain; lines are numbered from 1."""
    follower = Follower(mark)
    within = [flaw for number, line in enumerate(lines, 1) for flaw in follower.read(f"line {number}", line)]
    return [*within, *follower.end()]
