"""Webhooks in a file of their own beside the state: what they are, what is to be sent, what could not be.

The engine never waits for it. Secrets are in no journal; a backup of the state has a copy of this file beside it.
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
from mesos_gpu.model.tasks.hook import Delivery, Hook, HookVersion, KeptHooks, Sent, is_url

MAX_HOOKS: Final = 100
MAX_VERSIONS: Final = 50
MAX_WAITING: Final = 1000  # deliveries of a target; of more the oldest are given up
MAX_OF_JOBS: Final = (
    10_000  # deliveries to URLs that jobs have named, which may be any number; of more the oldest go
)
MAX_DEAD: Final = 1000  # of a hook that are kept; the oldest go
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
#: A target's latest event that was taken or given up: what waits beyond it was never sent, what waits before it is
#: sent once more by hand.
_SETTLE: Final = """INSERT INTO facts SELECT 'settled:' || target, event FROM deliveries
WHERE id = ? AND NOT instr(target, '://') ON CONFLICT DO UPDATE SET value = MAX(value, excluded.value)"""
_FIRST_WAITING: Final = """SELECT CASE WHEN instr(target, '://') THEN '' ELSE target END AS of, MIN(event)
FROM deliveries LEFT JOIN facts ON name = 'settled:' || target
WHERE dead_at IS NULL AND event > COALESCE(value, -1) GROUP BY of"""
_COUNTS: Final = "SELECT target, COUNT(*), COUNT(dead_at) FROM deliveries GROUP BY target"


def hooks_of(state: Path) -> Path:
    """Where the webhooks of a scheduler with that state file are."""
    return Path(f"{state}.hooks")


class HookStore:
    """A file that only its owner may read. For all threads.

    Raises:
        Damaged: It cannot be read, also at any call.
        NoRoom: It cannot be made, as on a full disk.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Open or create it."""
        self._path, self._clock, self.lock = path, clock, threading.RLock()
        self.news = threading.Event()  # something is to be sent that was not
        self._given_up = Counter[str]()
        #: Called when webhooks are made, changed or removed, on the thread that does it; if it raises, they are not.
        self.changing: Callable[[], object] = lambda: None
        self.writes = 0  # grows with each change of what is kept
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for each in (path, *(Path(f"{path}{end}") for end in _BESIDE)):
            _make_private(each, new=each == path)
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
        """Close the file."""
        with self.lock:
            self._db.close()

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        return self._clock()

    # --- what they are

    @property
    def latest(self) -> HookVersion:
        """The version that holds."""
        return self._latest

    def versions(self) -> list[HookVersion]:
        """All that are kept, the latest first."""
        decoder = msgspec.json.Decoder(HookVersion)
        return [
            decoder.decode(body) for (body,) in self._rows("SELECT body FROM versions ORDER BY version DESC")
        ]

    def put(self, hook: Hook, secret: bytes, expected: int | None = None) -> tuple[HookVersion, bool]:
        """Make a hook, or change it; the new version, and whether the secret is the hook's now: one that is there keeps
        its own, unless its receiver becomes another.

        Args:
            hook: As it shall be.
            secret: Of a new one.
            expected: The version that was read; None: any.

        Raises:
            Conflict: Another version was read.
            TooMuch: There are enough.
            NoRoom: The disk is full.
        """
        with self._change(expected):
            before = self._latest.hook(hook.name)
            others = tuple(each for each in self._latest.hooks if each.name != hook.name)
            if before is None and len(others) >= MAX_HOOKS:
                raise TooMuch(
                    f"there are {len(others)} webhooks, the most that are kept", remedy="remove some"
                )
            fresh = before is None or before.url != hook.url
            if fresh:
                self._db.execute("INSERT OR REPLACE INTO secrets VALUES (?, ?)", (hook.name, secret))
            hooks = tuple(sorted((*others, hook), key=lambda each: each.name))
            verb = "made" if before is None else "changed"
            self._write(f"{hook.name} {verb}", hook.by, hooks)
        return self._latest, fresh

    def remove(self, name: str, by: str, expected: int | None = None) -> Hook:
        """Forget a hook, its secret and all that was to be sent to it.

        Raises:
            NotFound: There is none.
            Conflict, NoRoom: As of `put`.
        """
        with self._change(expected):
            hook = self.hook(name)
            self._db.execute("DELETE FROM secrets WHERE hook = ?", (name,))
            self._forget(name)
            self._write(
                f"{name} removed", by, tuple(each for each in self._latest.hooks if each.name != name)
            )
        self._given_up.pop(name, None)
        return hook

    def _forget(self, target: str) -> None:
        self._db.execute("DELETE FROM deliveries WHERE target = ?", (target,))
        self._db.execute("DELETE FROM facts WHERE name = ?", (f"settled:{target}",))

    def hook(self, name: str) -> Hook:
        """A hook by its name.

        Raises:
            NotFound: There is none.
        """
        hook = self._latest.hook(name)
        if hook is None:
            raise NotFound(f"there is no webhook {name[:80]}", remedy=_LIST)
        return hook

    def secret(self, name: str) -> bytes | None:
        """What a hook's requests are signed with; None: there is no such hook."""
        rows = self._rows("SELECT secret FROM secrets WHERE hook = ?", name)
        return bytes(rows[0][0]) if rows else None

    # --- what another scheduler takes up

    def kept(self, by: str) -> KeptHooks:
        """The webhooks as the state of the scheduler `by` has them; while they are changed, as they will be."""
        with self.lock:
            rows = self._rows("SELECT hook, secret FROM secrets ORDER BY hook")
            return KeptHooks(
                by, next(iter(self.versions()), NONE), {name: bytes(secret) for name, secret in rows}
            )

    def adopt(self, kept: KeptHooks) -> None:
        """Let the webhooks be those that another scheduler had; what waits for one that is gone is forgotten.

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
        """How far events were sent, as the state of the scheduler `by` has it. `seen`: the latest that it knows."""
        return Sent(by, seen, dict(self._rows(_FIRST_WAITING)))

    def resume(self, sent: Sent) -> set[tuple[str, int]]:
        """Go on where another scheduler was: what waits here and was taken there is forgotten.

        Returns:
            What waits here still, as targets and events.

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
        with self.lock:  # two changes at once leave the later one as the latest
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
        made = HookVersion(self._latest.version + 1, self._clock(), by, what, hooks)
        self._db.execute("INSERT INTO versions VALUES (?, ?)", (made.version, msgspec.json.encode(made)))
        self._db.execute("DELETE FROM versions WHERE version <= ?", (made.version - MAX_VERSIONS,))
        self.changing()

    # --- what is to be sent

    def seen(self) -> int | None:
        """The number of the latest event that was looked at, 0 before the first one; None: nobody has looked yet."""
        rows = self._rows("SELECT value FROM facts WHERE name = 'seen'")
        return int(rows[0][0]) if rows else None

    def take(self, deliveries: Sequence[tuple[str, int, str, bytes]], seen: int) -> None:
        """Keep what is to be sent, as target, event, kind and body; and up to which event was looked at.

        Raises:
            NoRoom: The disk is full; the same may be given again.
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
        """What is to be tried now: the oldest of each target that waits, if its time has come."""
        return [Delivery(*row) for row in self._rows(_NEXT, now)]

    def next_at(self) -> float | None:
        """When something is to be tried; None: nothing waits."""
        (row,) = self._rows(
            "SELECT MIN(next_at) FROM deliveries WHERE id IN ("
            "SELECT MIN(id) FROM deliveries WHERE dead_at IS NULL GROUP BY target)"
        )
        return row[0] if row[0] is None else float(row[0])

    def done(self, id: int) -> None:
        """A delivery was taken.

        Raises:
            NoRoom: The disk is full: it is sent again.
        """
        with self._transaction():
            self._db.execute(_SETTLE, (id,))
            self._db.execute("DELETE FROM deliveries WHERE id = ?", (id,))

    def failed(self, each: Delivery, error: str, next_at: float | None) -> None:
        """A delivery was not taken, and is tried again at a time; None: it is given up.

        Raises:
            NoRoom: The disk is full: it is sent again.
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
        """Note what was given up: a hook's by its name, of all else together, so that there are few."""
        with self.lock:
            for target, number in given_up.items():
                self._given_up[target if self._latest.hook(target) else ""] += number

    def given_up(self) -> Mapping[str, int]:
        """How many were given up since this start, by hook; "": of URLs that jobs named."""
        with self.lock:
            return dict(self._given_up)

    def dead(self, target: str | None = None) -> list[Delivery]:
        """What was given up, of a target or of all, the latest last."""
        rows = self._rows(
            "SELECT * FROM deliveries WHERE dead_at IS NOT NULL AND (? IS NULL OR target = ?) ORDER BY id",
            target,
            target,
        )
        return [Delivery(*row) for row in rows]

    def retry(self, target: str, ids: Sequence[int] = ()) -> int:
        """Try again what was given up, from the first try on; how many there are.

        Args:
            target: Whose.
            ids: Of them; none: all.
        """
        chosen = [each.id for each in self.dead(target) if not ids or each.id in ids]
        with self._transaction():
            self._db.executemany(
                "UPDATE deliveries SET dead_at = NULL, tries = 0, next_at = 0 WHERE id = ?",
                [(id,) for id in chosen],
            )
        self.news.set()
        return len(chosen)

    def counts(self) -> Mapping[str, tuple[int, int]]:
        """How many wait and how many were given up, by target."""
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
            remedy="move the file away: the state has the webhooks, and how far each was told",
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
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
    """How many dead letters of a target are kept; of URLs that jobs have named, of which there is any number, none."""
    return 0 if is_url(target) else MAX_DEAD


def _make_private(path: Path, *, new: bool) -> None:
    """Take a file from others. `new`: make it where it is not there."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if new else 0)
    try:
        handle = os.open(path, flags, _OWN)
    except FileNotFoundError:
        return
    try:
        os.fchmod(handle, _OWN)
    finally:
        os.close(handle)
