"""The number of a file's schema."""

import sqlite3


def version_of(db: sqlite3.Connection) -> int:
    """The number; 0: it has none yet."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])
