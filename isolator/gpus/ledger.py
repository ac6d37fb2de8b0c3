"""Ledger of this host: which task holds which GPU, whole or in part, and what was made for it. SQLite, one
transaction per call.

A holding names the process that owns it (a task's executor) by pid, start time and boot, so that a dead owner
is recognized even if its pid is reused. An index makes two claims of one whole GPU impossible; shares of a
GPU are claimed only if all of them fit. The traces of a holding are written before the first of them is made,
so that they can all be undone if the owner dies. So are those of a card, which outlive the tasks that share
it: they are undone with the release of the last share, or by the monitor.
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

if TYPE_CHECKING:  # deferred: few executors need them, and each import slows the start
    from isolator.gpus.kept_ledger import Kept
    from isolator.gpus.share_claims import CardTrace, ShareClaim
    from mesos_gpu.model.shares.share import Share

VERSION: Final = 3
DEFAULT_DIRECTORY: Final = "/var/lib/mesos-gpu"
BUSY_TIMEOUT_S: Final = 30.0
#: Bytes of a path that a URL does not escape (RFC 3986, 2.3).
_PLAIN: Final = frozenset(b"/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
#: Kinds of traces that stay when a task releases its GPUs: its sandbox until it is sealed, files that it
#: wrote to its image until they are removed, and its uid of the user pool, as the next task with that uid
#: must own no files there.
LAST: Final = ("sandbox", "rootfs", "uid")
_METHOD: Final = 5  # column of the table of claims; NULL for a card that is held whole
_LOCK_FILE: Final = os.O_RDWR | os.O_CREAT
_AT_ONCE: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
TURN_S = 30.0  # longest wait for another process that works on the shares of a card
#: Primary result codes of SQLite that concern the file itself; all others are about the host (disk, rights,
#: locks).
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
    """Unique identity of a process.

    Attributes:
        start_ticks: Field 22 of /proc/PID/stat, in clock ticks since boot.
        pid_namespace: Inode of /proc/PID/ns/pid, as a pid means nothing outside its namespace.
    """

    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: int

    @property
    def columns(self) -> tuple[int, int, str, int]:
        """Values that identify it in the table of holdings."""
        # `astuple` copies deeply, and takes many times as long.
        return (self.pid, self.start_ticks, self.boot_id, self.pid_namespace)

    @classmethod
    def of(cls, pid: int) -> "Owner":
        """Return the identity of the process that has a pid now.

        Raises:
            ProcessLookupError: There is no such process.
        """
        ticks = start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(pid)
        return cls(pid, ticks, boot_id(), pid_namespace())

    def alive(self) -> bool | None:
        """Return whether this very process still runs; None if that is not visible from this pid namespace."""
        if self.boot_id != boot_id():
            return False
        return None if self.pid_namespace != pid_namespace() else start_ticks(self.pid) == self.start_ticks


@dataclass(frozen=True, slots=True)
class Trace:
    """Record of something that was made for a task, or is about to be, and must be undone after it.

    Attributes:
        kind: Kind, which tells `isolator.confinement.enclosure.undo` how to undo it.
        what: Path or name of the thing; its form depends on the kind.
    """

    kind: str
    what: str


@dataclass(frozen=True, slots=True)
class Holding:
    """Everything that one task holds on this host.

    Attributes:
        container: Mesos' id of its container.
        since: Time of the claim, in seconds since the epoch.
        share: Share of each of its GPUs; None if they are held whole.
    """

    task: str
    owner: Owner
    gpus: tuple[GpuId, ...]
    container: str = ""
    traces: tuple[Trace, ...] = ()
    since: float = 0.0
    share: "Share | None" = None

    @property
    def is_released(self) -> bool:
        """Whether the task has ended, and only its sandbox remains to be sealed."""
        return not self.gpus and bool(self.traces) and all(trace.kind in LAST for trace in self.traces)


@dataclass(frozen=True, slots=True)
class Refused:
    """Answer: living tasks hold the GPUs, or too much of them; nothing was claimed.

    Attributes:
        why: Reason why the share does not fit, in words; "" if whole GPUs were asked for, or are held.
    """

    held: tuple[Holding, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Stale:
    """Answer: remains of dead tasks are in the way; nothing was claimed. Undo them, `drop` or `forget` them,
    try again.

    Attributes:
        dead: Holdings of dead owners.
        cards: Remains on cards that no task shares now.
    """

    dead: tuple[Holding, ...] = ()
    cards: "tuple[CardTrace, ...]" = ()


@dataclass(frozen=True, slots=True)
class Claimed:
    """Answer: all GPUs that were asked for are held.

    Attributes:
        uid: Claimed uid, if one was asked for.
    """

    uid: int | None = None


@dataclass(frozen=True, slots=True)
class NoneFree:
    """Answer: all uids are in use; nothing was claimed."""


def directory() -> Path:
    """Return the node directory, which contains the ledger: MESOS_GPU_NODE_DIR, else /var/lib/mesos-gpu."""
    return Path(os.environ.get("MESOS_GPU_NODE_DIR") or DEFAULT_DIRECTORY)


def pid_namespace() -> int:
    """Return the number of this process' pid namespace (pid_namespaces(7))."""
    return os.stat("/proc/self/ns/pid").st_ino


