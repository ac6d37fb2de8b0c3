"""Search of both chains from the newest record back, in order of time; each call reads a limited part of the files."""

import os
import re
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from mesos_gpu.access.asked import Asked, Found
from mesos_gpu.access.chain import MAX_LINE, Entry, decode
from mesos_gpu.adapters.audit.directory import Directory
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.access.record import AuditRecord

KINDS: Final = ("changes", "refusals")
MAX_BYTES: Final = 32 << 20  # read by one search
MAX_S: Final = 2.0
CLOCK_S: Final = 3600.0  # tolerance for lines out of order, after a clock was set back
_BLOCK: Final = 1 << 16
_LOOK: Final = 64  # every so many lines one is decoded in any case, as its time may end the search
_PLAIN: Final = re.compile(r"[A-Za-z0-9 ._:/@-]*")
_END: Final = 1 << 48  # larger than any file
_PLACE: Final = re.compile(r"([0-9]{1,8}):([0-9]{1,15})")


@dataclass(frozen=True, slots=True)
class _Place:
    """Position of a search: bytes before `end` in file `number`, and all earlier files, remain; number 0 for none."""

    number: int
    end: int


class _Budget:
    """Limits of bytes and time for one search."""

    def __init__(self) -> None:
        self._bytes, self._until = MAX_BYTES, time.monotonic() + MAX_S

    def spend(self, size: int) -> None:
        self._bytes -= size

    @property
    def spent(self) -> bool:
        return self._bytes <= 0 or time.monotonic() > self._until


def search(directory: Directory, asked: Asked, *, limit: int, cursor: str) -> Found:
    """Search records, as for `AuditTrail.search`; an answer may have few or no records, and a cursor to continue.

    Raises:
        BadConfiguration: The cursor is invalid.
    """
    budget = _Budget()
    needle = _needle(asked)
    chains = [
        _Chain(kind, place, _walk(directory, kind, place, budget), needle)
        for kind, place in _places(directory, cursor)
    ]
    records: list[tuple[str, AuditRecord]] = []
    for chain in chains:
        chain.advance(budget)
    while len(records) < limit and not any(chain.stopped for chain in chains):
        newest = max((chain for chain in chains if chain.entry), key=_Chain.at, default=None)
        if newest is None or newest.entry is None:
            break
        entry = newest.entry
        if asked.since is not None and entry.record.at < asked.since - CLOCK_S:
            newest.end()
            continue
        if asked.matches(entry.record):
            records.append((f"{newest.kind[0]}{entry.seq}", entry.record))
        newest.advance(budget)
    for chain in chains:
        chain.lines.close()
    places = [chain.place for chain in chains]
    left = any(place.number for place in places)
    return Found(tuple(records), "-".join(f"{place.number}:{place.end}" for place in places) if left else "")


def _needle(filters: Asked) -> bytes:
    """Return bytes that every matching line contains, if possible, so that most other lines are not decoded."""
    plain = (text.removesuffix("*") for text in (filters.on, filters.who))
    return max((text.encode() for text in plain if _PLAIN.fullmatch(text)), key=len, default=b"")


def _places(directory: Directory, cursor: str) -> Iterator[tuple[str, _Place]]:
    matches = [_PLACE.fullmatch(part) for part in cursor.split("-")] if cursor else []
    if cursor and (len(matches) != len(KINDS) or None in matches):
        raise BadConfiguration("invalid cursor", remedy="use the cursor of the last answer, or none")
    for i, kind in enumerate(KINDS):
        match = matches[i] if matches else None
        if match is not None:
            yield kind, _Place(int(match[1]), int(match[2]))
        else:
            numbers = directory.numbers(kind)
            yield kind, _Place(numbers[-1], _END) if numbers else _Place(0, 0)


@dataclass(slots=True)
class _Chain:
    """Backward iteration of a chain. `entry` is the current record, which a search resumed at `place` yields again."""

    kind: str
    place: _Place
    lines: Generator[tuple[bytes, _Place]]
    needle: bytes  # bytes that every matching line contains
    entry: Entry | None = None
    stopped: bool = False  # the budget is spent
    _before: _Place | None = None  # position of the current line

    def at(self) -> float:
        """Return the time of the current record."""
        return self.entry.record.at if self.entry else 0.0

    def advance(self, budget: _Budget) -> None:
        """Go to the next older record that may match; lines that are no records are skipped."""
        for number in count(1):
            self.place, self.entry = self._before or self.place, None
            if budget.spent:
                self.stopped = True
                return
            line = next(self.lines, None)
            if line is None:
                self.end()
                return
            self._before = line[1]
            if self.needle in line[0] or not number % _LOOK:
                self.entry = decode(line[0])
            if self.entry is not None:
                return

    def end(self) -> None:
        """Drop the rest of the chain, as it has no more matches."""
        self.entry, self.place = None, _Place(0, 0)


def _walk(directory: Directory, kind: str, place: _Place, budget: _Budget) -> Generator[tuple[bytes, _Place]]:
    """Yield lines from the newest back, each with the position before it."""
    number, end = place.number, place.end
    while number > 0:
        try:
            fd = directory.open_to_read(kind, number)
        except FileNotFoundError:  # rotation has removed it and all older files
            return
        try:
            for line, begin in _back(fd, min(end, os.fstat(fd).st_size), budget):
                yield line, _Place(number, begin)
        finally:
            os.close(fd)
        number, end = number - 1, _END


def _back(fd: int, end: int, budget: _Budget) -> Iterator[tuple[bytes, int]]:
    """Yield the lines of the first `end` bytes of a file from the last to the first, each with its start."""
    rest = b""  # end of a line whose start was not read yet
    first = True
    while end > 0:
        begin = max(end - _BLOCK, 0)
        data = os.pread(fd, end - begin, begin)
        budget.spend(len(data))
        if first:
            data, first = data.removesuffix(b"\n"), False
        pieces = data.split(b"\n")
        at = begin + len(data)
        for i in range(len(pieces) - 1, 0, -1):
            at -= len(pieces[i])
            yield pieces[i] + rest, at
            at, rest = at - 1, b""
        rest = pieces[0] + rest
        if len(rest) > MAX_LINE:
            rest = b"-"  # no record is that long
        end = begin
    if not first:
        yield rest, 0
