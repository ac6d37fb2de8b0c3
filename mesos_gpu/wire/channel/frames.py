"""Frames of a channel into a task: binary messages of a byte for the kind, and contents; pure functions.

The client sends STDIN, EOF, SIZE, SIGNAL and CREDIT; the host sends STDOUT, STDERR, CREDIT, and finally EXIT or FAILED.
Neither side sends more than `WINDOW` bytes of streams without CREDIT. So proxies in between can accept everything at
once: a signal reaches a command that reads nothing, and keepalives arrive even if no one reads the command's output.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

WINDOW: Final = 1 << 20  # bytes in transit in each direction
MAX_DATA: Final = 1 << 16  # bytes of one frame's data
MAX_AHEAD: Final = WINDOW + MAX_DATA  # limit for a host, whose two outputs may exceed the window by one frame
MAX_FRAME: Final = MAX_DATA + 1
_SIZE: Final = struct.Struct("!HH")
_NUMBER: Final = struct.Struct("!I")
_STATUS: Final = 1 << 8
_SIGNALS: Final = 65


class Kind(IntEnum):
    """Kind of a frame."""

    STDIN = 0  # input of the command
    STDOUT = 1  # output of the command; with a terminal all of its output
    STDERR = 2
    EOF = 3  # end of stdin
    SIZE = 4  # change of rows and columns of the client's terminal
    SIGNAL = 5  # number of a signal for the command
    CREDIT = 6  # number of received bytes that were processed
    EXIT = 7  # exit code of the command, 128+N after signal N; the last frame
    FAILED = 8  # reason why it could not be started; the last frame
    ORDER = 9  # order of the scheduler to the host


FROM_CLIENT: Final = frozenset({Kind.STDIN, Kind.EOF, Kind.SIZE, Kind.SIGNAL, Kind.CREDIT})
FROM_HOST: Final = frozenset({Kind.STDOUT, Kind.STDERR, Kind.CREDIT, Kind.EXIT, Kind.FAILED})
LAST: Final = frozenset({Kind.EXIT, Kind.FAILED})


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame. `data` is set for STDIN, STDOUT, STDERR, FAILED (UTF-8) and ORDER (JSON); `numbers` for other kinds."""

    kind: Kind
    data: bytes = b""
    numbers: tuple[int, ...] = ()


def encode(frame: Frame) -> bytes:
    """Encode a frame as a message.

    Raises:
        ValueError: A number is out of range, or there is too much data.
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
        raise ValueError(f"{frame.kind.name} has {len(body)} bytes, more than {MAX_DATA}")
    return bytes((frame.kind,)) + body


def decode(message: bytes) -> Frame:
    """Decode a message as a frame.

    Raises:
        ValueError: The message is not a valid frame.
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
        raise ValueError(f"EOF must have no data, got {len(body)} bytes")
    return Frame(kind, body)


def kind_of(message: bytes) -> Kind:
    """Return the kind of a message without decoding the rest.

    Raises:
        ValueError: The message is empty or has an unknown kind.
    """
    if not message:
        raise ValueError("a frame has 1 byte or more, not 0")
    return Kind(message[0])


_NUMBERED: Final = {Kind.SIGNAL: _SIGNALS, Kind.CREDIT: WINDOW + 1, Kind.EXIT: _STATUS}


def _unpacked(form: struct.Struct, kind: Kind, body: bytes) -> tuple[int, ...]:
    if len(body) != form.size:
        raise ValueError(f"{kind.name} has {form.size} bytes, not {len(body)}")
    return tuple(form.unpack(body))
