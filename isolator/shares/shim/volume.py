"""The driver volume with our libraries before the driver's: what a task with a share that they enforce is given.

It is mounted as the plain one is, read-only at /usr/local/nvidia; the task's region goes to `region` in it, read-only
but for `usage`. Where a task sees the host's own libraries, too, those of `covers` lie over them.
Lean: the executor imports it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from isolator.gpus import driver_volume
from isolator.shares.shim.sources import variant
from mesos_gpu.model.nodes.gpu import Inventory
from volumes.keys import REPLACED

if TYPE_CHECKING:  # it costs each share what only a task that sees the host's own libraries need pay
    from volumes.store import Volume


def for_tasks(env: Mapping[str, str], inventory: Inventory) -> Path | None:
    """The build that a task with such a share gets if it starts now; None: this host has none. To be leased as any
    (`driver_volume.lease`). Takes microseconds."""
    return driver_volume.for_tasks(env, inventory, variant())


def covers(volume: "Volume") -> tuple[tuple[Path, str], ...]:
    """What to mount over a host's own libraries, so that a task which loads those gets ours: file in the volume, and
    path on the host without symbolic links. Ours then find the driver's at /usr/local/nvidia/lib64."""
    sources = {file.target: file.source for file in volume.files}
    return tuple((volume.path / "lib64" / ours, sources[f"lib64/{real}"]) for _, ours, real in REPLACED)
