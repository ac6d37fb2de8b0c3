"""Time zones of IANA's database, by name."""

from zoneinfo import ZoneInfo


def find_zone(name: str) -> ZoneInfo | None:
    """Return a time zone; None if the database has none of that name.

    The database is a directory, so a name that is no path there raises errors of the file system: ENAMETOOLONG for more
    than 255 characters, EISDIR for "Europe".
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
