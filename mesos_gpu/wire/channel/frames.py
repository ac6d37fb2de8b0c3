"""Frames of a channel into a task: one binary message each, a byte that says its kind and what belongs to it. Pure.

The client sends STDIN, EOF, SIZE, SIGNAL and CREDIT; the host STDOUT, STDERR, CREDIT, and last EXIT or FAILED. Neither
sends more bytes of streams than `WINDOW` for which it got no CREDIT. So whoever is between takes what comes at once:
a signal reaches a command that reads nothing, and signs of life are seen where nobody reads what it writes.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

WINDOW: Final = 1 << 20  # bytes each way that may be under way
MAX_DATA: Final = 1 << 16  # bytes of one frame's data
MAX_AHEAD: Final = WINDOW + MAX_DATA  # of a host: two outputs may go beyond by one frame
MAX_FRAME: Final = MAX_DATA + 1
_SIZE: Final = struct.Struct("!HH")
_NUMBER: Final = struct.Struct("!I")
_STATUS: Final = 1 << 8
_SIGNALS: Final = 65


class Kind(IntEnum):
    """What a frame is."""

    STDIN = 0  # bytes for the command
    STDOUT = 1  # bytes of it; of a terminal all that it shows
    STDERR = 2
    EOF = 3  # the end of stdin
    SIZE = 4  # rows and columns of the client's terminal
    SIGNAL = 5  # the number of a signal for the command
    CREDIT = 6  # how many bytes were taken of what the other side sent
    EXIT = 7  # its exit code, 128+N after signal N; the last frame
    FAILED = 8  # why it could not be started, in words; the last frame
    ORDER = 9  # what to run: the scheduler's, to the host


FROM_CLIENT: Final = frozenset({Kind.STDIN, Kind.EOF, Kind.SIZE, Kind.SIGNAL, Kind.CREDIT})
FROM_HOST: Final = frozenset({Kind.STDOUT, Kind.STDERR, Kind.CREDIT, Kind.EXIT, Kind.FAILED})
LAST: Final = frozenset({Kind.EXIT, Kind.FAILED})


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame. `data`: of STDIN, STDOUT, STDERR, FAILED (UTF-8) and ORDER (JSON); `numbers`: of the others."""

    kind: Kind
    data: bytes = b""
    numbers: tuple[int, ...] = ()


def encode(frame: Frame) -> bytes:
    """The message.

    Raises:
        ValueError: A number does not fit, or there is too much data.
    """
    try:
        if frame.kind is Kind.SIZE:
            body = _SIZE.pack(*frame.numbers)
        elif frame.kind in _NUMBERED:
            body = _NUMBER.pack(*frame.numbers)
        else:
            body = frame.data
    except struct.error as error:
        raise ValueError(f"{frame.kind.name} of {frame.numbers}: {error}") from error
    if len(body) > MAX_DATA:
        raise ValueError(f"{frame.kind.name} of {len(body)} bytes; at most {MAX_DATA}")
    return bytes((frame.kind,)) + body


def decode(message: bytes) -> Frame:
    """The inverse.

    Raises:
        ValueError: It is no frame.
    """
    if not message or len(message) > MAX_FRAME:
        raise ValueError(f"a frame has 1 to {MAX_FRAME} bytes, not {len(message)}")
    kind, body = kind_of(message), bytes(message[1:])
    if kind is Kind.SIZE:
        return Frame(kind, numbers=_unpacked(_SIZE, kind, body))
    if kind in _NUMBERED:
        numbers = _unpacked(_NUMBER, kind, body)
        if numbers[0] >= _NUMBERED[kind]:
            raise ValueError(f"{kind.name} must be below {_NUMBERED[kind]}, got {numbers[0]}")
        return Frame(kind, numbers=numbers)
    if kind is Kind.EOF and body:
        raise ValueError(f"EOF has {len(body)} bytes, and is to have none")
    return Frame(kind, body)


def kind_of(message: bytes) -> Kind:
    """The kind of a message, which is looked at no further.

    Raises:
        ValueError: It has none that is known.
    """
    if not message:
        raise ValueError("a frame has 1 byte or more, not 0")
    return Kind(message[0])


_NUMBERED: Final = {Kind.SIGNAL: _SIGNALS, Kind.CREDIT: WINDOW + 1, Kind.EXIT: _STATUS}


def _unpacked(form: struct.Struct, kind: Kind, body: bytes) -> tuple[int, ...]:
    if len(body) != form.size:
        raise ValueError(f"{kind.name} has {form.size} bytes, not {len(body)}")
    return tuple(form.unpack(body))
