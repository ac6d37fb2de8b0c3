"""Audit log of a running scheduler: a chain of changes and one of refusals, written by one thread.

A change's record is on disk before its answer is sent; all waiting records are written and synced together. Refusals
have files and a size limit of their own, so that even very many never displace records of changes.
"""

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from mesos_gpu.access.asked import Asked, Found
from mesos_gpu.access.floods import RefusalLimiter
from mesos_gpu.adapters.audit import search
from mesos_gpu.adapters.audit.directory import Directory
from mesos_gpu.adapters.audit.stream import WRITER, Stream
from mesos_gpu.adapters.disk import room
from mesos_gpu.errors import BadConfiguration, NoRoom
from mesos_gpu.model.access.record import AuditRecord, Result

CHANGES: Final = "changes"
REFUSALS: Final = "refusals"
PAUSE_S: Final = 1.0  # between syncs of refusals, and until a full disk is tried again
_BATCH: Final = 64
_LESS: Final = 4  # divisor of the size limit for refusals
HOUR_S: Final = 3600.0
logger = logging.getLogger("mesos_gpu.audit")  # logged at every log level


class OnFull(Enum):
    """Handling of changes while they cannot be recorded."""

    REFUSE = "refuse"
    DROP = "drop"  # changes are made, and lost records are counted


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Limits of the audit log, and its reaction to a full disk."""

    directory: Path
    most_bytes: int = 256 << 20  # of changes; refusals have a quarter of it in addition
    files: int = 16  # of each chain
    on_full: OnFull = OnFull.REFUSE


#: Records lost since this process began, by chain; for metrics.
LOST: Final[Counter[str]] = Counter({CHANGES: 0, REFUSALS: 0})
_Item = tuple[AuditRecord, Future[None]]


class AuditLog:
    """`AuditTrail` in a directory, with a thread that writes.

    Args:
        settings: Directory and limits.
        version: Version of the program, for records of its start.
        now: Function that returns seconds since the epoch.

    Raises:
        BadConfiguration: The directory cannot be used.
        Conflict: Another process writes there.
    """

    def __init__(
        self, settings: AuditSettings, *, version: str = "", now: Callable[[], float] = time.time
    ) -> None:
        self._settings, self._now, self._version = settings, now, version
        self._directory = Directory(settings.directory, make=True)
        try:
            self._directory.lock()
            self._changes = self._stream(CHANGES, 1, room.AHEAD)
            self._refusals = self._stream(REFUSALS, _LESS, 0)
        except OSError as error:
            self._directory.close()
            raise BadConfiguration(
                f"the audit log in {settings.directory} cannot be read: {error.strerror}",
                remedy="repair its files, or give another directory with --audit-dir",
            ) from error
        except BaseException:
            self._directory.close()
            raise
        self._begun: set[str] = set()
        self._floods, self._floods_lock = RefusalLimiter(), threading.Lock()
        self._full: NoRoom | None = None
        self._lost = self._unsaid = 0  # lost since the start; of these, not recorded in the log yet
        self._unsynced = False
        self._inbox: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._begin()
        self._log_heads()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def _stream(self, kind: str, part: int, reserve: int) -> Stream:
        most = self._settings.most_bytes // part
        return Stream(self._directory, kind, most_bytes=most, files=self._settings.files, reserve=reserve)

    # --- called from any thread

    def full(self) -> NoRoom | None:
        """Return why no change may be made now; None if changes are allowed."""
        return self._full if self._settings.on_full is OnFull.REFUSE else None

    @property
    def lost(self) -> int:
        """Number of records that were lost since the start."""
        return self._lost

    def put(self, record: AuditRecord) -> Future[None] | None:
        """Write a record. Return None if it was only counted, as part of a flood of refusals."""
        future: Future[None] = Future()
        if record.result is Result.REFUSED:
            with self._floods_lock:
                over = list(self._floods.over(record.at))
                whole = self._floods.take(record)
            for record_ in over:
                self._inbox.put((record_, Future()))
            if not whole:
                return None
        self._inbox.put((record, future))
        return future

    def search(self, asked: Asked, *, limit: int, cursor: str) -> Found:
        """Return the newest records that match."""
        return search.search(self._directory, asked, limit=limit, cursor=cursor)

    def close(self) -> None:
        """Write all waiting records, and end the thread."""
        with self._floods_lock:
            over = list(self._floods.over(self._now(), at_once=True))
        for record in over:
            self._inbox.put((record, Future()))
        self._inbox.put(None)
        self._thread.join()

    # --- called on the writer's thread

    def _run(self) -> None:
        """Write batches of records until `close`."""
        go_on = True
        while go_on:
            batch, go_on = self._collect()
            changes = [item for item in batch if item[0].result is not Result.REFUSED]
            refusals = [item for item in batch if item[0].result is Result.REFUSED]
            if changes or self._full is not None or self._unsaid:
                self._write(self._changes, changes)
            if refusals:
                self._write(self._refusals, refusals)
            elif self._unsynced:
                self._sync_refusals()
            if time.monotonic() >= self._tell_at:
                self._log_heads()
        self._end()

    def _log_heads(self) -> None:
        """Log the ends of the chains, for comparison with a copy of the scheduler's log on another host."""
        self._tell_at = time.monotonic() + HOUR_S
        for kind, stream in ((CHANGES, self._changes), (REFUSALS, self._refusals)):
            logger.info("the audit log's %s are at %d: %s", kind, stream.head.seq, stream.head.hash)

    def _collect(self) -> tuple[list[_Item], bool]:
        """Return waiting records, none after a pause without any, and whether the thread has to go on."""
        batch: list[_Item] = []
        try:
            item = self._inbox.get(timeout=PAUSE_S)
            while item is not None:
                batch.append(item)
                if len(batch) == _BATCH:
                    return batch, True
                item = self._inbox.get_nowait()
        except queue.Empty:
            if not batch:
                self._look_at_floods()
            return batch, True
        return batch, False

    def _look_at_floods(self) -> None:
        with self._floods_lock:
            over = list(self._floods.over(self._now()))
        for record in over:
            self._inbox.put((record, Future()))

    def _write(self, stream: Stream, items: Sequence[_Item]) -> None:
        """Write and, for changes, sync records; their futures are completed also if that fails."""
        is_changes = stream is self._changes
        records = [record for record, _ in items]
        if is_changes and self._unsaid:
            records.insert(0, _loss(self._now(), self._unsaid))
        try:
            self._begin_once(stream)
            if records:
                stream.append(records)
            if is_changes:
                stream.sync()
                self._unsaid = 0
        except OSError as error:
            self._count_lost(error, is_changes, len(items))
        else:
            self._unsynced |= not is_changes
            if is_changes:
                self._look_for_room()
        finally:
            for _, future in items:
                future.set_result(None)

    def _look_for_room(self) -> None:
        """Reserve room for the next records, and update the full state."""
        try:
            self._changes.take_room()
        except OSError as error:
            self._count_lost(error, True, 0)
        else:
            self._found_room()

    def _begin(self) -> None:
        """Begin both chains; after a failure this is repeated with the next record."""
        for stream in (self._changes, self._refusals):
            try:
                self._begin_once(stream)
                stream.sync()
                stream.take_room()
            except OSError as error:
                self._count_lost(error, stream is self._changes, 0)

    def _begin_once(self, stream: Stream) -> None:
        kind = CHANGES if stream is self._changes else REFUSALS
        if kind not in self._begun:
            stream.begin(self._now(), f"version {self._version}" if self._version else "")
            self._begun.add(kind)

    def _count_lost(self, error: OSError, is_changes: bool, count: int) -> None:
        """Count lost records. An error that prevents changes from being recorded makes the log full."""
        self._lost += count
        LOST[CHANGES if is_changes else REFUSALS] += count
        self._unsaid += count
        if not is_changes:
            return
        if self._full is None:
            refuses = self._settings.on_full is OnFull.REFUSE
            then = "changes are refused" if refuses else "changes are made without a record"
            logger.error("the audit log cannot be written: %s; %s until it can", error.strerror, then)
        self._full = NoRoom(
            f"the audit log in {self._directory.path} cannot be written: {error.strerror}",
            remedy="free disk space there; then changes are accepted again",
        )

    def _found_room(self) -> None:
        if self._full is not None:
            self._full = None
            logger.warning("the audit log is written again; %d records were lost since the start", self._lost)

    def _sync_refusals(self) -> None:
        self._unsynced = False
        try:
            self._refusals.sync()
        except OSError as error:
            logger.warning("the audit log's refusals cannot be forced to disk: %s", error.strerror)

    def _end(self) -> None:
        if self._unsynced:
            self._sync_refusals()
        self._log_heads()
        for stream in (self._changes, self._refusals):
            try:
                stream.close()
            except OSError as error:
                logger.warning("the audit log could not be closed properly: %s", error.strerror)
        self._directory.close()


def _loss(at: float, count: int) -> AuditRecord:
    detail = "records that could not be written"
    return AuditRecord(at, "audit:lost", Result.FAILED, WRITER, detail=detail, count=count)
