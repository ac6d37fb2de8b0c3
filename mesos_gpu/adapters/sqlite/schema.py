"""Schema of a state's file: its number, and the steps to the latest schema, each a file in `migrations/`.

All steps are one transaction: a file has either its previous schema or the latest one. Before them a copy is made,
which an earlier program can use.
"""

import logging
import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

from mesos_gpu.adapters.hooks.store import hooks_of
from mesos_gpu.adapters.sqlite import large
from mesos_gpu.adapters.sqlite.copies import backup
from mesos_gpu.adapters.sqlite.files import MAX_COPIES, keep_few
from mesos_gpu.adapters.sqlite.seal import (
    SEALED_FROM,
    SUMMED_FROM,
    UNSUMMED,
    Unsealed,
    fact,
    number_in,
    number_of,
    seal_all,
)
from mesos_gpu.adapters.sqlite.version import version_of
from mesos_gpu.errors import Damaged
from mesos_gpu.model.saves import NOUNS

logger = logging.getLogger(__name__)
#: Tables whose rows have checksums, with the columns beside the body, and the body. Names are those of NOUNS.
_SEALED: Final = (
    *((noun.table or noun.plural, tuple(noun.columns), "body") for noun in NOUNS if noun.key),
    ("facts", ("name",), "value"),
    ("events", ("number",), "body"),
    ("past_jobs", ("id", "ended_ms"), "body"),
    (large.TABLE, ("digest",), "body"),
)
#: Queries for the checksums of these tables.
_ENDS: Final = tuple(
    (
        name,
        f"SELECT substr({body}, -8) FROM {name}"  # nosec B608 # names of NOUNS
        f"{f' WHERE name NOT IN {UNSUMMED}' if name == 'facts' else ''}",
    )
    for name, _, body in _SEALED
)
_LATER: Final = (
    "past_jobs",
)  # tables whose rows get checksums by the step to sums, not by the step to checksums
UNSEALED: Final = tuple(
    Unsealed(
        name,
        f"SELECT {', '.join(columns)}, {body} FROM {name}",  # nosec B608 # names of NOUNS
        f"UPDATE {name} SET {body} = ? WHERE {' AND '.join(f'{column} IS ?' for column in columns)}",  # nosec B608 # names of NOUNS
    )
    for name, columns, body in _SEALED
)


def steps() -> list[tuple[int, str]]:
    """Return numbers and scripts of all steps, in ascending order."""
    folder = files("mesos_gpu.adapters").joinpath("migrations")
    return sorted(
        (int(entry.name.split("_")[0]), entry.read_text())
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    )


def latest() -> int:
    """Return the number of the latest schema."""
    return steps()[-1][0]


def before(path: Path, version: int) -> Path:
    """Return the path of the copy that is made of a state before it gets a schema."""
    return Path(f"{path}.before-v{version}")


def see_known(path: Path, version: int) -> None:
    """Check that this program supports the schema of a state.

    Raises:
        Damaged: A later program wrote the state.
    """
    newest = latest()
    if version > newest:
        raise Damaged(
            f"{path} has schema {version}, and this program supports {newest} at most",
            remedy=f"run the newer mesos_gpu that wrote it{_or_go_back(path, newest)}",
        )


def see_some(path: Path) -> None:
    """Check that a file is a state at all.

    Raises:
        Damaged: The file has no schema.
    """
    if not _version_in(path):
        raise Damaged(f"{path} is not a state of a scheduler", remedy="give another file")


def _or_go_back(path: Path, supported: int) -> str:
    copies = [
        (_number(copy), copy)
        for copy in path.parent.glob(f"{path.name}.before-v*")
        if _number(copy) > supported
    ]
    for _, copy in sorted(copies):
        if 0 < _version_in(copy) <= supported:
            return (
                f"; or, to go back to this one: mesos-gpu restore {copy} --state {path}, which is the state from "
                "before it got the newer schema: what happened since is not in it"
            )
    return f"; or, to go back to this one, restore a backup that has schema {supported} at most (mesos-gpu restore)"


def _number(copy: Path) -> int:
    text = copy.name.rpartition(".before-v")[2]
    return int(text) if text.isdecimal() else 0


def _version_in(copy: Path) -> int:
    try:
        db = sqlite3.connect(f"{copy.absolute().as_uri()}?mode=ro", uri=True)
        try:
            return version_of(db)
        finally:
            db.close()
    except sqlite3.DatabaseError:
        return 0


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring a state to the latest schema; a state that is not empty is copied first.

    Raises:
        Damaged: A later program wrote the state.
        NoRoom: There is not enough room for the copy.
    """
    version = version_of(db)
    see_known(path, version)
    newest = latest()
    if version == newest:
        return
    if version:
        _keep(path, newest)
    db.execute("BEGIN IMMEDIATE")
    try:
        for number, script in steps():
            if number > version:
                step_up(db, number, script)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def step_up(db: sqlite3.Connection, number: int, script: str) -> None:
    """Execute one step, within a transaction."""
    for statement in _statements(script):
        db.execute(statement)
    if number in (SEALED_FROM, SUMMED_FROM):
        for table in UNSEALED:
            if (table.name in _LATER) == (number == SUMMED_FROM) and _is_there(db, table.name):
                seal_all(db, table)
    if number == SUMMED_FROM:
        for statement, values in fact("sum", str(sum_of(db))):
            db.execute(statement, values)
    db.execute(f"PRAGMA user_version={number}")


def sum_of(db: sqlite3.Connection) -> int:
    """Return the sum of the checksums of all rows."""
    total = 0
    for name, statement in _ENDS:
        if _is_there(db, name):
            total += sum(number_in(end) for (end,) in db.execute(statement))
    return total


def seen_sum(db: sqlite3.Connection) -> int:
    """Return the sum of the checksums of all rows, if it is the stored one.

    Raises:
        sqlite3.DatabaseError: The sum differs from the stored one.
    """
    total = sum_of(db)
    if total != number_of(db, "sum"):
        raise sqlite3.DatabaseError("the sum of checksums is wrong: rows are missing or outdated")
    return total


def _is_there(db: sqlite3.Connection, table: str) -> bool:
    """Return whether a table exists at this step; tables of later steps do not."""
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall())


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script one by one, because `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _keep(path: Path, version: int) -> None:
    """Copy a state before it gets a schema, replacing an older copy of an earlier attempt."""
    copy = before(path, version)
    for file in (copy, hooks_of(copy)):
        file.unlink(missing_ok=True)
    backup(path, copy)
    for old in keep_few(path, "before-v"):
        logger.info("the copy %s is removed: there are %d later ones", old, MAX_COPIES)
