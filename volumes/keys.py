"""Paths and keys of driver volumes, and the builds that tasks get.

The executor imports this module, which is small for that reason.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

DEFAULT_PATH: Final = "/var/lib/mesos/volumes"
RECORD: Final = "volume.json"  # the record of a build's content
REGION: Final = "region"  # directory of a variant where a task's own limits are mounted
DATA: Final = "share"  # directory of a volume for what EGL, Vulkan and OptiX read

#: Stem of a library, name of this project's library, and name of the driver's beside it.
REPLACED: Final = (
    ("libcuda", "libcuda.so.1", "libmgpu-real-cuda.so"),
    ("libnvidia-ml", "libnvidia-ml.so.1", "libmgpu-real-ml.so"),
)


def key_of(version: str, variant: str = "") -> str:
    """Return the key of a driver version's volume in a store: "535.261.03", "535.261.03+shim-0123456789ab"."""
    return f"{version}+{variant}" if variant else version


def variant_of(digest: str) -> str:
    """Return the variant of volumes that have the libraries built from sources with this digest."""
    return f"shim-{digest[:12]}"


def default_path(env: Mapping[str, str]) -> Path:
    """Return MESOS_GPU_VOLUMES, else /var/lib/mesos/volumes."""
    return Path(env.get("MESOS_GPU_VOLUMES") or DEFAULT_PATH)


def link_of(store: Path, key: str) -> Path:
    """Return the path in a store for the volume of a key (`key_of`), whether or not it exists."""
    return store / f"nvidia_{key}"


def current(store: Path, key: str) -> Path | None:
    """Return the build that tasks get for a key (`key_of`); None if the store has none. Takes microseconds."""
    try:
        build = Path(os.path.realpath(link_of(store, key), strict=True))
        os.stat(build / RECORD)
    except OSError:
        return None
    return build


def data_of(build: Path) -> tuple[str, ...]:
    """Return the paths of a build's data files, relative to it and sorted; empty if the build is gone. Takes
    microseconds.
    """
    paths = (
        os.path.relpath(os.path.join(top, name), build)
        for top, _, names in os.walk(build / DATA)
        for name in names
    )
    return tuple(sorted(paths))
