"""Files and directories as a stream of records, for the bytes of a channel. Pure.

A record is a byte that says what it is, the number of bytes that follow (4, big-endian), and these. A directory comes
before what is in it, and all that is in it before anything else; a file's bytes follow it, in DATA, up to its END. DONE
is the last: a stream without it is not whole. Who receives believes no name and no link of it.

Only the standard library's json: the host side imports it.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from mesos_gpu.wire.body import parsed

MAX_DATA: Final = 1 << 18  # bytes of a record
MAX_WORDS: Final = (
    1 << 18
)  # bytes of one that is JSON: a path of the longest names, of bytes that JSON escapes, fits
MAX_DEPTH: Final = 100  # directories in each other
MAX_NAME: Final = 255  # bytes (limits.h, NAME_MAX)
MODES: Final = 0o777  # that are kept: neither set-user-ID nor sticky
_HEAD: Final = struct.Struct("!BI")
_NUMBERS: Final = {"mode": 0o10000, "size": 1 << 63, "mtime_ns": 1 << 63, "uid": 1 << 32, "gid": 1 << 32}


class Mark(IntEnum):
    """What a record is."""

    ENTRY = 1
    DATA = 2  # bytes of the file whose entry came last
    END = 3  # of that file: all of its bytes have come
    FAULT = 4  # something could not be read or written; a file that is under way is given up
    LEFT = 5  # something is not copied, as it is neither file nor directory, or a link that leads elsewhere
    DONE = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, a directory or a link.

    Attributes:
        path: Names from what was asked for, which is ().
        kind: "file", "dir", "link"; in a list "other", too.
        mode: Its permissions.
        size: Bytes; of a file that is sent about as many.
        mtime_ns: When it was changed, nanoseconds since the epoch.
        target: Of a link.
        uid, gid: Whose it is; -1: not said.
        user: Name of the user where the file is; "": not known.
    """

    path: tuple[str, ...]
    kind: str
    mode: int = 0
    size: int = 0
    mtime_ns: int = 0
    target: str = ""
    uid: int = -1
    gid: int = -1
    user: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """What is not copied, and why: a FAULT, or LEFT."""

    path: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """How many files went or came whole, their bytes, and how much failed."""

    files: int
    bytes: int
    faults: int


@dataclass(frozen=True, slots=True)
class Record:
    """A record: `what` of ENTRY, FAULT, LEFT and DONE; `data` of DATA."""

    mark: Mark
    what: Entry | Said | Done | None = None
    data: bytes = b""


def entry(each: Entry) -> bytes:
    """Encode an ENTRY."""
    value: dict[str, Any] = {
        "path": list(map(_bytes, each.path)),
        "kind": each.kind,
        "target": _bytes(each.target),
    }
    value |= {"user": _bytes(each.user)} if each.user else {}
    value |= {name: number for name in _NUMBERS if (number := getattr(each, name)) >= 0}
    return _record(Mark.ENTRY, json.dumps(value).encode())


def data(piece: bytes) -> bytes:
    """Encode DATA, at most `MAX_DATA` bytes."""
    return _record(Mark.DATA, piece)


def end() -> bytes:
    """Encode END."""
    return _record(Mark.END, b"")


def said(mark: Mark, each: Said) -> bytes:
    """Encode a FAULT or LEFT."""
    value = {"path": list(map(_bytes, each.path)), "why": _bytes(each.why[:1000])}
    return _record(mark, json.dumps(value).encode())


def done(each: Done) -> bytes:
    """Encode DONE."""
    value = {"files": each.files, "bytes": each.bytes, "faults": each.faults}
    return _record(Mark.DONE, json.dumps(value).encode())


class Decoder:
    """A stream as records."""

    def __init__(self) -> None:
        """Nothing has come."""
        self._kept = bytearray()
        self.is_whole = False  # whether DONE has come

    def take(self, piece: bytes) -> Iterator[Record]:
        """More bytes; the records that are complete by them.

        Raises:
            ValueError: It is no such stream.
        """
        self._kept += piece
        at = 0
        while len(self._kept) - at >= _HEAD.size:
            number, size = _HEAD.unpack_from(self._kept, at)
            mark = Mark(number)
            if self.is_whole or size > (MAX_DATA if mark is Mark.DATA else MAX_WORDS):
                raise ValueError(f"a record of {size} bytes" + (" after the last" if self.is_whole else ""))
            if len(self._kept) - at - _HEAD.size < size:
                break
            at += _HEAD.size + size
            self.is_whole = mark is Mark.DONE
            yield _decoded(mark, bytes(self._kept[at - size : at]))
        del self._kept[:at]


def leads_out(path: tuple[str, ...], target: str) -> bool:
    """Whether a link at that path could lead out of what is copied: one that may not is relative, goes up at its
    beginning alone, and not beyond."""
    names = target.split("/")
    up = 0
    while up < len(names) and names[up] == "..":
        up += 1
    return not target or target.startswith("/") or ".." in names[up:] or up > len(path) - 1


def is_name(value: object) -> bool:
    """Whether that is the name of something in a directory."""
    if not isinstance(value, str) or value in ("", ".", "..") or "/" in value or "\0" in value:
        return False
    try:
        return len(value.encode(errors="surrogateescape")) <= MAX_NAME
    except UnicodeEncodeError:  # other halves of surrogates
        return False


def _bytes(name: str) -> str:
    """Bytes as characters of the same numbers: names may be no UTF-8, and then are no text that JSON has."""
    return name.encode(errors="surrogateescape").decode("latin-1")


def _name(text: str) -> str:
    return text.encode("latin-1").decode(errors="surrogateescape")


def _record(mark: Mark, body: bytes) -> bytes:
    return _HEAD.pack(mark, len(body)) + body


def _decoded(mark: Mark, body: bytes) -> Record:
    if mark is Mark.DATA:
        return Record(mark, data=body)
    if mark is Mark.END:
        return Record(mark)
    value = parsed(body)
    if not isinstance(value, dict):
        raise ValueError(f"{mark.name} is to be an object")
    if mark is Mark.DONE:
        return Record(mark, Done(*(_number(value, name, 1 << 63) for name in ("files", "bytes", "faults"))))
    if mark is Mark.ENTRY:
        return Record(mark, _entry_of(value))
    return Record(mark, Said(_path_of(value), _text(value, "why")))


def _entry_of(value: dict[str, Any]) -> Entry:
    numbers = {name: _number(value, name, most) for name, most in _NUMBERS.items() if name in value}
    kind = _text(value, "kind")
    if kind not in ("file", "dir", "link", "other"):
        raise ValueError(f"an entry of kind {kind[:20]!r}")
    user = _text(value, "user") if "user" in value else ""
    return Entry(_path_of(value), kind, target=_text(value, "target"), user=user[:MAX_NAME], **numbers)


def _path_of(value: dict[str, Any]) -> tuple[str, ...]:
    names = value.get("path")
    if (
        not isinstance(names, list)
        or len(names) > MAX_DEPTH
        or not all(isinstance(each, str) for each in names)
    ):
        raise ValueError(f"the path of an entry is to be a list of at most {MAX_DEPTH} names")
    path = tuple(map(_name, names))
    if not all(map(is_name, path)):
        raise ValueError("the path of an entry has what is no name")
    return path


def _text(value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(f"{name} of an entry is to be a text")
    return _name(text)


def _number(value: dict[str, Any], name: str, most: int) -> int:
    number = value.get(name)
    if type(number) is not int or not 0 <= number < most:
        raise ValueError(f"{name} of an entry is to be a whole number from 0")
    return number
