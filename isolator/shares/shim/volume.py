"""Driver volume in which our CUDA libraries precede the driver's, for tasks with a share that they enforce.

It is mounted as the plain one is, read-only at /usr/local/nvidia; the task's region goes to `region` in it,
read-only but for `usage`. Where a task also sees the host's own libraries, those of `covers` are mounted over
them. Lean: the executor imports it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from isolator.gpus import driver_volume
from isolator.shares.shim.sources import variant
from mesos_gpu.model.nodes.gpu import Inventory
from volumes.keys import REPLACED

if TYPE_CHECKING:  # deferred: needed only for tasks that see the host's own libraries
    from volumes.store import Volume


def for_tasks(env: Mapping[str, str], inventory: Inventory) -> Path | None:
    """Return the build for a task with such a share that starts now; None if this host has none.

    It must be leased (`driver_volume.lease`). Takes microseconds.
    """
    return driver_volume.for_tasks(env, inventory, variant())


def covers(volume: "Volume") -> tuple[tuple[Path, str], ...]:
    """Return the files to mount over a host's own libraries, so that tasks load ours: file in the volume, path on
    the host.

    The path has no symbolic links. Our libraries find the driver's at /usr/local/nvidia/lib64.
    """
    sources = {file.target: file.source for file in volume.files}
    return tuple((volume.path / "lib64" / ours, sources[f"lib64/{real}"]) for _, ours, real in REPLACED)
