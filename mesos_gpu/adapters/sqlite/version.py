"""Schema number of a state's file."""

import sqlite3


def version_of(db: sqlite3.Connection) -> int:
    """Return the schema number; 0 if the file has none yet."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])
