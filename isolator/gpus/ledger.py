"""Who holds which GPU of this host, whole or in part, and what was made for it: SQLite, one transaction each.

A holding names the process that owns it (a task's executor) by pid, start time and boot, so that a dead owner's
is seen as dead whatever took its pid since. An index makes two claims of one whole GPU impossible; shares of one are
claimed only where all of them fit. The traces of a holding are written before the first of them is made: whoever
finds its owner dead can undo them all. So are those of a card, which outlive the tasks that share it: the last share's
release undoes them, or the monitor.
"""

import contextlib
import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mesos_gpu.adapters.proc import boot_id, start_ticks
from mesos_gpu.errors import Damaged, MesosGpuError, NotFound, Unavailable
from mesos_gpu.model.ids import GpuId

if TYPE_CHECKING:  # it costs each executor what only one of a share need pay
    from isolator.gpus.kept_ledger import Kept
    from isolator.gpus.share_claims import CardTrace, ShareClaim
    from mesos_gpu.model.shares.share import Share

VERSION: Final = 3
DEFAULT_DIRECTORY: Final = "/var/lib/mesos-gpu"
BUSY_TIMEOUT_S: Final = 30.0
#: What a path has in a URL as it is (RFC 3986, 2.3).
_PLAIN: Final = frozenset(b"/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
#: Kinds of traces that stay when a task releases its GPUs: its sandbox until it is sealed, what the task wrote to its
#: image until that is removed, and its uid of the user pool: the next task with that uid must own no files there.
LAST: Final = ("sandbox", "rootfs", "uid")
_METHOD: Final = 5  # its column in the table of claims; NULL: the card is held whole
_LOCK_FILE: Final = os.O_RDWR | os.O_CREAT
_AT_ONCE: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
TURN_S = 30.0  # at work on the shares of a card
#: What SQLite says of the file itself, by primary result code; all else is about the host (disk, rights, locks).
_DAMAGE: Final = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SCHEMA: Final = """
CREATE TABLE holdings (
    id INTEGER PRIMARY KEY,
    task TEXT NOT NULL,
    container TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    pid_namespace INTEGER NOT NULL,
    since REAL NOT NULL,
    traces TEXT NOT NULL,
    UNIQUE (task, pid, start_ticks, boot_id, pid_namespace)
);
CREATE TABLE claims (
    gpu TEXT NOT NULL,
    holding INTEGER NOT NULL REFERENCES holdings (id) ON DELETE CASCADE,
    compute_milli INTEGER,
    memory_mib INTEGER,
    memory_max_mib INTEGER,
    method TEXT,
    domain TEXT,
    instance TEXT,
    PRIMARY KEY (gpu, holding)
) WITHOUT ROWID;
CREATE UNIQUE INDEX whole ON claims (gpu) WHERE method IS NULL;
CREATE TABLE cards (
    gpu TEXT NOT NULL,
    kind TEXT NOT NULL,
    what TEXT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (gpu, kind, what)
);
"""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, unmistakably.

    `start_ticks`: field 22 of /proc/PID/stat, clock ticks since boot. `pid_namespace`: the inode of
    /proc/PID/ns/pid, for a pid means nothing outside its namespace.
    """

    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: int

    @property
    def columns(self) -> tuple[int, int, str, int]:
        """Columns that name it in the table of holdings."""
        # `astuple` copies deeply, and takes many times as long.
        return (self.pid, self.start_ticks, self.boot_id, self.pid_namespace)

    @classmethod
    def of(cls, pid: int) -> "Owner":
        """The process with that pid now.

        Raises:
            ProcessLookupError: There is none.
        """
        ticks = start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(pid)
        return cls(pid, ticks, boot_id(), pid_namespace())

    def alive(self) -> bool | None:
        """Whether this very process still runs; None: that cannot be seen from this pid namespace."""
        if self.boot_id != boot_id():
            return False
        return None if self.pid_namespace != pid_namespace() else start_ticks(self.pid) == self.start_ticks


@dataclass(frozen=True, slots=True)
class Trace:
    """Something that was made for a task, or is about to be: `isolator.confinement.enclosure.undo` knows each kind."""

    kind: str
    what: str


@dataclass(frozen=True, slots=True)
class Holding:
    """What one task has of this host. `since`: seconds since the epoch."""

    task: str
    owner: Owner
    gpus: tuple[GpuId, ...]
    container: str = ""  # Mesos' id of its container
    traces: tuple[Trace, ...] = ()
    since: float = 0.0
    share: "Share | None" = None  # of each of its GPUs; None: all of them

    @property
    def is_released(self) -> bool:
        """Whether the task has ended, and only its sandbox remains to be sealed."""
        return not self.gpus and bool(self.traces) and all(trace.kind in LAST for trace in self.traces)


@dataclass(frozen=True, slots=True)
class Refused:
    """Living tasks hold the GPUs, or more of them than is left; nothing was claimed. `why`: what does not fit, in
    words; "": whole GPUs were asked for, or are held."""

    held: tuple[Holding, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Stale:
    """What the dead left stands in the way; nothing was claimed. Undo it, `drop` or `forget` it, try again.

    Attributes:
        dead: Holdings of dead owners.
        cards: What was made of cards that nobody shares now.
    """

    dead: tuple[Holding, ...] = ()
    cards: "tuple[CardTrace, ...]" = ()


@dataclass(frozen=True, slots=True)
class Claimed:
    """All GPUs that were asked for are held; and a uid, if one was asked for."""

    uid: int | None = None


@dataclass(frozen=True, slots=True)
class NoneFree:
    """All uids are held by tasks, or are in the way of others; nothing was claimed."""


def directory() -> Path:
    """Where this host keeps the ledger: MESOS_GPU_NODE_DIR, else /var/lib/mesos-gpu."""
    return Path(os.environ.get("MESOS_GPU_NODE_DIR") or DEFAULT_DIRECTORY)


def pid_namespace() -> int:
    """The number of this process' pid namespace (pid_namespaces(7))."""
    return os.stat("/proc/self/ns/pid").st_ino


class Ledger:
    """The claims of this host. Each call opens the file, so a ledger that was damaged meanwhile is noticed.

    Raises:
        Damaged: Any call, if the file is not a ledger, is corrupt or is newer than this program. Nothing is
            claimed then: a ledger that cannot be read must not say that all GPUs are free.
        Unavailable: Any call, if the file cannot be reached: rights, a full disk, a lock that never ends.
    """

    def __init__(
        self, path: Path | None = None, clock: Callable[[], float] = time.time, *, keep: bool = False
    ) -> None:
        """The file is made at the first call.

        Args:
            path: Path of the file; None for the one of this host.
            clock: Seconds since the epoch.
            keep: Whether a connection stays open after the first call. While one is, no process that closes the file
                writes its log back and removes that, which takes longer than most transactions.
        """
        self._clock = clock
        self._kept = _kept() if keep else None
        self._path = path or directory() / "ledger.sqlite"
        # mode=rw: what is there must be a whole ledger; an empty file is one that was truncated.
        self._uri = f"{_uri(self._path)}?mode=rw"

    @property
    def directory(self) -> Path:
        """The node directory that it is in."""
        return self._path.parent

    def claim(
        self,
        task: str,
        gpus: Sequence[GpuId],
        owner: Owner,
        *,
        container: str = "",
        traces: Sequence[Trace] = (),
        uids: Iterable[int] = (),
        uid_trace: Callable[[int], Trace] | None = None,
        share: "ShareClaim | None" = None,
    ) -> Claimed | Refused | Stale | NoneFree:
        """Hold all of `gpus` for `task`, or none. To claim again what one holds is no error.

        Args:
            task, gpus, owner, container, traces: As of `Holding`.
            uids: With `uid_trace`, of which the first is held as well that no other task holds.
            uid_trace: The trace of a uid, which all that hold one have.
            share: What is held of each; None: all of it.
        """
        with self._transaction() as db:
            everyone = _all(db)
            others = _others(everyone, task, owner, gpus)
            obstacle = self._obstacle(others, gpus, share) or _in_the_way(db, gpus, share)
            if obstacle is not None:
                return obstacle
            uid = None
            if uid_trace is not None:
                kind = uid_trace(0).kind
                held_uids = {
                    trace.what.partition(" ")[0]
                    for h in everyone
                    for trace in h.traces
                    if trace.kind == kind and h.owner != owner
                }
                uid = next((each for each in uids if str(each) not in held_uids), None)
                if uid is None:
                    return NoneFree()
                traces = (uid_trace(uid), *traces)  # undone last
            row = (task, *owner.columns, container, self._clock(), _marks(traces))
            held = db.execute(
                """INSERT INTO holdings (task, pid, start_ticks, boot_id, pid_namespace, container, since, traces)
                   VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET traces = excluded.traces RETURNING id""",
                row,
            ).fetchone()[0]
            if share is None:
                db.executemany(
                    "INSERT OR REPLACE INTO claims (gpu, holding) VALUES (?, ?)",
                    [(gpu, held) for gpu in gpus],
                )
            else:
                _insert_shares(db, held, gpus, share)
        return Claimed(uid)

    def _obstacle(
        self, others: Sequence[Holding], gpus: Sequence[GpuId], share: "ShareClaim | None"
    ) -> Refused | Stale | None:
        """What of others' holdings stands in the way; None: nothing."""
        if share is None:
            live = tuple(holding for holding in others if self.alive(holding))
            if live:
                return Refused(live)
            return Stale(tuple(others)) if others else None
        from isolator.gpus.share_claims import misfit

        for gpu in gpus:
            beside = [holding for holding in others if gpu in holding.gpus]
            if not misfit(share.share, share.rooms[gpu], [holding.share for holding in beside]):
                continue
            live = tuple(holding for holding in beside if self.alive(holding))
            if why := misfit(share.share, share.rooms[gpu], [holding.share for holding in live]):
                return Refused(live, f"{gpu}: {why}")
            return Stale(tuple(holding for holding in beside if holding not in live))
        return None

    def resize(self, task: str, owner: Owner, share: "ShareClaim") -> Claimed | Refused | Stale:
        """Hold another share of the GPUs of which `task` holds one, if it fits beside the others.

        Raises:
            NotFound: It holds none.
        """
        from isolator.gpus.share_claims import columns

        with self._transaction() as db:
            everyone = _all(db)
            mine = [h for h in everyone if (h.task, h.owner) == (task, owner) and h.share is not None]
            if not mine:
                raise NotFound(f"{task} holds no share", remedy="see which it holds: mesos-gpu show JOB")
            gpus = mine[0].gpus
            obstacle = self._obstacle(_others(everyone, task, owner, gpus), gpus, share)
            if obstacle is not None:
                return obstacle
            db.execute(
                """UPDATE claims SET (compute_milli, memory_mib, memory_max_mib, method, domain, instance)
                       = (?, ?, ?, ?, ?, ?) WHERE holding = (SELECT id FROM holdings WHERE
                       (task, pid, start_ticks, boot_id, pid_namespace) = (?, ?, ?, ?, ?))""",
                (*columns(share.share), task, *owner.columns),
            )
        return Claimed()

    def leave(self, task: str, owner: Owner, trace: Trace) -> None:
        """Write down one thing more that is about to be made for a task that holds something; it is undone last.

        Raises:
            NotFound: It holds nothing.
        """
        with self._transaction() as db:
            mine = next((h for h in _all(db) if (h.task, h.owner) == (task, owner)), None)
            if mine is None:
                raise NotFound(f"{task} holds nothing", remedy="let it start again")
            db.execute(
                """UPDATE holdings SET traces = ?
                       WHERE (task, pid, start_ticks, boot_id, pid_namespace) = (?, ?, ?, ?, ?)""",
                (_marks((trace, *mine.traces)), task, *owner.columns),
            )

    def alive(self, holding: Holding) -> bool:
        """Whether the owner still runs; by its lock, if it lives in another pid namespace. In doubt, it does."""
        alive = holding.owner.alive()
        if alive is not None or not holding.container:
            return alive is not False
        try:
            with open(self._lock(holding.container)) as file:
                fcntl.flock(file, _AT_ONCE)
        except OSError:  # held; or it cannot be opened
            return True
        return False

    def lock(self, container: str) -> int:
        """Take the lock of a container for as long as the file descriptor that is returned is open in any process.

        Raises:
            OSError: It cannot be had.
        """
        fd = self._opened(self._lock(container))
        fcntl.flock(fd, _AT_ONCE)
        return fd

    def _lock(self, container: str) -> Path:
        return self.directory / "owners" / container

    def _opened(self, path: Path) -> int:
        """Open a file for a lock, which lies in a folder of the node directory."""
        for folder in self.directory, path.parent:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, _LOCK_FILE, 0o600)

    def release(self, task: str, owner: Owner, container: str = "") -> None:
        """Release the claims of a task unless its holding has another owner now. `LAST` traces stay until `drop`."""
        with self._transaction() as db:
            held = db.execute(
                """SELECT id, traces FROM holdings
                       WHERE (task, pid, start_ticks, boot_id, pid_namespace) = (?, ?, ?, ?, ?)""",
                (task, *owner.columns),
            ).fetchone()
            kept = [mark for mark in json.loads(held[1]) if mark[0] in LAST] if held is not None else []
            if kept:
                db.execute("DELETE FROM claims WHERE holding = ?", held[:1])
                db.execute("UPDATE holdings SET traces = ? WHERE id = ?", (json.dumps(kept), held[0]))
                return
        self.drop(Holding(task, owner, (), container))

    def drop(self, holding: Holding) -> None:
        """Remove exactly this holding, whose traces are all undone."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM holdings WHERE (task, pid, start_ticks, boot_id, pid_namespace) = (?, ?, ?, ?, ?)",
                (holding.task, *holding.owner.columns),
            )
        if holding.container:
            self._lock(holding.container).unlink(missing_ok=True)

    def holdings(self) -> tuple[Holding, ...]:
        """All, of the living and of the dead, oldest first."""
        with self._transaction() as db:
            return tuple(_all(db))

    # --- of cards

    def cards(self, gpu: GpuId | None = None) -> "tuple[CardTrace, ...]":
        """What was made of a card, or of all, or is about to be, in the order in which it was noted."""
        with self._transaction() as db:
            rows = db.execute("SELECT gpu, kind, what, state FROM cards ORDER BY rowid").fetchall()
        if not rows:
            return ()
        from isolator.gpus.share_claims import CardTrace

        return tuple(CardTrace(GpuId(of), *rest) for of, *rest in rows if gpu in (None, of))

    def note(self, trace: "CardTrace") -> None:
        """Write down what is about to be made of a card, or its new state."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO cards VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state",
                astuple(trace),
            )

    def forget(self, trace: "CardTrace") -> None:
        """Strike out what is undone."""
        with self._transaction() as db:
            db.execute("DELETE FROM cards WHERE (gpu, kind, what) = (?, ?, ?)", astuple(trace)[:3])

    @contextlib.contextmanager
    def turn(self, gpus: Iterable[GpuId], timeout_s: float = TURN_S) -> Iterator[None]:
        """Have cards to oneself while what belongs to all shares of them is changed. A turn ends with its process.

        Raises:
            Unavailable: Another does not end its turn.
        """
        from isolator.gpus.locks import locked_within

        deadline = time.monotonic() + timeout_s
        with contextlib.ExitStack() as stack:
            for gpu in sorted(set(gpus)):  # in one order, so that no two wait for each other
                path = self.directory / "cards" / f"{gpu}.lock"
                fd = self._opened(path)
                stack.callback(os.close, fd)
                if not locked_within(fd, deadline - time.monotonic()):
                    raise Unavailable(
                        f"another process has been at work on the shares of {gpu} for {timeout_s:g} s",
                        remedy=f"see which has {path} open; if it hangs, end it",
                    )
            with contextlib.suppress(sqlite3.DatabaseError):  # none yet; or who uses it next says so
                # While one is open, no other that is closed writes the whole file back.
                kept = stack.enter_context(contextlib.closing(_connect(self._uri)))
                kept.execute("SELECT count(*) FROM cards").fetchone()
            yield

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            if not self._path.exists():
                self._create()
            with contextlib.closing(_connect(self._uri)) as db:
                # With WAL: a power cut loses claims, but damages nothing.
                db.execute("PRAGMA synchronous=NORMAL")
                db.execute("PRAGMA foreign_keys=ON")
                db.execute("BEGIN IMMEDIATE")
                self._check(db)
                yield db
                db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from error
        except json.JSONDecodeError as error:
            raise self._damaged(f"what a task made is not JSON: {error}") from error
        if self._kept is not None:
            # The next transaction says what is wrong.
            with contextlib.suppress(OSError, sqlite3.DatabaseError):
                self._kept.hold(self._path, lambda: _connect(self._uri, check_same_thread=False))

    def _create(self) -> None:
        """Make a whole ledger elsewhere, and give it its name in one step: whoever loses the race uses the winner's."""
        if Path(f"{self._path}-wal").exists() and not self._path.exists():  # a new file would get its changes
            raise self._damaged("it was removed, and its log was not")
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._path.with_name(f".{self._path.name}.{os.urandom(8).hex()}")
        try:
            with contextlib.closing(_connect(f"{_uri(part)}?mode=rwc")) as db:
                part.chmod(0o600)  # it names the tasks of all users
                db.execute("PRAGMA journal_mode=WAL")
                db.executescript(f"{_SCHEMA} PRAGMA user_version={VERSION};")
            with contextlib.suppress(FileExistsError):
                os.link(part, self._path)
        finally:
            part.unlink(missing_ok=True)

    def _check(self, db: sqlite3.Connection) -> None:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise Damaged(
                f"the ledger {self._path} has version {version}, and this program knows {VERSION}",
                remedy="run the mesos_gpu that wrote it",
            )
        verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0] if version else "it is empty"
        if verdict != "ok":
            raise self._damaged(verdict)
        if version != VERSION:
            for path in self._path.parent.glob(f"{self._path.name}*"):  # with what SQLite keeps beside it
                path.chmod(0o600)
            from isolator.gpus.old_ledgers import bring_up

            bring_up(db, version, _SCHEMA)
            db.execute(f"PRAGMA user_version={VERSION}")

    def _explained(self, error: sqlite3.DatabaseError) -> MesosGpuError:
        if error.sqlite_errorcode & 0xFF in _DAMAGE:
            return self._damaged(str(error))
        return Unavailable(
            f"the ledger {self._path} cannot be used: {error}",
            remedy=f"see that {self._path.parent} can be written and has space; if a process hangs, end it",
        )

    def _damaged(self, why: str) -> Damaged:
        return Damaged(
            f"the ledger {self._path} is damaged: {why}",
            remedy=f"end this host's GPU tasks, then remove {self._path}*: it is made anew",
        )


