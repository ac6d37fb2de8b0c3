"""Where driver volumes are, by what each is known, and which of them tasks get. Lean: the executor imports it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

DEFAULT_PATH: Final = "/var/lib/mesos/volumes"
RECORD: Final = "volume.json"  # of a build: what is in it
REGION: Final = "region"  # of a variant: the directory where a task's own limits are mounted
DATA: Final = "share"  # of a volume: the directory of what EGL, Vulkan and OptiX read

#: Stem of a library, what ours is called, and what the driver's is called beside it.
REPLACED: Final = (
    ("libcuda", "libcuda.so.1", "libmgpu-real-cuda.so"),
    ("libnvidia-ml", "libnvidia-ml.so.1", "libmgpu-real-ml.so"),
)


def key_of(version: str, variant: str = "") -> str:
    """What a store knows the volume of a driver version by: "535.261.03", "535.261.03+shim-0123456789ab"."""
    return f"{version}+{variant}" if variant else version


def variant_of(digest: str) -> str:
    """The variant of volumes that have the libraries of that source."""
    return f"shim-{digest[:12]}"


def default_path(env: Mapping[str, str]) -> Path:
    """MESOS_GPU_VOLUMES, else /var/lib/mesos/volumes."""
    return Path(env.get("MESOS_GPU_VOLUMES") or DEFAULT_PATH)


def link_of(store: Path, key: str) -> Path:
    """Where the volume of a driver version, or of `key_of` one and a variant, is in a store, if there is one."""
    return store / f"nvidia_{key}"


def current(store: Path, key: str) -> Path | None:
    """The build that tasks of that driver get; None: there is none. `key`: as of `link_of`. Takes microseconds."""
    try:
        build = Path(os.path.realpath(link_of(store, key), strict=True))
        os.stat(build / RECORD)
    except OSError:
        return None
    return build


def data_of(build: Path) -> tuple[str, ...]:
    """Return the files of data that a build has, as paths below it, sorted; none if it is gone. Takes microseconds."""
    paths = (
        os.path.relpath(os.path.join(top, name), build)
        for top, _, names in os.walk(build / DATA)
        for name in names
    )
    return tuple(sorted(paths))
