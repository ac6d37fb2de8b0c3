"""Volumes as job requests and people write them: HOST:PATH, HOST:PATH:ro. Pure."""

import re
from typing import Final

from mesos_gpu.model.jobs.mount import Mount, unfit

SHAPE: Final = re.compile(r"([^:\x00]+):([^:\x00]+)(:r[ow])?")
FORM: Final = "HOST:PATH, or HOST:PATH:ro to read only, as /data/imagenet:/data:ro"
MOST: Final = 100


def mount_of(value: object) -> Mount | str:
    """Read a mount; a string says what is wrong."""
    match = SHAPE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return f"must be {FORM}"
    mount = Mount(match[1], match[2], match[3] == ":ro")
    return next((why for _, why in unfit([mount])), mount)


def text_of(mount: Mount) -> str:
    """The inverse of `mount_of`; of a persistent volume, which no request names, in words."""
    if mount.volume_mib:
        return f"persistent volume {mount.source}:{mount.target}"
    return f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}"
