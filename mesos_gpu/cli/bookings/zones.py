"""The zone whose local time this machine shows."""

import os
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_LINK: Final = Path("/etc/localtime")
_NAME: Final = Path("/etc/timezone")


def local_zone(link: Path = _LINK, name: Path = _NAME) -> str:
    """The name of that zone in IANA's database: of TZ, else by /etc/localtime, else by /etc/timezone, else UTC."""
    if zone := os.environ.get("TZ", "").removeprefix(":"):
        return zone if _is_known(zone) else "UTC"
    where = os.path.realpath(link)
    if "/zoneinfo/" in where:
        zone = where.partition("/zoneinfo/")[2].removeprefix("posix/")
        if _is_known(zone):
            return zone
    try:
        zone = name.read_text("utf-8").strip()
    except OSError:  # a system that has none
        return "UTC"
    return zone if _is_known(zone) else "UTC"


def _is_known(zone: str) -> bool:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
