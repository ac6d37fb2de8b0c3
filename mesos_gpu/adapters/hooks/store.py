"""Store of webhooks in a file beside the state: hooks, waiting deliveries, and deliveries that were given up.

The engine never waits for it. Journals contain no secrets; a backup of the state has a copy of this file beside it.
"""

import os
import sqlite3
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from mesos_gpu.errors import Conflict, Damaged, NoRoom, NotFound, TooMuch
from mesos_gpu.model.tasks.hook import Delivery, Hook, HookVersion, Sent, StoredHooks, is_url

MAX_HOOKS: Final = 100
MAX_VERSIONS: Final = 50
MAX_WAITING: Final = 1000  # deliveries of a target; beyond that the oldest are given up
MAX_OF_JOBS: Final = 10_000  # deliveries to URLs that jobs named, in all; beyond that the oldest are dropped
MAX_DEAD: Final = 1000  # deliveries of a hook that were given up; beyond that the oldest are dropped
NONE: Final = HookVersion(0, 0.0, "", "")
_BESIDE: Final = ("-wal", "-shm")
_OWN: Final = stat.S_IRUSR | stat.S_IWUSR
_LIST: Final = "list them with: mesos-gpu webhook list"
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS versions (version INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS secrets (hook TEXT PRIMARY KEY, secret BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deliveries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, target TEXT NOT NULL, event INTEGER NOT NULL, kind TEXT NOT NULL,
    body BLOB NOT NULL, tries INTEGER NOT NULL, next_at REAL NOT NULL, error TEXT NOT NULL, dead_at REAL);
CREATE INDEX IF NOT EXISTS deliveries_by_target ON deliveries (target, id);
CREATE INDEX IF NOT EXISTS deliveries_of_event ON deliveries (event);
CREATE INDEX IF NOT EXISTS deliveries_counted ON deliveries (target, dead_at);
"""
_INSERT: Final = """INSERT INTO deliveries (target, event, kind, body, tries, next_at, error)
VALUES (?, ?, ?, ?, 0, 0, '')"""
_NEXT: Final = """SELECT * FROM deliveries WHERE id IN (
SELECT MIN(id) FROM deliveries WHERE dead_at IS NULL GROUP BY target) AND next_at <= ? ORDER BY next_at, id"""
_BURY: Final = """UPDATE deliveries SET dead_at = ?, error = 'too many wait for this receiver'
WHERE id IN (SELECT id FROM deliveries WHERE target = ? AND dead_at IS NULL ORDER BY id DESC LIMIT -1 OFFSET ?)"""
_TRIM: Final = """DELETE FROM deliveries WHERE id IN (
SELECT id FROM deliveries WHERE target = ? AND dead_at IS NOT NULL ORDER BY id DESC LIMIT -1 OFFSET ?)"""
_DROP: Final = """DELETE FROM deliveries WHERE id IN (
SELECT id FROM deliveries WHERE instr(target, '://') ORDER BY id DESC LIMIT -1 OFFSET ?)"""
#: A target's latest event that was delivered or given up: waiting events after it were never sent, and waiting events
#: before it are retries by hand.
_SETTLE: Final = """INSERT INTO facts SELECT 'settled:' || target, event FROM deliveries
WHERE id = ? AND NOT instr(target, '://') ON CONFLICT DO UPDATE SET value = MAX(value, excluded.value)"""
_FIRST_WAITING: Final = """SELECT CASE WHEN instr(target, '://') THEN '' ELSE target END AS of, MIN(event)
FROM deliveries LEFT JOIN facts ON name = 'settled:' || target
WHERE dead_at IS NULL AND event > COALESCE(value, -1) GROUP BY of"""
_COUNTS: Final = "SELECT target, COUNT(*), COUNT(dead_at) FROM deliveries GROUP BY target"


def hooks_of(state: Path) -> Path:
    """Return the path of the webhook store that belongs to a state file."""
    return Path(f"{state}.hooks")


class HookStore:
    """Webhooks and deliveries in an SQLite file that only its owner may read. Thread-safe.

    Args:
        path: Path of the file.
        clock: Function that returns seconds since the epoch.

    Raises:
        Damaged: The file cannot be read; any call may raise this.
        NoRoom: The file cannot be created, as on a full disk.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock, self.lock = path, clock, threading.RLock()
        self.news = threading.Event()  # set when there is a new delivery to send
        self._given_up = Counter[str]()
        #: Called before webhooks are added, changed or removed, on the calling thread; if it raises, nothing is
        #: changed.
        self.changing: Callable[[], object] = lambda: None
        self.writes = 0  # incremented with each change of the file
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for file in (path, *(Path(f"{path}{end}") for end in _BESIDE)):
            _make_private(file, new=file == path)
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            if self._db.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("integrity_check found errors")
            self._db.executescript(_TABLES)
            self._latest = next(iter(self.versions()), NONE)
        except sqlite3.OperationalError as error:
            raise NoRoom(
                f"the webhooks in {path} cannot be opened: {error}", remedy="make room on that file system"
            ) from error
        except (sqlite3.DatabaseError, msgspec.DecodeError) as error:
            raise self._damaged(error) from error

    def close(self) -> None:
        with self.lock:
            self._db.close()

    def now(self) -> float:
        """Return the current time in seconds since the epoch."""
        return self._clock()

    # --- hooks

    @property
    def latest(self) -> HookVersion:
        """The current version of the webhooks."""
        return self._latest

    def versions(self) -> list[HookVersion]:
        """Return all stored versions, the latest first."""
        decoder = msgspec.json.Decoder(HookVersion)
        return [
            decoder.decode(body) for (body,) in self._rows("SELECT body FROM versions ORDER BY version DESC")
        ]

    def put(self, hook: Hook, secret: bytes, expected: int | None = None) -> tuple[HookVersion, bool]:
        """Add a hook, or change it.

        An existing hook keeps its secret, unless its URL changes.

        Args:
            hook: New state of the hook.
            secret: Secret for a hook that is new or whose URL changes.
            expected: Version that the caller has read; None for any.

        Returns:
            The new version, and whether `secret` is the hook's now.

        Raises:
            Conflict: The webhooks have changed since the expected version.
            TooMuch: There are `MAX_HOOKS` webhooks already.
            NoRoom: The disk is full.
        """
        with self._change(expected):
            before = self._latest.hook(hook.name)
            others = tuple(other for other in self._latest.hooks if other.name != hook.name)
            if before is None and len(others) >= MAX_HOOKS:
                raise TooMuch(f"there are {len(others)} webhooks, which is the maximum", remedy="remove some")
            fresh = before is None or before.url != hook.url
            if fresh:
                self._db.execute("INSERT OR REPLACE INTO secrets VALUES (?, ?)", (hook.name, secret))
            hooks = tuple(sorted((*others, hook), key=lambda other: other.name))
            verb = "made" if before is None else "changed"
            self._write(f"{hook.name} {verb}", hook.by, hooks)
        return self._latest, fresh

    def remove(self, name: str, by: str, expected: int | None = None) -> Hook:
        """Remove a hook, its secret and its deliveries.

        Raises:
            NotFound: The hook does not exist.
            Conflict, NoRoom: See `put`.
        """
        with self._change(expected):
            hook = self.hook(name)
            self._db.execute("DELETE FROM secrets WHERE hook = ?", (name,))
            self._forget(name)
            self._write(
                f"{name} removed", by, tuple(other for other in self._latest.hooks if other.name != name)
            )
        self._given_up.pop(name, None)
        return hook

    def _forget(self, target: str) -> None:
        self._db.execute("DELETE FROM deliveries WHERE target = ?", (target,))
        self._db.execute("DELETE FROM facts WHERE name = ?", (f"settled:{target}",))

    def hook(self, name: str) -> Hook:
        """Return a hook by its name.

        Raises:
            NotFound: The hook does not exist.
        """
        hook = self._latest.hook(name)
        if hook is None:
            raise NotFound(f"there is no webhook {name[:80]}", remedy=_LIST)
        return hook

    def secret(self, name: str) -> bytes | None:
        """Return the secret that signs a hook's requests; None if the hook does not exist."""
        rows = self._rows("SELECT secret FROM secrets WHERE hook = ?", name)
        return bytes(rows[0][0]) if rows else None

    # --- copies for other schedulers

    def kept(self, by: str) -> StoredHooks:
        """Return the webhooks for the state of scheduler `by`; within `changing`, as they will be after the change."""
        with self.lock:
            rows = self._rows("SELECT hook, secret FROM secrets ORDER BY hook")
            return StoredHooks(
                by, next(iter(self.versions()), NONE), {name: bytes(secret) for name, secret in rows}
            )

    def adopt(self, kept: StoredHooks) -> None:
        """Replace the webhooks by those of another scheduler, and drop deliveries of hooks that are gone.

        Raises:
            NoRoom: The disk is full.
        """
        with self._change(None):
            self._db.execute("DELETE FROM versions WHERE version >= ?", (kept.version.version,))
            body = msgspec.json.encode(kept.version)
            self._db.execute("INSERT INTO versions VALUES (?, ?)", (kept.version.version, body))
            self._db.execute("DELETE FROM secrets")
            self._db.executemany("INSERT INTO secrets VALUES (?, ?)", kept.secrets.items())
            for target in {target for target in self.counts() if not is_url(target)}:
                if kept.version.hook(target) is None:
                    self._forget(target)

    def sent(self, by: str, seen: int) -> Sent:
        """Return the progress of deliveries for the state of scheduler `by`. `seen`: latest event that it knows."""
        return Sent(by, seen, dict(self._rows(_FIRST_WAITING)))

    def resume(self, sent: Sent) -> set[tuple[str, int]]:
        """Continue where another scheduler was: drop waiting deliveries that it has completed.

        Returns:
            Deliveries that still wait, as targets and events.

        Raises:
            NoRoom: The disk is full.
        """
        with self._transaction():
            rows = self._rows("SELECT id, target, event FROM deliveries WHERE dead_at IS NULL")
            old = [(id,) for id, target, event in rows if event < sent.first_of(target)]
            self._db.executemany("DELETE FROM deliveries WHERE id = ?", old)
            self._db.execute("INSERT OR REPLACE INTO facts VALUES ('seen', ?)", (sent.seen,))
        return {(target, event) for _, target, event in rows if event >= sent.first_of(target)}

    @contextmanager
    def _change(self, expected: int | None) -> Iterator[None]:
        with self.lock:  # so that the last of concurrent changes is also the latest version in memory
            with self._transaction():
                version = self._latest.version
                if expected not in (None, version):
                    raise Conflict(
                        f"the webhooks are at version {version}, and version {expected} was read",
                        remedy="read them again (mesos-gpu webhook list)",
                    )
                yield
            self._latest = next(iter(self.versions()), NONE)

    def _write(self, what: str, by: str, hooks: tuple[Hook, ...]) -> None:
        version = HookVersion(self._latest.version + 1, self._clock(), by, what, hooks)
        self._db.execute(
            "INSERT INTO versions VALUES (?, ?)", (version.version, msgspec.json.encode(version))
        )
        self._db.execute("DELETE FROM versions WHERE version <= ?", (version.version - MAX_VERSIONS,))
        self.changing()

    # --- deliveries

    def seen(self) -> int | None:
        """Return the number of the latest event that was processed, 0 before the first; None if none was ever read."""
        rows = self._rows("SELECT value FROM facts WHERE name = 'seen'")
        return int(rows[0][0]) if rows else None

    def take(self, deliveries: Sequence[tuple[str, int, str, bytes]], seen: int) -> None:
        """Store deliveries, as target, event, kind and body, and the number of the latest processed event.

        Raises:
            NoRoom: The disk is full; the call may be repeated.
        """
        buried = Counter[str]()
        with self._transaction():
            self._db.executemany(_INSERT, deliveries)
            self._db.execute("INSERT OR REPLACE INTO facts VALUES ('seen', ?)", (seen,))
            for target in dict.fromkeys(target for target, *_ in deliveries):
                buried[target] = self._db.execute(_BURY, (self._clock(), target, MAX_WAITING)).rowcount
                self._db.execute(_TRIM, (target, _most_dead(target)))
            if any(is_url(target) for target, *_ in deliveries):
                buried[""] = self._db.execute(_DROP, (MAX_OF_JOBS,)).rowcount
        self._count(buried)
        if deliveries:
            self.news.set()

    def due(self, now: float) -> list[Delivery]:
        """Return the deliveries to try now: the oldest waiting one of each target, if its time has come."""
        return [Delivery(*row) for row in self._rows(_NEXT, now)]

    def next_at(self) -> float | None:
        """Return the time of the next attempt; None if nothing waits."""
        (row,) = self._rows(
            "SELECT MIN(next_at) FROM deliveries WHERE id IN ("
            "SELECT MIN(id) FROM deliveries WHERE dead_at IS NULL GROUP BY target)"
        )
        return row[0] if row[0] is None else float(row[0])

    def done(self, id: int) -> None:
        """Remove a delivery that was accepted.

        Raises:
            NoRoom: The disk is full; the delivery will be repeated.
        """
        with self._transaction():
            self._db.execute(_SETTLE, (id,))
            self._db.execute("DELETE FROM deliveries WHERE id = ?", (id,))

    def failed(self, each: Delivery, error: str, next_at: float | None) -> None:
        """Record that a delivery failed, and when it is tried again; None to give it up.

        Raises:
            NoRoom: The disk is full; the delivery will be repeated.
        """
        dead_at = self._clock() if next_at is None else None
        with self._transaction():
            self._db.execute(
                "UPDATE deliveries SET tries = ?, next_at = ?, error = ?, dead_at = ? WHERE id = ?",
                (each.tries + 1, next_at or 0.0, error, dead_at, each.id),
            )
            if next_at is None:
                self._db.execute(_SETTLE, (each.id,))
            self._db.execute(_TRIM, (each.target, _most_dead(each.target)))
        if next_at is None:
            self._count({each.target: 1})

    def _count(self, given_up: Mapping[str, int]) -> None:
        """Count deliveries that were given up by hook; all others together, to limit the number of counters."""
        with self.lock:
            for target, number in given_up.items():
                self._given_up[target if self._latest.hook(target) else ""] += number

    def given_up(self) -> Mapping[str, int]:
        """Return how many deliveries were given up since this start, by hook; "" for URLs that jobs named."""
        with self.lock:
            return dict(self._given_up)

    def dead(self, target: str | None = None) -> list[Delivery]:
        """Return the deliveries that were given up, of a target or of all, the latest last."""
        rows = self._rows(
            "SELECT * FROM deliveries WHERE dead_at IS NOT NULL AND (? IS NULL OR target = ?) ORDER BY id",
            target,
            target,
        )
        return [Delivery(*row) for row in rows]

    def retry(self, target: str, ids: Sequence[int] = ()) -> int:
        """Schedule deliveries again that were given up, with all attempts, and return their number.

        Args:
            target: Target of the deliveries.
            ids: Deliveries to try; all of the target if empty.
        """
        chosen = [delivery.id for delivery in self.dead(target) if not ids or delivery.id in ids]
        with self._transaction():
            self._db.executemany(
                "UPDATE deliveries SET dead_at = NULL, tries = 0, next_at = 0 WHERE id = ?",
                [(id,) for id in chosen],
            )
        self.news.set()
        return len(chosen)

    def counts(self) -> Mapping[str, tuple[int, int]]:
        """Return the numbers of waiting and of given-up deliveries, by target."""
        return {target: (whole - dead, dead) for target, whole, dead in self._rows(_COUNTS)}

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self.lock:
            try:
                return self._db.execute(statement, values).fetchall()
            except sqlite3.DatabaseError as error:
                raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> Damaged:
        return Damaged(
            f"the webhooks in {self._path} cannot be read: {error}",
            remedy="move the file away: the state has the webhooks and the progress of each",
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run a transaction; turn errors of SQLite into `NoRoom` or `Damaged`."""
        with self.lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
                self.writes += 1
            except sqlite3.OperationalError as error:
                self._undo()
                raise NoRoom(
                    f"the webhooks in {self._path} cannot be written: {error}",
                    remedy="make room on that file system; events are kept meanwhile",
                ) from error
            except sqlite3.DatabaseError as error:
                self._undo()
                raise self._damaged(error) from error
            except BaseException:
                self._undo()
                raise

    def _undo(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")


def _most_dead(target: str) -> int:
    """Return how many given-up deliveries of a target to keep; none for URLs of jobs, which may be any number."""
    return 0 if is_url(target) else MAX_DEAD


def _make_private(path: Path, *, new: bool) -> None:
    """Make a file readable by its owner only. `new`: create it if it does not exist."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if new else 0)
    try:
        handle = os.open(path, flags, _OWN)
    except FileNotFoundError:
        return
    try:
        os.fchmod(handle, _OWN)
    finally:
        os.close(handle)