class Ledger:
    """Claims of this host. Each call opens the file, so that damage is noticed.

    Args:
        path: Path of the file, made at the first call. By default the one of this host.
        clock: Clock in seconds since the epoch.
        keep: Whether a connection stays open after the first call. While one is open, no process that closes
            the file writes its log back and removes that, which takes longer than most transactions.

    Raises:
        Damaged: Any call, if the file is not a ledger, is corrupt or is newer than this program. Nothing is
            claimed then: an unreadable ledger must not mean that all GPUs are free.
        Unavailable: Any call, if the file cannot be reached: rights, a full disk, a lock that never ends.
    """

    def __init__(
        self, path: Path | None = None, clock: Callable[[], float] = time.time, *, keep: bool = False
    ) -> None:
        self._clock = clock
        self._kept = _kept() if keep else None
        self._path = path or directory() / "ledger.sqlite"
        # mode=rw: the file must be a complete ledger; an empty one was truncated
        self._uri = f"{_uri(self._path)}?mode=rw"

    @property
    def directory(self) -> Path:
        """The node directory, which contains the ledger."""
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
        """Claim all of `gpus` for a task, or none. Claiming again what the task holds is no error.

        Args:
            task, gpus, owner, container, traces: Fields of the `Holding`.
            uids: Candidates, with `uid_trace`, for a uid that no other task holds; the first free one is
                claimed as well.
            uid_trace: Function that returns the trace of a uid.
            share: Share of each GPU; None to claim them whole.
        """
        with self._transaction() as db:
            holdings = _all(db)
            others = _others(holdings, task, owner, gpus)
            obstacle = self._obstacle(others, gpus, share) or _in_the_way(db, gpus, share)
            if obstacle is not None:
                return obstacle
            uid = None
            if uid_trace is not None:
                kind = uid_trace(0).kind
                held_uids = {
                    trace.what.partition(" ")[0]
                    for h in holdings
                    for trace in h.traces
                    if trace.kind == kind and h.owner != owner
                }
                uid = next((candidate for candidate in uids if str(candidate) not in held_uids), None)
                if uid is None:
                    return NoneFree()
                traces = (uid_trace(uid), *traces)  # the uid is undone last
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
        """Return the obstacle among the holdings of other tasks, or None."""
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
        """Claim another size of the share that a task holds, if it fits beside the others.

        Raises:
            NotFound: The task holds no share.
        """
        from isolator.gpus.share_claims import columns

        with self._transaction() as db:
            holdings = _all(db)
            mine = [h for h in holdings if (h.task, h.owner) == (task, owner) and h.share is not None]
            if not mine:
                raise NotFound(f"{task} holds no share", remedy="see what it holds: mesos-gpu show JOB")
            gpus = mine[0].gpus
            obstacle = self._obstacle(_others(holdings, task, owner, gpus), gpus, share)
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
        """Record a further trace that is about to be made for a task; it is undone last.

        Raises:
            NotFound: The task holds nothing.
        """
        with self._transaction() as db:
            mine = next((h for h in _all(db) if (h.task, h.owner) == (task, owner)), None)
            if mine is None:
                raise NotFound(f"{task} holds nothing", remedy="start the task again")
            db.execute(
                """UPDATE holdings SET traces = ?
                       WHERE (task, pid, start_ticks, boot_id, pid_namespace) = (?, ?, ?, ?, ?)""",
                (_marks((trace, *mine.traces)), task, *owner.columns),
            )

    def alive(self, holding: Holding) -> bool:
        """Return whether the owner still runs, by its lock if it is in another pid namespace; True in case of
        doubt.
        """
        alive = holding.owner.alive()
        if alive is not None or not holding.container:
            return alive is not False
        try:
            with open(self._lock(holding.container)) as file:
                fcntl.flock(file, _AT_ONCE)
        except OSError:  # the lock is held, or cannot be opened
            return True
        return False

    def lock(self, container: str) -> int:
        """Lock a container's file as long as the returned descriptor is open in any process.

        Raises:
            OSError: It is locked, or cannot be opened.
        """
        fd = self._opened(self._lock(container))
        fcntl.flock(fd, _AT_ONCE)
        return fd

    def _lock(self, container: str) -> Path:
        return self.directory / "owners" / container

    def _opened(self, path: Path) -> int:
        """Open a lock file in a folder of the node directory."""
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
        """Return all holdings, of living and of dead owners, oldest first."""
        with self._transaction() as db:
            return tuple(_all(db))

    # --- rows of cards

    def cards(self, gpu: GpuId | None = None) -> "tuple[CardTrace, ...]":
        """Return what was made, or is about to be made, of a card or of all cards, in the order in which it
        was noted.
        """
        with self._transaction() as db:
            rows = db.execute("SELECT gpu, kind, what, state FROM cards ORDER BY rowid").fetchall()
        if not rows:
            return ()
        from isolator.gpus.share_claims import CardTrace

        return tuple(CardTrace(GpuId(of), *rest) for of, *rest in rows if gpu in (None, of))

    def note(self, trace: "CardTrace") -> None:
        """Record what is about to be made of a card, or its new state."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO cards VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state",
                astuple(trace),
            )

    def forget(self, trace: "CardTrace") -> None:
        """Remove the row of what was undone."""
        with self._transaction() as db:
            db.execute("DELETE FROM cards WHERE (gpu, kind, what) = (?, ?, ?)", astuple(trace)[:3])

    @contextlib.contextmanager
    def turn(self, gpus: Iterable[GpuId], timeout_s: float = TURN_S) -> Iterator[None]:
        """Hold the turn of cards, while changing what belongs to all their shares. It ends with this process
        at the latest.

        Raises:
            Unavailable: Another process does not end its turn.
        """
        from isolator.gpus.locks import locked_within

        deadline = time.monotonic() + timeout_s
        with contextlib.ExitStack() as stack:
            # always in this order, so that no two processes wait for each other
            for gpu in sorted(set(gpus)):
                path = self.directory / "cards" / f"{gpu}.lock"
                fd = self._opened(path)
                stack.callback(os.close, fd)
                if not locked_within(fd, deadline - time.monotonic()):
                    raise Unavailable(
                        f"another process has been working on the shares of {gpu} for {timeout_s:g} s",
                        remedy=f"see which has {path} open; if it hangs, end it",
                    )
            # no ledger yet, or an error that the next user reports
            with contextlib.suppress(sqlite3.DatabaseError):
                # While this connection is open, no other that is closed writes the whole file back.
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
            raise self._damaged(f"the traces of a task are not JSON: {error}") from error
        if self._kept is not None:
            # An error is reported by the next transaction.
            with contextlib.suppress(OSError, sqlite3.DatabaseError):
                self._kept.hold(self._path, lambda: _connect(self._uri, check_same_thread=False))

    def _create(self) -> None:
        """Make a complete ledger under another name, and link it to its own; if another process was faster,
        its ledger is used.
        """
        # SQLite would apply the old log to a new file
        if Path(f"{self._path}-wal").exists() and not self._path.exists():
            raise self._damaged("the file was removed, but its log was not")
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._path.with_name(f".{self._path.name}.{os.urandom(8).hex()}")
        try:
            with contextlib.closing(_connect(f"{_uri(part)}?mode=rwc")) as db:
                part.chmod(0o600)  # the ledger names the tasks of all users
                db.execute("PRAGMA journal_mode=WAL")
                db.executescript(f"{_SCHEMA} PRAGMA user_version={VERSION};")
            with contextlib.suppress(FileExistsError):
                os.link(part, self._path)
        finally:
            part.unlink(missing_ok=True)

    def _check(self, db: sqlite3.Connection) -> None:
        """Check the version and integrity of the ledger; upgrade one of an older version."""
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise Damaged(
                f"the ledger {self._path} has version {version}, but this program knows only up to {VERSION}",
                remedy="run the mesos_gpu that wrote it",
            )
        verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0] if version else "it is empty"
        if verdict != "ok":
            raise self._damaged(verdict)
        if version != VERSION:
            for path in self._path.parent.glob(f"{self._path.name}*"):  # with SQLite's files beside it
                path.chmod(0o600)
            from isolator.gpus.old_ledgers import bring_up

            bring_up(db, version, _SCHEMA)
            db.execute(f"PRAGMA user_version={VERSION}")

    def _explained(self, error: sqlite3.DatabaseError) -> MesosGpuError:
        if error.sqlite_errorcode & 0xFF in _DAMAGE:
            return self._damaged(str(error))
        return Unavailable(
            f"the ledger {self._path} cannot be used: {error}",
            remedy=f"check that {self._path.parent} can be written and has space; if a process hangs, end it",
        )

    def _damaged(self, why: str) -> Damaged:
        return Damaged(
            f"the ledger {self._path} is damaged: {why}",
            remedy=f"end this host's GPU tasks, then remove {self._path}*: a new one is made",
        )


def _kept() -> "Kept":
    from isolator.gpus.kept_ledger import Kept

    return Kept()


def _marks(traces: Iterable[Trace]) -> str:
    return json.dumps([(trace.kind, trace.what) for trace in traces])


def _uri(path: Path) -> str:
    """Return a file URI like `Path.as_uri`, which would import more (sqlite.org/uri.html, section 3.1)."""
    text = os.fsencode(path.absolute())
    return "file://" + "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in text)


def _connect(uri: str, **more: bool) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, **more)


def _others(holdings: Iterable[Holding], task: str, owner: Owner, gpus: Iterable[GpuId]) -> list[Holding]:
    """Return the holdings of other tasks on these cards."""
    gpu_set = set(gpus)
    return [h for h in holdings if (h.task, h.owner) != (task, owner) and not gpu_set.isdisjoint(h.gpus)]


def _in_the_way(
    db: sqlite3.Connection, gpus: Sequence[GpuId], share: "ShareClaim | None"
) -> Refused | Stale | None:
    """Return the obstacle among the rows of cards, or None.

    That is what was made of cards that no task shares now, unless the share is about to make it too; or the
    row that a shared card takes no more shares.
    """
    rows = db.execute("SELECT gpu, kind, what, state FROM cards ORDER BY rowid").fetchall()
    if not rows:
        return None
    from isolator.gpus.share_claims import CLOSED, CardTrace

    shared = {gpu for (gpu,) in db.execute("SELECT gpu FROM claims WHERE method IS NOT NULL")}
    made_for_share = {(c.gpu, c.kind, c.what) for c in share.cards} if share is not None else set()
    left = tuple(
        CardTrace(GpuId(gpu), kind, what, state)
        for gpu, kind, what, state in rows
        if gpu in gpus and gpu not in shared and (gpu, kind, what) not in made_for_share
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
    """Return all holdings, oldest first."""
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
