"""Who holds which GPU of this host, and what was made for it: SQLite, one transaction for each holding.

A holding names the process that owns it (a task's executor) by pid, start time and boot, so that a dead owner's
is seen as dead whatever took its pid since. A primary key makes two claims of one GPU impossible. The traces of a
holding are written before the first of them is made: whoever finds its owner dead can undo them all.
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
from typing import Final

from mesos_gpu.adapters.proc import boot_id, start_ticks
from mesos_gpu.errors import Damaged, MesosGpuError, Unavailable
from mesos_gpu.model.ids import GpuId

VERSION: Final = 2
DEFAULT_DIRECTORY: Final = "/var/lib/mesos-gpu"
BUSY_TIMEOUT_S: Final = 30.0
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
    gpu TEXT PRIMARY KEY,
    holding INTEGER NOT NULL REFERENCES holdings (id) ON DELETE CASCADE
) WITHOUT ROWID;
"""
_FROM_1: Final = f"""
ALTER TABLE claims RENAME TO old_claims;
{_SCHEMA}
INSERT INTO holdings (task, container, pid, start_ticks, boot_id, pid_namespace, since, traces)
    SELECT task, '', pid, start_ticks, boot_id, pid_namespace, min(claimed_at), '[]'
    FROM old_claims GROUP BY 1, 3, 4, 5, 6;
INSERT INTO claims SELECT gpu, id FROM old_claims JOIN holdings USING (task, pid, start_ticks, boot_id, pid_namespace);
DROP TABLE old_claims;
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


@dataclass(frozen=True, slots=True)
class Refused:
    """Living tasks hold some of the GPUs; nothing was claimed."""

    held: tuple[Holding, ...]


@dataclass(frozen=True, slots=True)
class Stale:
    """Holdings of dead owners stand in the way; nothing was claimed. Undo them, `drop` them, try again."""

    dead: tuple[Holding, ...]


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

    def __init__(self, path: Path | None = None) -> None:
        """The file is made at the first call."""
        self._path = path or directory() / "ledger.sqlite"

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
    ) -> Claimed | Refused | Stale | NoneFree:
        """Hold all of `gpus` for `task`, or none. To claim again what one holds is no error.

        Args:
            task, gpus, owner, container, traces: As of `Holding`.
            uids: With `uid_trace`, of which the first is held as well that no other task holds.
            uid_trace: The trace of a uid, which all that hold one have.
        """
        with self._transaction() as db:
            everyone = list(_all(db))
            others = [h for h in everyone if h.owner != owner and not set(gpus).isdisjoint(h.gpus)]
            live = tuple(holding for holding in others if self.alive(holding))
            if live:
                return Refused(live)
            if others:
                return Stale(tuple(others))
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
            marks = json.dumps([astuple(trace) for trace in traces])
            row = (task, *astuple(owner), container, time.time(), marks)
            held = db.execute(
                """INSERT INTO holdings (task, pid, start_ticks, boot_id, pid_namespace, container, since, traces)
                   VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET traces = excluded.traces RETURNING id""",
                row,
            ).fetchone()[0]
            db.executemany("INSERT OR REPLACE INTO claims VALUES (?, ?)", [(gpu, held) for gpu in gpus])
        return Claimed(uid)

    def alive(self, holding: Holding) -> bool:
        """Whether the owner still runs; by its lock, if it lives in another pid namespace. In doubt, it does."""
        alive = holding.owner.alive()
        if alive is not None or not holding.container:
            return alive is not False
        try:
            with open(self._lock(holding.container)) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held; or it cannot be opened
            return True
        return False

    def lock(self, container: str) -> int:
        """Take the lock of a container for as long as the file descriptor that is returned is open in any process.

        Raises:
            OSError: It cannot be had.
        """
        path = self._lock(container)
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd

    def _lock(self, container: str) -> Path:
        return self._path.parent / "owners" / container

    def release(self, task: str, owner: Owner, container: str = "") -> None:
        """Give up what the task holds, unless another owner has it by now."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM holdings WHERE (task, pid, start_ticks, boot_id, pid_namespace) = (?, ?, ?, ?, ?)",
                (task, *astuple(owner)),
            )
        if container:
            self._lock(container).unlink(missing_ok=True)

    def drop(self, holding: Holding) -> None:
        """Remove a dead owner's holding, exactly this one."""
        self.release(holding.task, holding.owner, holding.container)

    def holdings(self) -> tuple[Holding, ...]:
        """All, of the living and of the dead, oldest first."""
        with self._transaction() as db:
            return tuple(_all(db))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            if not self._path.exists():
                self._create()
            # mode=rw: what is there must be a whole ledger; an empty file is one that was truncated.
            with contextlib.closing(_connect(f"{self._path.absolute().as_uri()}?mode=rw")) as db:
                db.execute(
                    "PRAGMA synchronous=NORMAL"
                )  # with WAL: a power cut loses claims, but damages nothing
                db.execute("PRAGMA foreign_keys=ON")
                db.execute("BEGIN IMMEDIATE")
                self._check(db)
                yield db
                db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise self._explained(error) from error

    def _create(self) -> None:
        """Make a whole ledger elsewhere, and give it its name in one step: whoever loses the race uses the winner's."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_name(f".{self._path.name}.{os.urandom(8).hex()}")
        try:
            with contextlib.closing(_connect(f"{part.absolute().as_uri()}?mode=rwc")) as db:
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
        if version == 1:
            for statement in filter(str.strip, _FROM_1.split(";")):
                db.execute(statement)
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


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)


def _all(db: sqlite3.Connection) -> list[Holding]:
    claims: dict[int, list[GpuId]] = {}
    for gpu, held in db.execute("SELECT gpu, holding FROM claims ORDER BY gpu"):
        claims.setdefault(held, []).append(GpuId(gpu))
    rows = db.execute(
        """SELECT id, task, container, since, traces, pid, start_ticks, boot_id, pid_namespace FROM holdings
           ORDER BY id"""
    )
    return [
        Holding(
            task, Owner(*owner), tuple(claims.get(held, ())), container,
            tuple(Trace(*trace) for trace in json.loads(traces)), since,
        )
        for held, task, container, since, traces, *owner in rows
    ]  # fmt: skip
