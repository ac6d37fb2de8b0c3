"""Encoding of files and directories as a stream of records over a channel; pure functions.

A record has its kind (1 byte), the length of the contents (4, big-endian), and the contents. A directory precedes its
contents, which precede everything else; an entry of a file is followed by its bytes in DATA, up to END. DONE is the
last record: a stream without it is incomplete. The receiver must not trust names and links in the stream.

The host side imports this module, so it uses only the standard library's json.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from mesos_gpu.wire.body import parsed

MAX_DATA: Final = 1 << 18  # bytes of a record
#: Bytes of a JSON record: enough for a path of the longest names with all bytes escaped.
MAX_WORDS: Final = 1 << 18
MAX_DEPTH: Final = 100  # nesting of directories
MAX_NAME: Final = 255  # bytes (limits.h, NAME_MAX)
MODES: Final = 0o777  # permissions that are copied, without set-user-ID, set-group-ID and sticky bits
_HEAD: Final = struct.Struct("!BI")
_NUMBERS: Final = {"mode": 0o10000, "size": 1 << 63, "mtime_ns": 1 << 63, "uid": 1 << 32, "gid": 1 << 32}


class Mark(IntEnum):
    """Kind of a record."""

    ENTRY = 1
    DATA = 2  # bytes of the file of the last entry
    END = 3  # end of that file
    FAULT = 4  # something could not be read or written; a file in transfer is abandoned
    LEFT = 5  # something is not copied: a special file, or a link that leads out of the copied tree
    DONE = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, a directory or a link.

    Attributes:
        path: Path as names, relative to the requested path, which is ().
        kind: "file", "dir", "link"; in a listing also "other".
        mode: Permissions as a number.
        size: Size in bytes; approximate for a file that is sent.
        mtime_ns: Time of the last change, nanoseconds since the epoch.
        target: Target of a link.
        uid, gid: Ids of the owner; -1 if not given.
        user: User name of the owner on the host; "" if not known.
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
    """Something that is not copied, with the reason: content of FAULT and LEFT."""

    path: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """Number of completely transferred files, their bytes, and number of failures."""

    files: int
    bytes: int
    faults: int


@dataclass(frozen=True, slots=True)
class Record:
    """A record. `what` is set for ENTRY, FAULT, LEFT and DONE; `data` for DATA."""

    mark: Mark
    what: Entry | Said | Done | None = None
    data: bytes = b""


def entry(each: Entry) -> bytes:
    """Encode an ENTRY record."""
    value: dict[str, Any] = {
        "path": list(map(_bytes, each.path)),
        "kind": each.kind,
        "target": _bytes(each.target),
    }
    value |= {"user": _bytes(each.user)} if each.user else {}
    value |= {name: number for name in _NUMBERS if (number := getattr(each, name)) >= 0}
    return _record(Mark.ENTRY, json.dumps(value).encode())


def data(piece: bytes) -> bytes:
    """Encode a DATA record of at most `MAX_DATA` bytes."""
    return _record(Mark.DATA, piece)


def end() -> bytes:
    """Encode an END record."""
    return _record(Mark.END, b"")


def said(mark: Mark, each: Said) -> bytes:
    """Encode a FAULT or LEFT record."""
    value = {"path": list(map(_bytes, each.path)), "why": _bytes(each.why[:1000])}
    return _record(mark, json.dumps(value).encode())


def done(each: Done) -> bytes:
    """Encode a DONE record."""
    value = {"files": each.files, "bytes": each.bytes, "faults": each.faults}
    return _record(Mark.DONE, json.dumps(value).encode())


class Decoder:
    """Incremental decoder of the records in a stream."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.is_whole = False  # whether DONE was received

    def take(self, piece: bytes) -> Iterator[Record]:
        """Add received bytes, and yield the records that are complete.

        Raises:
            ValueError: The bytes are not a valid stream.
        """
        self._kept += piece
        at = 0
        while len(self._kept) - at >= _HEAD.size:
            number, size = _HEAD.unpack_from(self._kept, at)
            mark = Mark(number)
            if self.is_whole or size > (MAX_DATA if mark is Mark.DATA else MAX_WORDS):
                raise ValueError(
                    f"unexpected record of {size} bytes" + (" after DONE" if self.is_whole else "")
                )
            if len(self._kept) - at - _HEAD.size < size:
                break
            at += _HEAD.size + size
            self.is_whole = mark is Mark.DONE
            yield _decoded(mark, bytes(self._kept[at - size : at]))
        del self._kept[:at]


def leads_out(path: tuple[str, ...], target: str) -> bool:
    """Return whether a link at a path may lead out of the copied tree.

    A link stays inside if it is relative, has '..' only at its beginning, and goes up no further than the tree.
    """
    names = target.split("/")
    up = 0
    while up < len(names) and names[up] == "..":
        up += 1
    return not target or target.startswith("/") or ".." in names[up:] or up > len(path) - 1


def is_name(value: object) -> bool:
    """Return whether a value is valid as a name in a directory."""
    if not isinstance(value, str) or value in ("", ".", "..") or "/" in value or "\0" in value:
        return False
    try:
        return len(value.encode(errors="surrogateescape")) <= MAX_NAME
    except UnicodeEncodeError:  # unpaired surrogates that do not stand for bytes
        return False


def _bytes(name: str) -> str:
    """Return the bytes of a name as characters with these numbers, as names may not be UTF-8, which JSON requires."""
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
        raise ValueError(f"{mark.name} must be an object")
    if mark is Mark.DONE:
        return Record(mark, Done(*(_number(value, name, 1 << 63) for name in ("files", "bytes", "faults"))))
    if mark is Mark.ENTRY:
        return Record(mark, _entry_of(value))
    return Record(mark, Said(_path_of(value), _text(value, "why")))


def _entry_of(value: dict[str, Any]) -> Entry:
    numbers = {name: _number(value, name, most) for name, most in _NUMBERS.items() if name in value}
    kind = _text(value, "kind")
    if kind not in ("file", "dir", "link", "other"):
        raise ValueError(f"an entry has the unknown kind {kind[:20]!r}")
    user = _text(value, "user") if "user" in value else ""
    return Entry(_path_of(value), kind, target=_text(value, "target"), user=user[:MAX_NAME], **numbers)


def _path_of(value: dict[str, Any]) -> tuple[str, ...]:
    names = value.get("path")
    if (
        not isinstance(names, list)
        or len(names) > MAX_DEPTH
        or not all(isinstance(name, str) for name in names)
    ):
        raise ValueError(f"the path of an entry must be a list of at most {MAX_DEPTH} names")
    path = tuple(map(_name, names))
    if not all(map(is_name, path)):
        raise ValueError("the path of an entry has an invalid name")
    return path


def _text(value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(f"{name} of an entry must be a string without NUL")
    return _name(text)


def _number(value: dict[str, Any], name: str, most: int) -> int:
    number = value.get(name)
    if type(number) is not int or not 0 <= number < most:
        raise ValueError(f"{name} of an entry must be a whole number from 0 up to its limit")
    return number
