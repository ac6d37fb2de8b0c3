"""Checksums at the end of all rows of a state, by which changes on the disk are detected.

SQLite detects damage to its own structure, and its log has checksums; the content of rows is not protected.
"""

import re
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mesos_gpu.adapters.sqlite.version import version_of

SEALED_FROM: Final = 13  # first schema with checksums
SUMMED_FROM: Final = 15  # first schema with a sum of checksums
#: Facts that are not part of the sum: the sum itself, and the number of batches, which the mark has.
UNSUMMED: Final = ("sum", "batch")
_FACTS: Final = "facts"
_SIZE: Final = 9  # bytes: "#" and eight hexadecimal digits
_SEAL: Final = re.compile(rb"#[0-9a-f]{8}")


def sealed(table: str, columns: Sequence[object], body: bytes) -> bytes:
    """Return a body with a checksum of the body, its table's name and the columns beside it: texts, numbers or None."""
    return body + _seal(table, columns, body)


def opened(table: str, columns: Sequence[object], row: bytes | str) -> bytes:
    """Return the body of a row without its checksum.

    Raises:
        sqlite3.DatabaseError: The checksum is wrong.
    """
    data = row.encode() if isinstance(row, str) else row
    body = data[:-_SIZE]
    if data[-_SIZE:] != _seal(table, columns, body):
        raise sqlite3.DatabaseError(f"a row of {table} has a wrong checksum: {tuple(columns)!r:.200}")
    return body


def _seal(table: str, columns: Sequence[object], body: bytes) -> bytes:
    return b"#%08x" % zlib.crc32(
        "\0".join((table, *map(_word, columns))).encode(errors="surrogatepass"), zlib.crc32(body)
    )


def _word(column: object) -> str:
    """Return a column as text that SQLite does not change: an integer in a column of reals becomes a real there."""
    return repr(float(column)) if isinstance(column, int | float) else str(column)


def sealed_fact(name: str, value: str | bytes) -> str | bytes:
    """Return the value of a fact with its checksum, as text or bytes like the value."""
    if isinstance(value, str):
        return sealed(_FACTS, (name,), value.encode()).decode()
    return sealed(_FACTS, (name,), value)


#: End of a statement that inserts or deletes rows, to make it return their checksums.
SEALS: Final = " RETURNING substr(body, -8)"
_FORGET: Final = "DELETE FROM facts WHERE name = ? RETURNING substr(value, -8)"
_KEEP: Final = "INSERT INTO facts VALUES (?, ?) RETURNING substr(value, -8)"
_UNSUMMED: Final = "INSERT OR REPLACE INTO facts VALUES (?, ?)"


def fact(name: str, value: str | bytes) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the statements that write a fact."""
    row = (name, sealed_fact(name, value))
    if name in UNSUMMED:
        yield _UNSUMMED, row
    else:
        yield _FORGET, (name,)
        yield _KEEP, row


def no_fact(name: str) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that deletes a fact."""
    return _FORGET, (name,)


def fact_of(db: sqlite3.Connection, name: str) -> str | bytes | None:
    """Return a fact; None if there is no such fact.

    Raises:
        sqlite3.DatabaseError: The checksum is wrong.
    """
    row = db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    value: str | bytes = row[0]
    if version_of(db) < SEALED_FROM:
        return value
    return (
        opened(_FACTS, (name,), value.encode()).decode()
        if isinstance(value, str)
        else opened(_FACTS, (name,), value)
    )


def text_of(db: sqlite3.Connection, name: str) -> str | None:
    """Return a fact as text; None if there is no such fact.

    Raises:
        sqlite3.DatabaseError: The checksum is wrong.
    """
    value = fact_of(db, name)
    return None if value is None else str(value)


def number_of(db: sqlite3.Connection, name: str) -> int:
    """Return a fact as an integer; 0 if there is no such fact.

    Raises:
        sqlite3.DatabaseError: The checksum is wrong, or the fact is no number.
    """
    text = text_of(db, name) or "0"
    if not text.isdecimal():
        raise sqlite3.DatabaseError(f"{name} is not a number: {text!r:.80}")
    return int(text)


@dataclass(frozen=True, slots=True)
class Unsealed:
    """A table of an earlier schema whose rows have no checksums yet.

    Attributes:
        name: Name of the table.
        read: Query for the columns beside the body, including the key, and the body.
        write: Statement that writes the body of the row with these columns.
    """

    name: str
    read: str
    write: str


def seal_all(db: sqlite3.Connection, table: Unsealed) -> None:
    """Add checksums to all rows of a table, within a transaction.

    Raises:
        sqlite3.DatabaseError: A row has a checksum already.
    """
    for *beside, data in _done(db, table.read):
        _done(db, table.write, _first(table.name, beside, data), *beside)


def number_in(end: str | bytes) -> int:
    """Return the checksum from the last eight characters of a row.

    Raises:
        sqlite3.DatabaseError: The characters are no checksum.
    """
    try:
        return int(end, 16)
    except ValueError:
        raise sqlite3.DatabaseError("a row has no checksum") from None


def _done(db: sqlite3.Connection, statement: str, *values: object) -> list[tuple[Any, ...]]:
    return db.execute(statement, values).fetchall()


def _first(table: str, beside: Sequence[object], data: str | bytes) -> str | bytes:
    raw = data.encode() if isinstance(data, str) else data
    if _SEAL.fullmatch(raw[-_SIZE:]) and _seal(table, beside, raw[:-_SIZE]) == raw[-_SIZE:]:
        raise sqlite3.DatabaseError("a row has a checksum, although its schema has none")
    new = sealed(table, beside, raw)
    return new.decode() if isinstance(data, str) else new
