"""Memory limits of a cgroup on a card, enforced by the kernel (dmem) or by the driver (misc), through NVML.

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
    """Memory limits and use of a cgroup on a card in MiB. `hard_mib`: None for no limit. `used_mib`: rounded up."""

    soft_mib: int
    hard_mib: int | None
    used_mib: int = 0


def read_limits(nvml: Any, uuid: str, cgroup: str) -> Limits | None:
    """Return the limits of a cgroup; None if none are set, or this driver keeps no limits (one error means both).

    Args:
        nvml: The pynvml module with a session, or a fake of it.
        uuid: UUID of the card.
        cgroup: Full path of the cgroup's directory.

    Raises:
        Unavailable: The driver fails, or is older than 615.
    """
    _check_supported(nvml)
    answer = nvml.c_nvmlGetMemoryLimits_v1_t()
    answer.nameSpace = cgroup.encode()
    try:
        nvml.nvmlDeviceGetMemoryLimits_v1(_handle(nvml, uuid), answer)
    except nvml.NVMLError as error:
        if error.value == nvml.NVML_ERROR_NOT_SUPPORTED:
            return None
        raise _failed(nvml, error, "read") from error
    unlimited = answer.hardLimit == nvml.NVML_DEVICE_MEMORY_LIMIT_MAX
    hard_mib = None if unlimited else int(answer.hardLimit) // MIB
    return Limits(int(answer.softLimit) // MIB, hard_mib, -(-int(answer.currentUsed) // MIB))


def set_limits(nvml: Any, uuid: str, cgroup: str, limits: Limits) -> None:
    """Set both limits of a cgroup and read them back.

    Raises:
        Conflict: More memory is in use than the hard limit.
        Unavailable: The limits cannot be set, or differ after they were set.
    """
    _check_supported(nvml)
    request = nvml.c_nvmlSetMemoryLimits_v1_t()
    request.nameSpace, request.softLimit = cgroup.encode(), limits.soft_mib * MIB
    unlimited = limits.hard_mib is None
    request.hardLimit = (
        nvml.NVML_DEVICE_MEMORY_LIMIT_MAX if limits.hard_mib is None else limits.hard_mib * MIB
    )
    before = read_limits(nvml, uuid, cgroup)
    if limits.hard_mib is not None and before is not None and before.used_mib > limits.hard_mib:
        raise Conflict(
            f"it has {before.used_mib} MiB of {uuid} in use, more than the requested limit of {limits.hard_mib}",
            remedy="request more, or free memory first",
        )
    try:
        nvml.nvmlDeviceSetMemoryLimits_v1(_handle(nvml, uuid), request)
    except nvml.NVMLError as error:
        raise _failed(nvml, error, "set") from error
    after = read_limits(nvml, uuid, cgroup)
    if after is None and unlimited:
        return
    if after is None or (after.soft_mib, after.hard_mib) != (limits.soft_mib, limits.hard_mib):
        raise Unavailable(
            f"the memory limits of {cgroup} on {uuid} are {after} after they were set to {limits}",
            remedy="see nvidia-smi memory-limits --get; the driver may not enforce limits (RmMemacctMode)",
        )


def _check_supported(nvml: Any) -> None:
    if getattr(nvml, "nvmlDeviceSetMemoryLimits_v1", None) is None:
        raise Unavailable(
            "the Python package nvidia-ml-py is older than 13.615 and does not support memory limits",
            remedy="pip install --upgrade nvidia-ml-py",
        )


def _handle(nvml: Any, uuid: str) -> ctypes.c_void_p:
    handle: ctypes.c_void_p = nvml.nvmlDeviceGetHandleByUUID(uuid)
    return handle


def _failed(nvml: Any, error: Any, what: str) -> Unavailable:
    """Return an error with the meaning of the driver's answer for limits."""
    meanings = {
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the driver is older than 615",
        nvml.NVML_ERROR_NOT_SUPPORTED: "the driver enforces no limits: RmMemacctMode=0, MIG, or the root cgroup",
        nvml.NVML_ERROR_NOT_FOUND: "the cgroup does not exist, or has no dmem files",
        nvml.NVML_ERROR_NO_PERMISSION: "only root may",
    }
    why = meanings.get(error.value, str(error))
    return Unavailable(f"memory limits cannot be {what}: {why}", remedy="see mesos-gpu doctor")
