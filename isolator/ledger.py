"""Who holds which GPU of this host: SQLite, one transaction for each claim.

A claim names the process that owns it (its executor) by pid, start time and boot, so that a dead owner's
claim is seen as dead whatever took its pid since. The primary key makes two claims of one GPU impossible.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mesos_gpu.errors import Damaged
from mesos_gpu.model.ids import GpuId

VERSION = 1
DEFAULT_DIRECTORY = "/var/lib/mesos-gpu"
_SCHEMA = """
CREATE TABLE claims (
    gpu TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    claimed_at REAL NOT NULL
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, unmistakably. `start_ticks`: field 22 of /proc/PID/stat, clock ticks since boot."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> "Owner":
        """The process with that pid now.

        Raises:
            ProcessLookupError: There is none.
        """
        ticks = start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(pid)
        return cls(pid, ticks, boot_id())

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return self.boot_id == boot_id() and start_ticks(self.pid) == self.start_ticks


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


def start_ticks(pid: int) -> int | None:
    """When a process started; None: there is none, or it is a zombie (proc_pid_stat(5))."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the command's name may hold spaces and parentheses
    return None if fields[0] in "ZX" else int(fields[19])


class Ledger:
    """The claims of this host. Each call opens the file, so a ledger that was damaged meanwhile is noticed.

    Raises:
        Damaged: Any call, if the file is not a ledger, is corrupt or is newer than this program. Nothing is
            claimed then: a ledger that cannot be read must not say that all GPUs are free.
    """

    def __init__(self, path: Path | None = None) -> None:
        """The file is made at the first claim."""
        self._path = path or directory() / "ledger.sqlite"

    def claim(self, task: str, gpus: Sequence[GpuId], owner: Owner) -> Claimed | Refused | Stale:
        """Hold all of `gpus` for `task`, or none."""
        with self._transaction() as db:
            held = [claim for claim in _all(db) if claim.gpu in gpus and claim.task != task]
            live = tuple(claim for claim in held if claim.owner.alive())
            if live:
                return Refused(live)
            if held:
                return Stale(tuple(held))
            now = time.time()
            db.executemany(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?)",
                [(gpu, task, owner.pid, owner.start_ticks, owner.boot_id, now) for gpu in gpus],
            )
        return Claimed()

    def release(self, task: str, owner: Owner) -> None:
        """Give up what the task holds, unless another owner has it by now."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM claims WHERE task = ? AND pid = ? AND start_ticks = ? AND boot_id = ?",
                (task, owner.pid, owner.start_ticks, owner.boot_id),
            )

    def drop(self, claims: Sequence[Claim]) -> None:
        """Remove claims of dead owners, exactly these."""
        for claim in claims:
            self.release(claim.task, claim.owner)

    def claims(self) -> tuple[Claim, ...]:
        """All claims, of the living and of the dead."""
        with self._transaction() as db:
            return tuple(_all(db))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            db = sqlite3.connect(self._path, timeout=30, isolation_level=None)
            try:
                # A power cut ends all claims by the boot id, so no fsync is needed against it.
                db.execute("PRAGMA synchronous=OFF")
                db.execute("BEGIN IMMEDIATE")
                self._check(db)
                yield db
                db.execute("COMMIT")
            finally:
                db.close()  # rolls back what is not committed
        except sqlite3.DatabaseError as error:
            raise Damaged(
                f"the ledger {self._path} cannot be used: {error}",
                remedy="stop this host's GPU tasks, then remove the file: it is made anew",
            ) from error

    def _check(self, db: sqlite3.Connection) -> None:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            db.execute(_SCHEMA)
            db.execute(f"PRAGMA user_version={VERSION}")
        elif version != VERSION:
            raise Damaged(
                f"the ledger {self._path} has version {version}, and this program knows {VERSION}",
                remedy="run the mesos_gpu that wrote it",
            )


def _all(db: sqlite3.Connection) -> list[Claim]:
    rows = db.execute("SELECT gpu, task, pid, start_ticks, boot_id, claimed_at FROM claims ORDER BY gpu")
    return [Claim(GpuId(g), task, Owner(pid, ticks, boot), at) for g, task, pid, ticks, boot, at in rows]
