"""The zone whose local time this machine shows."""

import os
from pathlib import Path
from typing import Final

from mesos_gpu.model.tenancy import find_zone

_LINK: Final = Path("/etc/localtime")
_NAME: Final = Path("/etc/timezone")


def local_zone(link: Path = _LINK, name: Path = _NAME) -> str:
    """The name of that zone in IANA's database: of TZ, else by /etc/localtime, else by /etc/timezone, else UTC."""
    if zone := os.environ.get("TZ", "").removeprefix(":"):
        return zone if find_zone(zone) else "UTC"
    where = os.path.realpath(link)
    if "/zoneinfo/" in where:
        zone = where.partition("/zoneinfo/")[2].removeprefix("posix/")
        if find_zone(zone):
            return zone
    try:
        zone = name.read_text("utf-8").strip()
    except OSError:  # a system that has none
        return "UTC"
    return zone if find_zone(zone) else "UTC"
