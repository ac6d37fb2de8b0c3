"""What a job may not say to what keeps it to its share. Pure.

Sources: NVIDIA's documentation of MPS (CUDA_MPS_*; an entry of CUDA_MPS_PINNED_DEVICE_MEM_LIMIT that names another
card drops every limit) and of its container toolkit (NVIDIA_*).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from mesos_gpu.model.shares.share import Share

#: By these a program chooses its MPS server and its limits, or asks a container runtime for other devices.
DROPPED: Final = (
    "CUDA_MPS_",
    "NVIDIA_GPU_MEMORY_LIMIT",
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_MIG_",
)


def dropped(env: Mapping[str, str]) -> tuple[str, ...]:
    """Variables of a job that its task does not get, as it has a share."""
    return tuple(sorted(name for name in env if name.startswith(DROPPED)))


def warnings_of(notes: Iterable[str], env: Mapping[str, str]) -> list[str]:
    """Return what a task is told of its share: notes on the share itself, and variables of the job that it lacks."""
    texts = list(notes)
    if names := dropped(env):
        texts.append(
            f"{', '.join(names)} of the job: dropped, as what keeps it to its share of a GPU decides on them"
        )
    return texts


def kept(env: Mapping[str, str]) -> dict[str, str]:
    """What it gets of them."""
    return {name: value for name, value in env.items() if not name.startswith(DROPPED)}


def visible(share: Share, gpus: tuple[str, ...]) -> str:
    """What CUDA is to see: the MIG instance, else the cards."""
    return share.instance or ",".join(gpus)
