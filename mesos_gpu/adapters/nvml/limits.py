"""Memory limits of a cgroup on a card, kept by the kernel (dmem) or by the driver (misc), through NVML.

Source: NVIDIA's "MPS v3 Memory Partitioning" and NVML API reference, nvmlDeviceSetMemoryLimits_v1: driver 615,
cgroup version 2 at /sys/fs/cgroup, no MIG. Limits are in bytes there, in MiB here.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, Final

from mesos_gpu.errors import Conflict, Unavailable

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What a cgroup may use of a card, in MiB. `hard_mib`: None: all of it. `used_mib`: rounded up."""

    soft_mib: int
    hard_mib: int | None
    used_mib: int = 0


def read_limits(nvml: Any, uuid: str, cgroup: str) -> Limits | None:
    """What is set; None: nothing, or this driver keeps no limits (misc gives one answer for both).

    Args:
        nvml: The pynvml module with a session, or a fake of it.
        uuid: The card.
        cgroup: Full path of its directory.

    Raises:
        Unavailable: The driver fails, or is older than 615.
    """
    _known(nvml)
    said = nvml.c_nvmlGetMemoryLimits_v1_t()
    said.nameSpace = cgroup.encode()
    try:
        nvml.nvmlDeviceGetMemoryLimits_v1(_handle(nvml, uuid), said)
    except nvml.NVMLError as error:
        if error.value == nvml.NVML_ERROR_NOT_SUPPORTED:
            return None
        raise _failed(nvml, error, "read") from error
    unlimited = said.hardLimit == nvml.NVML_DEVICE_MEMORY_LIMIT_MAX
    hard_mib = None if unlimited else int(said.hardLimit) // MIB
    return Limits(int(said.softLimit) // MIB, hard_mib, -(-int(said.currentUsed) // MIB))


def set_limits(nvml: Any, uuid: str, cgroup: str, limits: Limits) -> None:
    """Set both and read them back.

    Raises:
        Conflict: More is in use than the hard limit.
        Unavailable: They cannot be set, or are not what was set.
    """
    _known(nvml)
    wish = nvml.c_nvmlSetMemoryLimits_v1_t()
    wish.nameSpace, wish.softLimit = cgroup.encode(), limits.soft_mib * MIB
    unlimited = limits.hard_mib is None
    wish.hardLimit = nvml.NVML_DEVICE_MEMORY_LIMIT_MAX if limits.hard_mib is None else limits.hard_mib * MIB
    before = read_limits(nvml, uuid, cgroup)
    if limits.hard_mib is not None and before is not None and before.used_mib > limits.hard_mib:
        raise Conflict(
            f"it has {before.used_mib} MiB of {uuid} in use, and {limits.hard_mib} are asked for",
            remedy="ask for more, or let it free memory first",
        )
    try:
        nvml.nvmlDeviceSetMemoryLimits_v1(_handle(nvml, uuid), wish)
    except nvml.NVMLError as error:
        raise _failed(nvml, error, "set") from error
    after = read_limits(nvml, uuid, cgroup)
    if after is None and unlimited:
        return
    if after is None or (after.soft_mib, after.hard_mib) != (limits.soft_mib, limits.hard_mib):
        raise Unavailable(
            f"the memory limits of {cgroup} on {uuid} are {after} after they were set to {limits}",
            remedy="see nvidia-smi memory-limits --get; the driver may not keep limits (RmMemacctMode)",
        )


def _known(nvml: Any) -> None:
    if getattr(nvml, "nvmlDeviceSetMemoryLimits_v1", None) is None:
        raise Unavailable(
            "the Python package nvidia-ml-py is older than 13.615 and knows no memory limits",
            remedy="pip install --upgrade nvidia-ml-py",
        )


def _handle(nvml: Any, uuid: str) -> ctypes.c_void_p:
    handle: ctypes.c_void_p = nvml.nvmlDeviceGetHandleByUUID(uuid)
    return handle


def _failed(nvml: Any, error: Any, what: str) -> Unavailable:
    """Say what the driver's answer means for limits."""
    meanings = {
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the driver is older than 615",
        nvml.NVML_ERROR_NOT_SUPPORTED: "the driver keeps no limits: RmMemacctMode=0, MIG, or the root of all cgroups",
        nvml.NVML_ERROR_NOT_FOUND: "the cgroup is not there, or has no dmem files",
        nvml.NVML_ERROR_NO_PERMISSION: "only root may",
    }
    why = meanings.get(error.value, str(error))
    return Unavailable(f"memory limits cannot be {what}: {why}", remedy="see mesos-gpu doctor")
