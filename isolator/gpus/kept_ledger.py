"""Connection to the ledger that stays open, so that no process that closes the file has to write its log
back.
"""

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

WRITE_BACK_S: Final = 10.0  # pause between two times at which changes are written back to the file


class Kept:
    """Open connection that blocks no reader or writer; thread-safe."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._file = (0, 0)  # device and inode of the open file
        self._written_back_at = 0.0

    def hold(self, path: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        """Open the file unless it is open already; it may have been replaced meanwhile. Write its log back
        from time to time.

        Args:
            path: Path of the file.
            connect: Function that opens the file for use by any thread.

        Raises:
            OSError, sqlite3.DatabaseError: It was removed or damaged since the last transaction.
        """
        status = path.stat()
        with self._turn:
            if self._file == (status.st_dev, status.st_ino):
                assert self._db is not None
                if (now := time.monotonic()) - self._written_back_at >= WRITE_BACK_S:
                    self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                    self._written_back_at = now
                return
            if self._db is not None:
                self._db.close()
                self._file = (0, 0)
            self._db = connect()
            self._db.execute("SELECT count(*) FROM cards").fetchone()
            self._file = status.st_dev, status.st_ino