def _kept() -> "Kept":
    from isolator.gpus.kept_ledger import Kept

    return Kept()


def _marks(traces: Iterable[Trace]) -> str:
    return json.dumps([(trace.kind, trace.what) for trace in traces])


def _uri(path: Path) -> str:
    """Do as `Path.as_uri`, which imports what only URLs of other kinds need (sqlite.org/uri.html, section 3.1)."""
    text = os.fsencode(path.absolute())
    return "file://" + "".join(chr(each) if each in _PLAIN else f"%{each:02X}" for each in text)


def _connect(uri: str, **more: bool) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, **more)


def _others(everyone: Iterable[Holding], task: str, owner: Owner, gpus: Iterable[GpuId]) -> list[Holding]:
    """What others hold of these cards: what one holds itself is not in one's way."""
    wanted = set(gpus)
    return [h for h in everyone if (h.task, h.owner) != (task, owner) and not wanted.isdisjoint(h.gpus)]


def _in_the_way(
    db: sqlite3.Connection, gpus: Sequence[GpuId], share: "ShareClaim | None"
) -> Refused | Stale | None:
    """What was made of cards that nobody shares, and is not what a share needs that is about to be the first; or the
    word that a shared one takes no more."""
    rows = db.execute("SELECT gpu, kind, what, state FROM cards ORDER BY rowid").fetchall()
    if not rows:
        return None
    from isolator.gpus.share_claims import CLOSED, CardTrace

    shared = {gpu for (gpu,) in db.execute("SELECT gpu FROM claims WHERE method IS NOT NULL")}
    wanted = {(c.gpu, c.kind, c.what) for c in share.cards} if share is not None else set()
    left = tuple(
        CardTrace(GpuId(gpu), kind, what, state)
        for gpu, kind, what, state in rows
        if gpu in gpus and gpu not in shared and (gpu, kind, what) not in wanted
    )
    if left:
        return Stale(cards=left)
    closed = next((row for row in rows if row[0] in gpus and row[1] == CLOSED), None)
    return Refused((), f"{closed[0]} takes no more shares: {closed[2]}") if closed else None


