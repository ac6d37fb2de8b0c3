"""The scheduler's state on disk: SQLite in WAL mode, one transaction for each batch of saves.

It holds what users submit, secrets in environments included: only its owner may read it. Nouns are kept as JSON bodies,
beside the columns that are searched by. The schema's number is in `PRAGMA user_version`; each step up is one file in
`migrations/`.
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
from mesos_gpu.model.tasks.hook import KeptHooks, Sent

_T = TypeVar("_T")
_HOOKS, _SENT = "webhooks", "webhooks_sent"  # facts
_ANOTHER: Final = "name another backup; nothing was changed"
logger = logging.getLogger(__name__)


class SqliteStore:
    """`Store` in one file. One scheduler at a time: a second one is refused.

    Beside `PATH` are `PATH-wal`, which is a part of the state, `PATH-shm`, `PATH.lock` and `PATH.mark`.

    Raises:
        BadConfiguration: The file is older than what was once committed, and `accept_older` was not said.
        Conflict: Another process has the store open.
        Damaged: The file is no store of this program, is corrupt, or is newer than the program.
    """

    def __init__(self, path: Path, *, accept_older: bool = False, replicated: bool = False) -> None:
        """Open or create `path`, and bring its schema up. `accept_older`: an operator's word for going on with a state
        that has lost something; what runs and is not in it is held then. `replicated`: it follows a log elsewhere,
        which says how new it is: not the mark."""
        self._path, self._replicated = path, replicated
        with self._refusing_damage():
            self._begin(accept_older)

    def _begin(self, accept_older: bool) -> None:
        path = self._path
        files.make_private(path)
        self._lock = files.lock_of(path)
        if files.restoring(path).exists():
            os.close(self._lock)
            raise BadConfiguration(
                f"a restore of {path} was broken off",
                remedy=f"do it again: mesos-gpu restore FILE --state {path}",
            )
        try:
            self._mark = HighWater(Path(f"{path}.mark"))
            try:
                mark = self._judged(accept_older)
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
        if mark != self._here():
            self._doubt(mark)
        self._set_mark(mark)
        self._mark.sync()

    def _judged(self, accept_older: bool) -> Mark:
        """Hold the file against its mark, before anything is written to it; what it is to go on from."""
        here = self._peeked()
        if self._replicated:
            return here
        try:
            mark = self._mark.read()
        except Damaged:
            if not accept_older:
                raise
            mark = replace(here, batch=here.batch + 1)
        if mark is None and here.batch:
            logger.warning("%s has no mark beside it: whether it is the newest is not known", self._path)
            return replace(here, batch=here.batch + 1)
        if mark is not None and _is_older(here, mark):
            if not accept_older:
                raise _older(self._path, here, mark)
            logger.warning("%s is older than what was written, and is accepted", self._path)
            # Beyond both, so that the file that this one stands for is the older one from now on.
            known = mark if here.framework_id in (None, mark.framework_id) else here
            return replace(known, batch=max(here.batch, mark.batch) + 1)
        if accept_older:
            logger.warning("--accept-older-state is not needed: take it away, or it hides the next loss")
        return here

    def _peeked(self) -> Mark:
        """How far the file is, without a change to it or its WAL: what is refused must stay as it was found."""
        if self._path.stat().st_size == 0:
            return Mark(0)
        try:
            db = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True)
            try:
                schema.see_known(
                    self._path, version_of(db)
                )  # before anything that a later one may have changed
                return _mark_of(db)
            finally:
                db.close()
        except sqlite3.OperationalError as error:
            if files.code_of(error) != sqlite3.SQLITE_ERROR:
                raise  # it cannot be read now, which says nothing of what is in it
            return Mark(0)  # it has no tables yet

    def _here(self) -> Mark:
        with self._refusing_damage():
            return _mark_of(self._db)

    def _doubt(self, mark: Mark) -> None:
        facts: list[tuple[str, str | bytes]] = [("batch", str(mark.batch)), ("doubtful", "1")]
        facts += [("framework_id", mark.framework_id)] if mark.framework_id is not None else []
        facts += [("key", mark.key)] if mark.key is not None else []
        self._keep(facts)

    def _keep(self, facts: Iterable[tuple[str, str | bytes]]) -> None:
        with self._transaction():
            for name, value in facts:
                self._do(seal.fact(name, value))

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            with self._refusing_damage():
                db.execute("PRAGMA journal_mode=WAL")
                # Every commit reaches the disk: what Mesos was told must survive a power cut.
                db.execute("PRAGMA synchronous=FULL")
                if db.execute("PRAGMA integrity_check").fetchone()[0] != "ok":  # indexes, too
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
        """Everything."""
        with self._refusing_damage():
            seen: dict[str, dict[str, Any]] = {}
            nouns: dict[str, Any] = {
                noun.plural: tuple(self._bodies(noun, seen)) for noun in NOUNS if noun.key
            }
            nouns |= {
                noun.plural: each for noun in NOUNS if not noun.key for each in self._bodies(noun, seen)
            }
            return Saved(
                seal.text_of(self._db, "framework_id") or None,
                hooks=self._kept_in(_HOOKS, KeptHooks),
                sent=self._kept_in(_SENT, Sent),
                doubtful=seal.fact_of(self._db, "doubtful") is not None,
                **nouns,
            )

    def _kept_in(self, name: str, kind: type[_T]) -> _T | None:
        value = seal.fact_of(self._db, name)
        return None if value is None else msgspec.json.decode(value, type=kind)

    def events(self) -> list[LogEvent]:
        """The events that are kept, by number."""
        with self._refusing_damage():
            return statements.events_of(self._db)

    def key(self) -> bytes:
        """What secrets of launches are made of: 32 bytes, made at the first call and the same ever after."""
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
        """How many batches were written, in its whole life."""
        return self._at.batch

    def fact(self, name: str) -> str | None:
        """A word that is kept beside all else; None: there is none."""
        with self._refusing_damage():
            return seal.text_of(self._db, name)

    def follow(self, key: bytes, facts: Mapping[str, str]) -> None:
        """Keep words beside all else, and what secrets of launches are made of elsewhere, too."""
        with self._refusing_damage():
            self._keep([("key", key), *facts.items()])
        self._set_mark(replace(self._at, key=key))
        self._mark.sync()

    def leave_log(self) -> bool:
        """Follow no log elsewhere any more: one that has more than this state would undo what was brought back;
        whether there was one."""
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
        """Write a batch in one transaction: all of it or nothing is there after a crash.

        Raises:
            NoRoom: The disk is full, or fails. The same batch may be given again, also where only the mark was not
                written.
        """
        try:
            at = self._commit(batch)
            self._set_mark(at)
        except (OSError, sqlite3.OperationalError) as error:
            if not files.lacks_room(error, self._path.parent):
                raise
            raise files.no_room(self._path, error) from error

    def confirm(self) -> None:
        """See `Store`: the lock of the file is held for as long as it is open."""

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
        """All of it or nothing, with the sum of the checksums as it is then."""
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
            if self._db.in_transaction:  # SQLite ends it by itself for some errors, as of a full disk
                self._db.execute("ROLLBACK")
            raise
        self._large.end(committed=True)

    def _do(self, statements: Iterable[statements.Statement]) -> int:
        """Do them, and add up the checksums that they give; how many rows with checksums are touched."""
        touched = 0
        for statement, values in statements:
            for (end,) in self._db.execute(statement, values).fetchall():
                number = seal.number_in(end)
                self._sum += number if statement.startswith("INSERT") else -number
                touched += 1
        return touched

    def close(self) -> None:
        """Close the file and let another scheduler in."""
        self._db.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
            self._mark.close()


def restore(source: Path, path: Path) -> tuple[Placed, bool]:
    """Let a backup be the state in `path`, which is kept beside; it may be older than what runs, so the next scheduler
    looks what that is before it launches anything.

    Raises:
        NotFound: There is no such backup.
        Conflict: A scheduler uses the state.
        BadConfiguration: The state's directory is another user's.
        Damaged: The backup cannot be read, or a later program wrote it.
        NoRoom: The disk is full.

    Returns:
        What was done, and whether the state has followed a log in ZooKeeper: it does no more.
    """
    followed = False

    def prepare(copy: Path) -> None:
        nonlocal followed
        logger.disabled = True  # it would warn of what is asked for, with the name of a copy
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
    if here.framework_id not in (None, mark.framework_id):
        what = f"{path} is the state of framework {here.framework_id}, and {mark.framework_id} was here"
    else:
        lost = (
            "is empty"
            if not here.batch
            else f"has {here.batch} of the {mark.batch} batches that were written"
        )
        what = f"{path} {lost}: it is older than what runs, or its -wal file was lost"
    return BadConfiguration(
        what,
        remedy=f"bring back the newest {path} together with its -wal file, or the latest backup; to go on "
        "with what is there, start once with --accept-older-state: running tasks that it does not know are held "
        "(mesos-gpu tasks unknown list)",
    )


def _is_older(here: Mark, mark: Mark) -> bool:
    """Or another framework's; one more batch than the mark has may have changed that: a kill came before the mark."""
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


#: SQL by noun. What there is one of is a fact. Names are those of NOUNS; every value is a parameter.
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
    """What one save is in SQL."""
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
