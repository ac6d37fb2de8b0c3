"""Environment variables that a job may not set for a task with a share, as they would change its limits.
Pure.

Sources: NVIDIA's documentation of MPS (CUDA_MPS_*; an entry of CUDA_MPS_PINNED_DEVICE_MEM_LIMIT that names
another card drops every limit) and of its container toolkit (NVIDIA_*).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from mesos_gpu.model.shares.share import Share

#: Prefixes of variables that choose an MPS server and its limits, or ask a container runtime for other
#: devices.
DROPPED: Final = (
    "CUDA_MPS_",
    "NVIDIA_GPU_MEMORY_LIMIT",
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_MIG_",
)


def dropped(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of a job's variables that are withheld from its task, sorted."""
    return tuple(sorted(name for name in env if name.startswith(DROPPED)))


def warnings_of(notes: Iterable[str], env: Mapping[str, str]) -> list[str]:
    """Return the warnings for a task's log: notes on its share, and variables of the job that are dropped."""
    texts = list(notes)
    if names := dropped(env):
        texts.append(
            f"{', '.join(names)} of the job: dropped, because tasks with a share of a GPU may not set them"
        )
    return texts


def kept(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those that are dropped."""
    return {name: value for name, value in env.items() if not name.startswith(DROPPED)}


def visible(share: Share, gpus: tuple[str, ...]) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES: the MIG instance if the share is one, else the cards."""
    return share.instance or ",".join(gpus)
