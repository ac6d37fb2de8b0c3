"""The scheduler's state on disk: SQLite in WAL mode, one transaction for each batch of saves.

It contains what users submit, including secrets in environments, so only its owner may read it. Objects are stored as
JSON bodies beside the columns that are searched. The schema's number is in `PRAGMA user_version`; each step up is one
file in `migrations/`.
"""

import logging
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from mesos_gpu.adapters.high_water import HighWater, Mark
from mesos_gpu.adapters.sqlite import files, large, schema, seal
from mesos_gpu.adapters.sqlite.placing import Placed, put_in_place
from mesos_gpu.adapters.sqlite.version import version_of
from mesos_gpu.adapters.usage import statements
from mesos_gpu.errors import BadConfiguration, Damaged
from mesos_gpu.model import saves
from mesos_gpu.model.saves import FORGOTTEN_BY, NOUNS, SAVED_BY, Noun, Save, Saved
from mesos_gpu.model.tasks.event import LogEvent
from mesos_gpu.model.tasks.hook import Sent, StoredHooks

_T = TypeVar("_T")
_HOOKS, _SENT = "webhooks", "webhooks_sent"  # names of facts
_ANOTHER: Final = "give another backup; nothing was changed"
logger = logging.getLogger(__name__)


class SqliteStore:
    """`Store` in one file. One scheduler uses it at a time; a second one is refused.

    Beside `PATH` are `PATH-wal`, which is a part of the state, `PATH-shm`, `PATH.lock` and `PATH.mark`.

    Args:
        path: State file, which is created, or brought to the latest schema, if needed.
        accept_older: Whether the operator accepts a state that has lost something; unknown running tasks are then held.
        replicated: Whether the state follows a replicated log, which decides how new it is, in place of the mark.

    Raises:
        BadConfiguration: The file is older than an earlier commit, and `accept_older` is false.
        Conflict: Another process has the store open.
        Damaged: The file is no store of this program, is corrupt, or is newer than the program.
    """

    def __init__(self, path: Path, *, accept_older: bool = False, replicated: bool = False) -> None:
        self._path, self._replicated = path, replicated
        with self._refusing_damage():
            self._begin(accept_older)

    def _begin(self, accept_older: bool) -> None:
        """Lock the state, check it against its mark, and open it."""
        path = self._path
        files.make_private(path)
        self._lock = files.lock_of(path)
        if files.restoring(path).exists():
            os.close(self._lock)
            raise BadConfiguration(
                f"a restore of {path} was interrupted",
                remedy=f"repeat it: mesos-gpu restore FILE --state {path}",
            )
        try:
            self._mark = HighWater(Path(f"{path}.mark"))
            try:
                mark = self._check_mark(accept_older)
                self._db = self._opened()
                try:
                    self._large = large.LargeFields(self._db)
                except BaseException:
                    self._db.close()
                    raise
            except BaseException:
                self._mark.close()
                raise
        except BaseException:
            os.close(self._lock)
            raise
        if mark != self._current_mark():
            self._mark_doubtful(mark)
        self._set_mark(mark)
        self._mark.sync()

    def _check_mark(self, accept_older: bool) -> Mark:
        """Compare the file with its mark before anything is written to it. Return the mark to continue from."""
        here = self._peek_mark()
        if self._replicated:
            return here
        try:
            mark = self._mark.read()
        except Damaged:
            if not accept_older:
                raise
            mark = replace(here, batch=here.batch + 1)
        if mark is None and here.batch:
            logger.warning("%s has no mark beside it, so it may not be the latest state", self._path)
            return replace(here, batch=here.batch + 1)
        if mark is not None and _is_older(here, mark):
            if not accept_older:
                raise _older(self._path, here, mark)
            logger.warning("%s is older than its last commit, and is accepted", self._path)
            # Larger than both numbers, so that from now on the file that was replaced counts as the older one.
            latest = mark if here.framework_id in (None, mark.framework_id) else here
            return replace(latest, batch=max(here.batch, mark.batch) + 1)
        if accept_older:
            logger.warning("--accept-older-state is not needed: remove it, or it hides the next loss")
        return here

    def _peek_mark(self) -> Mark:
        """Return the mark that fits the file, without a change to it or its WAL: a refused file must stay intact."""
        if self._path.stat().st_size == 0:
            return Mark(0)
        try:
            db = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True)
            try:
                # Before anything that a later one may have changed.
                schema.see_known(self._path, version_of(db))
                return _mark_of(db)
            finally:
                db.close()
        except sqlite3.OperationalError as error:
            if files.code_of(error) != sqlite3.SQLITE_ERROR:
                raise  # it cannot be read now, which does not mean that it is empty
            return Mark(0)  # it has no tables yet

    def _current_mark(self) -> Mark:
        with self._refusing_damage():
            return _mark_of(self._db)

    def _mark_doubtful(self, mark: Mark) -> None:
        facts: list[tuple[str, str | bytes]] = [("batch", str(mark.batch)), ("doubtful", "1")]
        facts += [("framework_id", mark.framework_id)] if mark.framework_id is not None else []
        facts += [("key", mark.key)] if mark.key is not None else []
        self._keep(facts)

    def _keep(self, facts: Iterable[tuple[str, str | bytes]]) -> None:
        with self._transaction():
            for name, value in facts:
                self._do(seal.fact(name, value))

    def _opened(self) -> sqlite3.Connection:
        """Open the database, check its integrity, and bring it to the latest schema."""
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            with self._refusing_damage():
                db.execute("PRAGMA journal_mode=WAL")
                # Every commit reaches the disk: a power cut must not lose data of which Mesos already knows.
                db.execute("PRAGMA synchronous=FULL")
                # The check covers indexes, too.
                if db.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                    raise sqlite3.DatabaseError("integrity_check found errors")
                schema.migrate(db, self._path)
                self._sum = schema.seen_sum(db)
        except BaseException:
            db.close()
            raise
        return db

    @contextmanager
    def _refusing_damage(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.DatabaseError, msgspec.DecodeError, UnicodeDecodeError) as error:
            if files.lacks_room(error, self._path.parent):
                raise files.no_room(self._path, error) from error
            if isinstance(error, OSError):
                raise
            raise Damaged(
                f"the scheduler's state in {self._path} cannot be read: {error}",
                remedy=f"restore it from a backup: mesos-gpu restore FILE --state {self._path}; or, only if none of "
                "its tasks runs any more, move it away",
            ) from error

    def load(self) -> Saved:
        """Return all saved objects."""
        with self._refusing_damage():
            seen: dict[str, dict[str, Any]] = {}
            nouns: dict[str, Any] = {
                noun.plural: tuple(self._bodies(noun, seen)) for noun in NOUNS if noun.key
            }
            nouns |= {
                noun.plural: value for noun in NOUNS if not noun.key for value in self._bodies(noun, seen)
            }
            return Saved(
                seal.text_of(self._db, "framework_id") or None,
                hooks=self._kept_in(_HOOKS, StoredHooks),
                sent=self._kept_in(_SENT, Sent),
                doubtful=seal.fact_of(self._db, "doubtful") is not None,
                **nouns,
            )

    def _kept_in(self, name: str, kind: type[_T]) -> _T | None:
        value = seal.fact_of(self._db, name)
        return None if value is None else msgspec.json.decode(value, type=kind)

    def events(self) -> list[LogEvent]:
        """Return the stored events, by number."""
        with self._refusing_damage():
            return statements.events_of(self._db)

    def key(self) -> bytes:
        """Return the key for secrets of launches: 32 random bytes, generated at the first call and then stored."""
        with self._refusing_damage():
            if seal.fact_of(self._db, "key") is None:
                self._keep([("key", secrets.token_bytes(32))])
            here = _mark_of(self._db)
        assert here.key is not None, "it was just written"
        self._set_mark(here)
        self._mark.sync()
        return here.key

    @property
    def batch(self) -> int:
        """Number of batches written to this state since it was created."""
        return self._at.batch

    def fact(self, name: str) -> str | None:
        """Return a text that is stored by name beside the state; None if there is no such text."""
        with self._refusing_damage():
            return seal.text_of(self._db, name)

    def follow(self, key: bytes, facts: Mapping[str, str]) -> None:
        """Store the facts by which this store follows a replicated log, in one transaction.

        Args:
            key: Key for secrets of launches, which may be that of another scheduler; it replaces the stored key.
            facts: Texts by name, which `fact` returns.
        """
        with self._refusing_damage():
            self._keep([("key", key), *facts.items()])
        self._set_mark(replace(self._at, key=key))
        self._mark.sync()

    def leave_log(self) -> bool:
        """Stop to follow a replicated log, which could undo a restored state. Return whether a log was followed."""
        with self._refusing_damage(), self._transaction():
            return self._do([seal.no_fact("history"), seal.no_fact("history_begun")]) > 0

    def _set_mark(self, mark: Mark) -> None:
        self._at = mark
        self._mark.write(mark)

    def _bodies(self, noun: Noun, seen: dict[str, dict[str, Any]]) -> Iterator[Any]:
        decoder = msgspec.json.Decoder(noun.kind)
        if not noun.key:
            if (value := seal.fact_of(self._db, noun.table or noun.plural)) is not None:
                yield decoder.decode(value)
            return
        for *columns, body in self._db.execute(_SELECT[noun.kind]):
            whole = seal.opened(noun.table or noun.plural, columns, body)
            yield large.decoded(self._db, decoder, whole, seen)

    def save(self, batch: Iterable[Save]) -> None:
        """Write a batch in one transaction: after a crash all of it or nothing is there.

        Raises:
            NoRoom: The disk is full, or fails. The same batch may be given again, also if only writing the mark failed.
        """
        try:
            at = self._commit(batch)
            self._set_mark(at)
        except (OSError, sqlite3.OperationalError) as error:
            if not files.lacks_room(error, self._path.parent):
                raise
            raise files.no_room(self._path, error) from error

    def confirm(self) -> None:
        """Do nothing: the file lock holds as long as the store is open; see `Store`."""

    def _commit(self, batch: Iterable[Save]) -> Mark:
        at = replace(self._at, batch=self._at.batch + 1)
        with self._transaction():
            for item in batch:
                self._do(_statements(item, self._large))
                if isinstance(item, saves.SaveFramework):
                    at = replace(at, framework_id=item.framework_id)
            self._do(seal.fact("batch", str(at.batch)))
        return at

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run a transaction, which also stores the new sum of checksums."""
        before = self._sum
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            if self._sum != before:
                self._do(seal.fact("sum", str(self._sum)))
            self._db.execute("COMMIT")
        except BaseException:
            self._sum = before
            self._large.end(committed=False)
            if self._db.in_transaction:  # SQLite itself ends it after some errors, such as a full disk
                self._db.execute("ROLLBACK")
            raise
        self._large.end(committed=True)

    def _do(self, statements: Iterable[statements.Statement]) -> int:
        """Execute statements and update the sum of checksums. Return the number of changed rows with checksums."""
        touched = 0
        for statement, values in statements:
            for (end,) in self._db.execute(statement, values).fetchall():
                number = seal.number_in(end)
                self._sum += number if statement.startswith("INSERT") else -number
                touched += 1
        return touched

    def close(self) -> None:
        """Close the file and release its lock."""
        self._db.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
            self._mark.close()


def restore(source: Path, path: Path) -> tuple[Placed, bool]:
    """Replace the state in `path` by a backup; the replaced state is kept beside it.

    The backup may be older than what runs, so the next scheduler checks that before it launches anything.

    Raises:
        NotFound: The backup does not exist.
        Conflict: A scheduler uses the state.
        BadConfiguration: The state's directory belongs to another user.
        Damaged: The backup cannot be read, or a later program wrote it.
        NoRoom: The disk is full.

    Returns:
        What was done, and whether the state has followed a log in ZooKeeper, which it no longer does.
    """
    followed = False

    def prepare(copy: Path) -> None:
        """Make a state that a scheduler can start on of a copy of the backup."""
        nonlocal followed
        logger.disabled = True  # its warnings would be about the requested restore, with the name of a copy
        try:
            schema.see_some(copy)
            store = SqliteStore(copy, accept_older=True)
            try:
                store.load()
                followed = store.leave_log()
            finally:
                store.close()
        except Damaged as error:
            raise Damaged(error.what.replace(str(copy), str(source)), remedy=_ANOTHER) from error
        finally:
            logger.disabled = False

    return put_in_place(source, path, prepare), followed


def _older(path: Path, here: Mark, mark: Mark) -> BadConfiguration:
    """Return the error for a state that is older than its mark, or of another framework."""
    if here.framework_id not in (None, mark.framework_id):
        what = f"{path} is the state of framework {here.framework_id}, not of {mark.framework_id} as before"
    else:
        lost = (
            "is empty"
            if not here.batch
            else f"has {here.batch} of the {mark.batch} batches that were written"
        )
        what = f"{path} {lost}: it is an older copy, or its -wal file was lost"
    return BadConfiguration(
        what,
        remedy=f"restore the latest {path} together with its -wal file, or the latest backup; to go on "
        "with this state, start once with --accept-older-state: running tasks that it does not know are held "
        "(mesos-gpu tasks unknown list)",
    )


def _is_older(here: Mark, mark: Mark) -> bool:
    """Return whether a state is older than its mark, or of another framework.

    A state with exactly one batch more than the mark may have a new framework: a kill prevented writing the mark.
    """
    other = mark.framework_id is not None and here.framework_id != mark.framework_id
    return here.batch < mark.batch or (other and here.batch != mark.batch + 1)


def _mark_of(db: sqlite3.Connection) -> Mark:
    key = seal.fact_of(db, "key")
    return Mark(
        seal.number_of(db, "batch"),
        seal.text_of(db, "framework_id"),
        bytes(key) if isinstance(key, bytes) else None,
    )


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _where(columns: Iterable[str]) -> str:
    return " AND ".join(f"{column} = ?" for column in columns)


#: SQL statements by kind of object; objects of which there is only one are facts. All values are parameters.
_INSERT: Final = {
    noun.kind: f"INSERT INTO {noun.table or noun.plural} VALUES ({'?, ' * len(noun.columns)}?){seal.SEALS}"  # nosec B608 # names of NOUNS
    for noun in NOUNS
    if noun.key
}
_DELETE: Final = {
    noun.kind: f"DELETE FROM {noun.table or noun.plural} WHERE {_where(noun.key)}{seal.SEALS}"  # nosec B608 # names of NOUNS
    for noun in NOUNS
    if noun.key
}
_SELECT: Final = {
    noun.kind: f"SELECT {', '.join(noun.columns)}, body FROM {noun.table or noun.plural} "  # nosec B608 # names of NOUNS
    f"ORDER BY {', '.join(noun.order)}"
    for noun in NOUNS
    if noun.key
}
_DELETE_PARTS: Final = [
    (noun.owner, f"DELETE FROM {noun.table or noun.plural} WHERE {noun.owned_by} = ?{seal.SEALS}")  # nosec B608 # names of NOUNS
    for noun in NOUNS
    if noun.owner is not None
]


def _statements(item: Save, parts: large.LargeFields) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the SQL statements for one save."""
    if isinstance(item, saves.SaveFramework):
        yield from seal.fact("framework_id", item.framework_id)
    elif isinstance(item, saves.SaveTrust):
        yield seal.no_fact("doubtful")
    elif isinstance(item, saves.KeepRecord):
        yield from statements.kept(item)
    elif isinstance(item, saves.FoldRecords):
        yield from statements.folded(item)
    elif isinstance(item, saves.KeepJob | saves.KeepEvent | saves.ForgetEvents):
        yield from statements.remembered(item)
    elif isinstance(item, saves.KeepHooks):
        yield from seal.fact(_HOOKS, msgspec.json.encode(item.hooks))
    elif isinstance(item, saves.KeepSent):
        yield from seal.fact(_SENT, msgspec.json.encode(item.sent))
    elif (noun := SAVED_BY.get(type(item))) is not None:
        value, table = saves.value_of(item), noun.table or noun.plural
        columns, (body, digest) = (*map(_plain, saves.columns_of(item)),), parts.body_of(value)
        if noun.key:
            key = tuple(map(_plain, saves.about(item)))
            before = parts.change(noun.kind, key, digest)
            yield from parts.written(value, digest)
            yield _DELETE[noun.kind], key
            yield _INSERT[noun.kind], (*columns, seal.sealed(table, columns, body))
            yield from parts.left(before, digest)
        else:
            yield from seal.fact(table, body)
    else:
        noun, key = FORGOTTEN_BY[type(item)], tuple(map(_plain, saves.about(item)))
        before = parts.change(noun.kind, key, "")
        yield _DELETE[noun.kind], key
        yield from parts.left(before)
        for owner, statement in _DELETE_PARTS:
            if owner is noun.kind:
                yield statement, key
