"""MIG instances of this host's cards: lookup of their capability devices, creation and removal.

Source: NVIDIA's MIG User Guide, "Device Nodes and Capabilities": `gpu<device minor>/gi<id>/ci<id>/access`.
"""

from collections.abc import Iterator
from ctypes import byref
from pathlib import Path
from typing import Any, Final

from mesos_gpu.adapters.nvml.sharing import MAX_INSTANCES, SharingFacts
from mesos_gpu.errors import Conflict, Unavailable
from mesos_gpu.model.shares.card import MigInstance, MigProfile

MINORS: Final = "proc/driver/nvidia-caps/mig-minors"
_MAX_COMPUTE_INSTANCES: Final = 8


def capability_minors(
    card_minor: int, gpu_instance: int, compute_instance: int, root: Path = Path("/")
) -> tuple[int, int]:
    """Return the minors below /dev/nvidia-caps that a process must be able to read to use an instance.

    Args:
        card_minor: Number N of /dev/nvidiaN.
        gpu_instance, compute_instance: Ids, as in `MigInstance`.
        root: Directory whose /proc is read.

    Returns:
        The minor of the GPU instance, and that of the compute instance in it.

    Raises:
        Unavailable: The driver has no such capability, or none at all.
    """
    try:
        lines = (root / MINORS).read_text().splitlines()
    except OSError as error:
        raise Unavailable(
            f"/{MINORS} cannot be read: {error.strerror}",
            remedy="load a driver that supports MIG (450 or newer)",
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


def make_instance(nvml: Any, uuid: str, profile: str, start: int) -> MigInstance:
    """Create a GPU instance at a position, with one compute instance that covers all of it.

    An instance that exists there is reused: its creator may have died before it could report it.

    Args:
        nvml: The pynvml module with a session of root, or a fake of it.
        uuid: UUID of the card, whose MIG mode is on.
        profile: Name of the profile, such as "1g.10gb".
        start: First memory slice of the instance.

    Raises:
        Conflict: Another instance occupies the position.
        Unavailable: The card has no such profile or position, or the driver fails.
    """
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    kind = _profile(nvml, handle, uuid, profile, start)
    try:
        instance = _at(nvml, handle, kind, start)
        if instance is None:
            place = nvml.c_nvmlGpuInstancePlacement_t(start, kind.width)
            instance = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, kind.number, byref(place))
        if not list(_compute_instances(nvml, instance)):
            whole = _whole(nvml, instance, kind)
            nvml.nvmlGpuInstanceCreateComputeInstance(instance, whole)
    except nvml.NVMLError as error:
        if error.value in (nvml.NVML_ERROR_INSUFFICIENT_RESOURCES, nvml.NVML_ERROR_IN_USE):
            raise Conflict(
                f"another MIG instance of {uuid} occupies the place of {profile}@{start}",
                remedy="none needed: the job is placed again",
            ) from error
        raise _failed(f"{profile}@{start} of {uuid} cannot be created", error) from error
    instances = [
        instance
        for instance in _instances(nvml, handle, uuid)
        if (instance.profile, instance.start) == (profile, start)
    ]
    if not instances:
        raise Unavailable(
            f"{profile}@{start} of {uuid} is missing after its creation", remedy="see nvidia-smi -L"
        )
    return instances[0]


def remove_instance(nvml: Any, uuid: str, profile: str, start: int) -> None:
    """Remove an instance and its compute instances; harmless if it is gone, or the card's MIG mode is off.

    Raises:
        Conflict: A process uses the instance.
        Unavailable: The driver fails.
    """
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    sharing = SharingFacts(nvml).read(handle, uuid)
    if sharing is None or not sharing.mig:
        return
    kind = _profile(nvml, handle, uuid, profile, start)
    try:
        instance = _at(nvml, handle, kind, start)
        if instance is None:
            return
        for compute in _compute_instances(nvml, instance):
            nvml.nvmlComputeInstanceDestroy(compute)
        nvml.nvmlGpuInstanceDestroy(instance)
    except nvml.NVMLError as error:
        if error.value == nvml.NVML_ERROR_IN_USE:
            raise Conflict(f"a process uses {profile}@{start} of {uuid}", remedy="end it") from error
        raise _failed(f"{profile}@{start} of {uuid} cannot be removed", error) from error


def _profile(nvml: Any, handle: Any, uuid: str, name: str, start: int) -> MigProfile:
    for profile in SharingFacts(nvml).profiles(handle):
        if profile.name == name and start in profile.starts:
            return profile
    raise Unavailable(
        f"{uuid} has no place {name}@{start} for a MIG instance", remedy="see nvidia-smi mig -lgipp"
    )


def _instances(nvml: Any, handle: Any, uuid: str) -> tuple[MigInstance, ...]:
    sharing = SharingFacts(nvml).read(handle, uuid)
    return sharing.instances if sharing is not None else ()


def _at(nvml: Any, handle: Any, kind: MigProfile, start: int) -> Any:
    """Return the GPU instance of a profile that begins at a memory slice; None if there is no such instance."""
    for number in range(MAX_INSTANCES):
        try:
            instance = nvml.nvmlDeviceGetGpuInstanceById(handle, number)
            info = nvml.nvmlGpuInstanceGetInfo(instance)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_INVALID_ARGUMENT):
                continue
            raise
        if (int(info.profileId), int(info.placement.start)) == (kind.number, start):
            return instance
    return None


def _compute_instances(nvml: Any, instance: Any) -> Iterator[Any]:
    for number in range(_MAX_COMPUTE_INSTANCES):
        try:
            yield nvml.nvmlGpuInstanceGetComputeInstanceById(instance, number)
        except nvml.NVMLError as error:
            if error.value not in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_INVALID_ARGUMENT):
                raise


def _whole(nvml: Any, instance: Any, kind: MigProfile) -> int:
    """Return the id of the largest profile of compute instances in a GPU instance."""
    infos = []
    for number in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            infos.append(
                nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                    instance, number, nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
                )
            )
        except nvml.NVMLError:  # there is no profile of that size
            continue
    if not infos:
        raise Unavailable(
            f"the driver lists no compute instances of {kind.name}", remedy="see nvidia-smi mig -lcip"
        )
    return int(max(infos, key=lambda info: info.sliceCount).id)


def _failed(what: str, error: Any) -> Unavailable:
    return Unavailable(f"{what}: {error}", remedy="see nvidia-smi mig -lgi, and dmesg")
