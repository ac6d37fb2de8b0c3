"""Several connections over one stream of bytes each way: records, which both sides send. Pure.

A record is its kind (1 byte), the connection's number (4, big-endian), the number of bytes that follow (4), and these.
Who accepts connections numbers them and sends OPEN; the other one connects. Of each connection, a side sends no more
bytes than `WINDOW` for which it got no CREDIT, so one that nobody reads holds up no other.

Only the standard library: the host side imports it.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

WINDOW: Final = 1 << 18  # bytes of one connection, each way, that may be under way
MAX_DATA: Final = 1 << 15  # bytes of a record
MAX_CONNECTIONS: Final = 256  # at once
_HEAD: Final = struct.Struct("!BII")
_NUMBER: Final = struct.Struct("!I")


class Mark(IntEnum):
    """What a record is."""

    OPEN = 1  # a connection to the port (4 bytes)
    DATA = 2
    END = 3  # no more of this side's bytes will come
    CLOSED = 4  # it is over; the bytes say why, in words, if it was never there
    CREDIT = 5  # how many bytes were taken (4 bytes)


@dataclass(frozen=True, slots=True)
class Record:
    """A record. `data`: of DATA and CLOSED; `number`: of OPEN and CREDIT."""

    mark: Mark
    id: int
    data: bytes = b""
    number: int = 0


def encode(record: Record) -> bytes:
    """The record's bytes."""
    data = _NUMBER.pack(record.number) if record.mark in (Mark.OPEN, Mark.CREDIT) else record.data
    return _HEAD.pack(record.mark, record.id, len(data)) + data


class Decoder:
    """Records out of bytes, however these come."""

    def __init__(self) -> None:
        """Nothing has come."""
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[Record]:
        """The records that are whole by now.

        Raises:
            ValueError: What comes is none.
        """
        self._kept += data
        while len(self._kept) >= _HEAD.size:
            mark, id, size = _HEAD.unpack_from(self._kept)
            if size > MAX_DATA:
                raise ValueError(f"a record has {size} bytes, and {MAX_DATA} are taken")
            if len(self._kept) < _HEAD.size + size:
                return
            body = bytes(self._kept[_HEAD.size : _HEAD.size + size])
            del self._kept[: _HEAD.size + size]
            yield _record(Mark(mark), id, body)


def _record(mark: Mark, id: int, body: bytes) -> Record:
    if mark is Mark.END and body:
        raise ValueError(f"END has {len(body)} bytes, and is to have none")
    if mark not in (Mark.OPEN, Mark.CREDIT):
        return Record(mark, id, body)
    if len(body) != _NUMBER.size:
        raise ValueError(f"{mark.name} has {_NUMBER.size} bytes, not {len(body)}")
    number = _NUMBER.unpack(body)[0]
    if number > (WINDOW if mark is Mark.CREDIT else 65535):
        raise ValueError(f"{mark.name} of {number} is too much")
    return Record(mark, id, number=number)
