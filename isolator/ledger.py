"""Who holds which GPU of this host: SQLite, one transaction for each claim.

A claim names the process that owns it (its executor) by pid, start time and boot, so that a dead owner's
claim is seen as dead whatever took its pid since. The primary key makes two claims of one GPU impossible.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from mesos_gpu.adapters.proc import start_ticks
from mesos_gpu.errors import Damaged, MesosGpuError, Unavailable
from mesos_gpu.model.ids import GpuId

VERSION: Final = 1
DEFAULT_DIRECTORY: Final = "/var/lib/mesos-gpu"
BUSY_TIMEOUT_S: Final = 30.0
#: What SQLite says of the file itself, by primary result code; all else is about the host (disk, rights, locks).
_DAMAGE: Final = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SCHEMA = """
CREATE TABLE claims (
    gpu TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    pid_namespace INTEGER NOT NULL,
    claimed_at REAL NOT NULL
) WITHOUT ROWID;
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

    def alive(self) -> bool:
        """Whether this very process still runs; one that cannot be seen from here counts as running."""
        if self.boot_id != boot_id():
            return False
        return self.pid_namespace != pid_namespace() or start_ticks(self.pid) == self.start_ticks


@dataclass(frozen=True, slots=True)
class Claim:
    """One GPU, held by one task. `claimed_at`: seconds since the epoch."""

    gpu: GpuId
    task: str
    owner: Owner
    claimed_at: float


@dataclass(frozen=True, slots=True)
class Refused:
    """Live claims stand in the way; nothing was claimed."""

    held: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class Stale:
    """Claims of dead owners stand in the way; nothing was claimed. End their tasks, `drop` them, try again."""

    dead: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class Claimed:
    """All GPUs that were asked for are held."""


def directory() -> Path:
    """Where this host keeps the ledger: MESOS_GPU_NODE_DIR, else /var/lib/mesos-gpu."""
    return Path(os.environ.get("MESOS_GPU_NODE_DIR") or DEFAULT_DIRECTORY)


def boot_id() -> str:
    """Changes at each boot (random(4))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> int:
    """This process' pid namespace (pid_namespaces(7))."""
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

    def claim(self, task: str, gpus: Sequence[GpuId], owner: Owner) -> Claimed | Refused | Stale:
        """Hold all of `gpus` for `task`, or none. To claim again what one holds is no error."""
        with self._transaction() as db:
            held = [claim for claim in _all(db) if claim.gpu in gpus and claim.owner != owner]
            live = tuple(claim for claim in held if claim.owner.alive())
            if live:
                return Refused(live)
            if held:
                return Stale(tuple(held))
            now = time.time()
            db.executemany(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(gpu, task, *astuple(owner), now) for gpu in gpus],
            )
        return Claimed()

    def release(self, task: str, owner: Owner) -> None:
        """Give up what the task holds, unless another owner has it by now."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM claims WHERE (task, pid, start_ticks, boot_id, pid_namespace) = (?, ?, ?, ?, ?)",
                (task, *astuple(owner)),
            )

    def drop(self, claims: Sequence[Claim]) -> None:
        """Remove claims of dead owners, exactly these."""
        for claim in claims:
            self.release(claim.task, claim.owner)

    def claims(self) -> tuple[Claim, ...]:
        """All claims, of the living and of the dead."""
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
                db.execute(_SCHEMA)
                db.execute(f"PRAGMA user_version={VERSION}")
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
        found = db.execute("PRAGMA quick_check(1)").fetchone()[0] if version else "it is empty"
        if found != "ok":
            raise self._damaged(found)

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


def _all(db: sqlite3.Connection) -> list[Claim]:
    rows = db.execute(
        "SELECT gpu, task, claimed_at, pid, start_ticks, boot_id, pid_namespace FROM claims ORDER BY gpu"
    )
    return [Claim(GpuId(gpu), task, Owner(*owner), at) for gpu, task, at, *owner in rows]
