"""Multiplexing of connections over one byte stream in each direction, as records that both sides send; pure functions.

A record has its kind (1 byte), the connection's number (4, big-endian), the length of the contents (4), and the
contents. The side that accepts connections numbers them and sends OPEN; the other side connects. For each connection,
a side sends no more than `WINDOW` bytes without CREDIT, so that a connection that no one reads does not block others.

The host side imports this module, so it uses only the standard library.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

WINDOW: Final = 1 << 18  # bytes of one connection in transit in each direction
MAX_DATA: Final = 1 << 15  # bytes of a record
MAX_CONNECTIONS: Final = 256  # at once
_HEAD: Final = struct.Struct("!BII")
_NUMBER: Final = struct.Struct("!I")


class Mark(IntEnum):
    """Kind of a record."""

    OPEN = 1  # open a connection to a port (4 bytes)
    DATA = 2
    END = 3  # no more data from this side
    CLOSED = 4  # connection closed; the contents have the reason if it could not be opened
    CREDIT = 5  # number of received bytes that were processed (4 bytes)


@dataclass(frozen=True, slots=True)
class Record:
    """A record. `data` is set for DATA and CLOSED; `number` for OPEN and CREDIT."""

    mark: Mark
    id: int
    data: bytes = b""
    number: int = 0


def encode(record: Record) -> bytes:
    """Encode a record."""
    data = _NUMBER.pack(record.number) if record.mark in (Mark.OPEN, Mark.CREDIT) else record.data
    return _HEAD.pack(record.mark, record.id, len(data)) + data


class Decoder:
    """Incremental decoder of records from a byte stream."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[Record]:
        """Add received bytes, and yield the records that are complete.

        Raises:
            ValueError: The bytes are not a valid record.
        """
        self._kept += data
        while len(self._kept) >= _HEAD.size:
            mark, id, size = _HEAD.unpack_from(self._kept)
            if size > MAX_DATA:
                raise ValueError(f"a record has {size} bytes, more than {MAX_DATA}")
            if len(self._kept) < _HEAD.size + size:
                return
            body = bytes(self._kept[_HEAD.size : _HEAD.size + size])
            del self._kept[: _HEAD.size + size]
            yield _record(Mark(mark), id, body)


def _record(mark: Mark, id: int, body: bytes) -> Record:
    if mark is Mark.END and body:
        raise ValueError(f"END must have no data, got {len(body)} bytes")
    if mark not in (Mark.OPEN, Mark.CREDIT):
        return Record(mark, id, body)
    if len(body) != _NUMBER.size:
        raise ValueError(f"{mark.name} has {_NUMBER.size} bytes, not {len(body)}")
    number = _NUMBER.unpack(body)[0]
    if number > (WINDOW if mark is Mark.CREDIT else 65535):
        raise ValueError(f"{mark.name} is {number}, which is too large")
    return Record(mark, id, number=number)
