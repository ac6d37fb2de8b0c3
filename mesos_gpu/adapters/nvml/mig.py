"""MIG instances of this host's cards: their capabilities in the driver's files, and how they are made and removed.

Source: NVIDIA's MIG User Guide, "Device Nodes and Capabilities": `gpu<device minor>/gi<id>/ci<id>/access`.
"""

from pathlib import Path
from typing import Final

from mesos_gpu.errors import Unavailable

MINORS: Final = "proc/driver/nvidia-caps/mig-minors"


def capability_minors(
    card_minor: int, gpu_instance: int, compute_instance: int, root: Path = Path("/")
) -> tuple[int, int]:
    """Minors below /dev/nvidia-caps that a process must be able to read to use an instance: of the GPU instance, and of
    the compute instance in it.

    Args:
        card_minor: N of /dev/nvidiaN.
        gpu_instance, compute_instance: Ids, as of `MigInstance`.
        root: Whose /proc is read.

    Raises:
        Unavailable: The driver has no such capability, or none at all.
    """
    try:
        lines = (root / MINORS).read_text().splitlines()
    except OSError as error:
        raise Unavailable(
            f"/{MINORS} cannot be read: {error.strerror}",
            remedy="load a driver that knows MIG (450 or newer)",
        ) from error
    minors = dict(line.rsplit(" ", 1) for line in lines if " " in line)
    instance = f"gpu{card_minor}/gi{gpu_instance}"
    names = (f"{instance}/access", f"{instance}/ci{compute_instance}/access")
    missing = [name for name in names if not minors.get(name, "").isdigit()]
    if missing:
        raise Unavailable(
            f"/{MINORS} has no {missing[0]}", remedy="see nvidia-smi -L; restart the node monitor"
        )
    return int(minors[names[0]]), int(minors[names[1]])