def _insert_shares(db: sqlite3.Connection, held: int, gpus: Sequence[GpuId], share: "ShareClaim") -> None:
    from isolator.gpus.share_claims import columns

    part = columns(share.share)
    db.executemany(
        "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [(gpu, held, *part) for gpu in gpus]
    )
    db.executemany("INSERT OR IGNORE INTO cards VALUES (?, ?, ?, ?)", [astuple(card) for card in share.cards])


def _shares(parts: dict[int, tuple[Any, ...]]) -> "dict[int, Share]":
    from isolator.gpus.share_claims import share_of

    return {held: share_of(*part) for held, part in parts.items()}


def _all(db: sqlite3.Connection) -> list[Holding]:
    claims: dict[int, list[GpuId]] = {}
    parts: dict[int, tuple[Any, ...]] = {}
    for row in db.execute("SELECT * FROM claims ORDER BY gpu"):
        claims.setdefault(row[1], []).append(row[0])
        if row[_METHOD] is not None:
            parts[row[1]] = row[2:]
    shares = _shares(parts) if parts else {}
    rows = db.execute(
        """SELECT id, task, container, since, traces, pid, start_ticks, boot_id, pid_namespace FROM holdings
           ORDER BY id"""
    )
    return [
        Holding(
            task, Owner(*owner), tuple(claims.get(held, ())), container,
            tuple(Trace(*trace) for trace in json.loads(traces)), since, shares.get(held),
        )
        for held, task, container, since, traces, *owner in rows
    ]  # fmt: skip
