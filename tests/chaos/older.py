"""A check that a state saved by a program of an earlier schema is read without loss, by SQLite and its migrations."""

import re
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from mesos_gpu.adapters.sqlite import schema, seal
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.errors import Damaged
from mesos_gpu.model.saves import NOUNS, Save, Saved, SaveFramework
from tests.chaos.violation import Violation

READ: Final = "what an earlier schema saved is read as it was written"
EARLIER: Final = (
    seal.SEALED_FROM - 1
)  # the last schema whose rows equal the present ones but for their checksums
_SEAL: Final = 9  # bytes at the end of a row
#: Tables of later migrations, whose content the earlier program did not have.
_LATER: Final = frozenset(
    name
    for number, script in schema.steps()
    if number > EARLIER
    for name in re.findall(r"CREATE TABLE (\w+)", script)
)
_ALTERED: Final = re.compile(r"ALTER TABLE (\w+) (?:RENAME COLUMN (\w+) TO (\w+)|ADD COLUMN (\w+))")
#: Statements that undo later migrations, the last first.
_TAKEN_BACK: Final = (
    *(
        f"DROP INDEX {name}"
        for number, script in schema.steps()
        if number > EARLIER
        for name in re.findall(r"CREATE INDEX (\w+)", script)
    ),
    *(
        f"ALTER TABLE {table} DROP COLUMN {added}"
        if added
        else f"ALTER TABLE {table} RENAME COLUMN {new} TO {old}"
        for number, script in reversed(schema.steps())
        for table, old, new, added in reversed(_ALTERED.findall(script))
        if number > EARLIER and table not in _LATER
    ),
    *(f"DROP TABLE {name}" for name in sorted(_LATER)),
)
_KNOWN: Final = tuple(noun for noun in NOUNS if (noun.table or noun.plural) not in _LATER)


def see_read(saved: Saved) -> None:
    """Check that a state which a program of the earlier schema has saved is read without a change.

    Raises:
        Violation: Something is missing or changed, or the state is refused.
    """
    try:
        read = brought_up(saved)
    except Damaged as error:
        raise Violation(READ, str(error)) from error
    for noun in _KNOWN:
        before, after = getattr(saved, noun.plural), getattr(read, noun.plural)
        if before != after:
            raise Violation(READ, f"{noun.plural}: {before!r:.200} became {after!r:.200}")
    if saved.framework_id != read.framework_id:
        raise Violation(READ, f"the framework id {saved.framework_id} became {read.framework_id}")


def brought_up(saved: Saved) -> Saved:
    """Save a state, convert it to the earlier schema, and load it.

    Raises:
        Damaged: The state is refused.
    """
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-chaos-") as directory:
        path = Path(directory) / "state.sqlite"
        store = SqliteStore(path)
        store.save(_saves(saved))
        store.close()
        _age(path, EARLIER)
        with closing(SqliteStore(path)) as store:
            return store.load()


def _saves(saved: Saved) -> list[Save]:
    batch: list[Save] = [SaveFramework(saved.framework_id or "")]
    for noun in _KNOWN:
        values = getattr(saved, noun.plural)
        batch += [noun.save(value) for value in (values if noun.key else (values,))]
    return batch


def _age(path: Path, number: int) -> None:
    """Remove checksums and the results of later migrations, and set the number of the schema."""
    with closing(sqlite3.connect(path)) as db, db:
        for table in schema.UNSEALED:
            for *beside, row in _done(db, table.read):
                _done(db, table.write, row[:-_SEAL], *beside)
        for statement in _TAKEN_BACK:
            db.execute(statement)
        db.execute(f"PRAGMA user_version={number}")


def _done(db: sqlite3.Connection, statement: str, *values: object) -> list[tuple[Any, ...]]:
    return db.execute(statement, values).fetchall()
