"""Rows of a state end with a checksum of all that is in them: what a disk has changed is refused, and not believed.

SQLite sees damage to its own structure, and its log has checksums; of what is in a row it says nothing.
"""

import re
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mesos_gpu.adapters.sqlite.version import version_of

SEALED_FROM: Final = 13  # the schema
SUMMED_FROM: Final = 15  # the schema
#: Facts that are no part of the sum: itself, and the number of batches, which the mark beside the state knows.
UNSUMMED: Final = ("sum", "batch")
_FACTS: Final = "facts"
_SIZE: Final = 9  # "#" and eight hexadecimal digits
_SEAL: Final = re.compile(rb"#[0-9a-f]{8}")


def sealed(table: str, columns: Sequence[object], body: bytes) -> bytes:
    """A body with the checksum of it, its table's name and the columns beside it: texts, numbers and None."""
    return body + _seal(table, columns, body)


def opened(table: str, columns: Sequence[object], row: bytes | str) -> bytes:
    """The body of a row.

    Raises:
        sqlite3.DatabaseError: The row is not what was written.
    """
    data = row.encode() if isinstance(row, str) else row
    body = data[:-_SIZE]
    if data[-_SIZE:] != _seal(table, columns, body):
        raise sqlite3.DatabaseError(
            f"a row of {table} is not what was written, by its checksum: {tuple(columns)!r:.200}"
        )
    return body


def _seal(table: str, columns: Sequence[object], body: bytes) -> bytes:
    return b"#%08x" % zlib.crc32(
        "\0".join((table, *map(_word, columns))).encode(errors="surrogatepass"), zlib.crc32(body)
    )


def _word(column: object) -> str:
    """A column, the same before and after SQLite has had it: a whole number in a column of reals is a real there."""
    return repr(float(column)) if isinstance(column, int | float) else str(column)


def sealed_fact(name: str, value: str | bytes) -> str | bytes:
    """A fact as it is in its row: text, or bytes."""
    if isinstance(value, str):
        return sealed(_FACTS, (name,), value.encode()).decode()
    return sealed(_FACTS, (name,), value)


#: Ends a statement that inserts or deletes rows, of which it gives the checksums.
SEALS: Final = " RETURNING substr(body, -8)"
_FORGET: Final = "DELETE FROM facts WHERE name = ? RETURNING substr(value, -8)"
_KEEP: Final = "INSERT INTO facts VALUES (?, ?) RETURNING substr(value, -8)"
_UNSUMMED: Final = "INSERT OR REPLACE INTO facts VALUES (?, ?)"


def fact(name: str, value: str | bytes) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """What writes a fact, as statements."""
    row = (name, sealed_fact(name, value))
    if name in UNSUMMED:
        yield _UNSUMMED, row
    else:
        yield _FORGET, (name,)
        yield _KEEP, row


def no_fact(name: str) -> tuple[str, tuple[Any, ...]]:
    """What deletes a fact, as a statement."""
    return _FORGET, (name,)


def fact_of(db: sqlite3.Connection, name: str) -> str | bytes | None:
    """A fact; None: there is none.

    Raises:
        sqlite3.DatabaseError: It is not what was written.
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
    """A fact that is a text; None: there is none.

    Raises:
        sqlite3.DatabaseError: It is not what was written.
    """
    value = fact_of(db, name)
    return None if value is None else str(value)


def number_of(db: sqlite3.Connection, name: str) -> int:
    """A fact that is a whole number; 0: there is none.

    Raises:
        sqlite3.DatabaseError: It is not what was written.
    """
    text = text_of(db, name) or "0"
    if not text.isdecimal():
        raise sqlite3.DatabaseError(f"{name} is no number: {text!r:.80}")
    return int(text)


@dataclass(frozen=True, slots=True)
class Unsealed:
    """A table that an earlier schema has left without checksums.

    Attributes:
        name: Of the table.
        read: The statement that reads the columns beside the body, the key among them, and the body.
        write: The statement that writes the body where those columns are so.
    """

    name: str
    read: str
    write: str


def seal_all(db: sqlite3.Connection, table: Unsealed) -> None:
    """Seal the rows of a table, within a transaction.

    Raises:
        sqlite3.DatabaseError: A row is sealed already.
    """
    for *beside, data in _done(db, table.read):
        _done(db, table.write, _first(table.name, beside, data), *beside)


def number_in(end: str | bytes) -> int:
    """The checksum, of the last eight characters of a row.

    Raises:
        sqlite3.DatabaseError: It is none.
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
        raise sqlite3.DatabaseError("a row has a checksum already, by its schema it has none")
    new = sealed(table, beside, raw)
    return new.decode() if isinstance(data, str) else new
