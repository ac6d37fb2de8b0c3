"""Volumes in job requests and options: HOST:PATH, HOST:PATH:ro, and named volumes as objects; pure functions."""

import re
from collections.abc import Mapping
from typing import Any, Final

from mesos_gpu.model.jobs.mount import Mount, unfit
from mesos_gpu.model.tasks.volume import VOLUME_NAME
from mesos_gpu.wire.checking import Check, show

SHAPE: Final = re.compile(r"([^:\x00]+):([^:\x00]+)(:r[ow])?")
FORM: Final = "HOST:PATH, or HOST:PATH:ro for read-only, as /data/imagenet:/data:ro"
MAX: Final = 100
NAME_FORM: Final = "a name of 1 to 63 of a-z, 0-9 and '-', as data"
PATH: Final = re.compile(r"[^:\x00\ud800-\udfff]+")
PATH_FORM: Final = "a path in the sandbox, as data, or from the root, as /data, without ':'"
SIZE: Final = re.compile(r"([1-9][0-9]{0,9})(MiB|GiB|TiB)")
SIZE_FORM: Final = "a whole number of MiB, or one with a unit, as 10GiB"
MAX_MIB: Final = 2**31
NAMED_KNOWN: Final = ("name", "path", "size", "read_only")
OPTION_FORM: Final = "name=data,path=data,size=10GiB"
_UNITS: Final = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}
_NAMED: Final = "name="  # begin of the option's value for a named volume
_READ_ONLY: Final = "ro"


def mount_of(value: object) -> Mount | str:
    """Parse a mount; return the problem as text if it is invalid."""
    match = SHAPE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return f"must be {FORM}"
    mount = Mount(match[1], match[2], match[3] == ":ro")
    return next((why for _, why in unfit([mount])), mount)


def named_mount(check: Check) -> Mount:
    """Parse the object of a named volume; problems are reported to the check."""
    for key in ("name", "path"):
        if key not in check.given:
            check.problem(key, "is needed for a named volume")
    name = check.text("name", None, VOLUME_NAME, NAME_FORM) or ""
    path = check.text("path", None, PATH, PATH_FORM) or ""
    size = check.given.get("size")
    mib = 0 if size is None else _mib_of(size)
    if mib is None:
        check.problem("size", f"must be {SIZE_FORM}, at most {size_text(MAX_MIB)}; got {show(size)}")
    return Mount(name, path, check.flag("read_only"), mib or 0, volume=name)


def _mib_of(size: object) -> int | None:
    """Return a size in MiB; None if the value is not a valid size."""
    match = SIZE.fullmatch(size) if isinstance(size, str) else None
    mib = int(match[1]) * _UNITS[match[2]] if match else size
    if not isinstance(mib, int) or isinstance(mib, bool):
        return None
    return mib if 1 <= mib <= MAX_MIB else None


def size_text(mib: int) -> str:
    """Return an amount of memory or disk as text in GiB if it is whole, else in MiB."""
    return f"{mib // 1024}GiB" if mib % 1024 == 0 else f"{mib}MiB"


def mount_to_json(mount: Mount) -> str | dict[str, Any]:
    """Return a mount as in a request; a descriptive text for a volume of an app, which requests cannot have."""
    if mount.volume:
        size = size_text(mount.volume_mib) if mount.volume_mib else None
        return {"name": mount.volume, "path": mount.target, "size": size, "read_only": mount.read_only}
    if mount.volume_mib:
        return f"persistent volume {mount.source}:{mount.target}"
    return f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}"


def volume_text(volume: str | Mapping[str, Any]) -> str:
    """Return a mount of a request as value of the option --volume."""
    if isinstance(volume, str):
        return volume
    words = [f"{key}={volume[key]}" for key in ("name", "path", "size") if volume.get(key)]
    return ",".join([*words, *([_READ_ONLY] if volume.get("read_only") else [])])


def option_of(volume: str | Mapping[str, Any]) -> str | None:
    """Return a mount of a request as value of the option --volume; None if the option cannot express it."""
    return volume_text(volume) if isinstance(volume, str) or "," not in volume["path"] else None


def is_option_named(text: str) -> bool:
    """Return whether a value of the option --volume describes a named volume."""
    return text.startswith(_NAMED)


def named_option(text: str) -> dict[str, Any]:
    """Parse a value of the option --volume as the object of a named volume.

    Raises:
        ValueError: The value has an unknown part, or a part twice; the message names it.
    """
    read: dict[str, Any] = {}
    for word in text.split(","):
        key, equals, value = word.partition("=")
        if word == _READ_ONLY:
            key, value = "read_only", "true"
        elif not equals or key not in ("name", "path", "size"):
            raise ValueError(
                f"{word!r} is not name=NAME, path=PATH, size=SIZE or ro; write for example {OPTION_FORM}"
            )
        if key in read:
            raise ValueError(f"{text!r} has {key} twice; remove one")
        read[key] = value == "true" if key == "read_only" else value
    return read
