"""Time zone of this machine."""

import os
from pathlib import Path
from typing import Final

from mesos_gpu.model.tenancy import find_zone

_LINK: Final = Path("/etc/localtime")
_NAME: Final = Path("/etc/timezone")


def local_zone(link: Path = _LINK, name: Path = _NAME) -> str:
    """Return the IANA name of the local zone: from TZ, else /etc/localtime, else /etc/timezone, else UTC."""
    if zone := os.environ.get("TZ", "").removeprefix(":"):
        return zone if find_zone(zone) else "UTC"
    where = os.path.realpath(link)
    if "/zoneinfo/" in where:
        zone = where.partition("/zoneinfo/")[2].removeprefix("posix/")
        if find_zone(zone):
            return zone
    try:
        zone = name.read_text("utf-8").strip()
    except OSError:  # a system without that file
        return "UTC"
    return zone if find_zone(zone) else "UTC"
