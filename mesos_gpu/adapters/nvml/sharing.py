"""Facts of a card for shares from NVML: usable memory, SMs, MIG mode, instances and profiles.

Source of the calls' meaning: NVIDIA's NVML API reference, "Device Queries", "Multi Instance GPU Management".
Whole GPUs need none of it: a card whose driver does not answer cannot be shared, but is not sick.
"""

from collections.abc import Collection, Iterator, Mapping
from ctypes import byref, c_uint
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from mesos_gpu.model.shares.card import MigInstance, MigProfile, Sharing
from mesos_gpu.model.shares.units import WHOLE

#: Memory that a driver reserves if it cannot report it (before 510 there is no nvmlDeviceGetMemoryInfo_v2).
UNTOLD_RESERVE_MIB: Final = 640
#: CUDA cores of an SM, by compute capability. Source: CUDA C++ Programming Guide, "Throughput of Native Arithmetic
#: Instructions", 32-bit floating-point results for each clock cycle.
_CORES: Final[Mapping[str, int]] = MappingProxyType({"7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64})
_CORES_SINCE_8_6: Final = 128
#: Ids of GPU instances; gpu31/gi14 is the last in /proc/driver/nvidia-caps/mig-minors.
MAX_INSTANCES: Final = 15


class SharingFacts:
    """Reader of cards' sharing facts; profiles, which never change, are read once.

    Args:
        nvml: The pynvml module, or a fake of it.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._profiles: dict[str, _Profiles] = {}

    def read(self, handle: Any, uuid: str, capability: str | None = None) -> Sharing | None:
        """Return a card's facts, without what its host can enforce; None if the card uses the host's memory (GB10).

        Args:
            handle: Handle of the card.
            uuid: UUID of the card.
            capability: Compute capability of the card; None if not known.
        """
        memory = self._ask("DeviceGetMemoryInfo", handle)
        if memory is None or not memory.total:
            return None
        reserved_mib = self._reserved_mib(handle)
        capacity_mib = (memory.total >> 20) - reserved_mib
        mode = self._ask("DeviceGetMigMode", handle)
        if not mode or mode[0] != self._nvml.NVML_DEVICE_MIG_ENABLE:
            return Sharing(max(capacity_mib, 0), sm_count=self._sm_count(handle, capability))
        return self._read_mig_mode(handle, uuid, capability, max(capacity_mib, 0))

    def profiles(self, handle: Any) -> tuple[MigProfile, ...]:
        """Return all profiles of a card with all their positions, also occupied ones."""
        return _read_profiles(self._nvml, self._ask, handle).all

    def _ask(self, query: str, *arguments: Any, **options: Any) -> Any:
        """Return the answer of nvml<query>; None if binding, driver or card do not support it, or deny it."""
        call = getattr(self._nvml, f"nvml{query}", None)
        if call is None:
            return None
        try:
            return call(*arguments, **options)
        except self._nvml.NVMLError:
            return None

    def _reserved_mib(self, handle: Any) -> int:
        """Return the memory that driver and firmware reserve, rounded up."""
        version = getattr(self._nvml, "nvmlMemory_v2", None)  # not in older bindings
        memory = self._ask("DeviceGetMemoryInfo", handle, version=version) if version else None
        return UNTOLD_RESERVE_MIB if memory is None else -(-int(memory.reserved) >> 20)

    def _sm_count(self, handle: Any, capability: str | None) -> int | None:
        cores = self._ask("DeviceGetNumGpuCores", handle)
        if not cores or capability is None:
            return None
        count, rest = divmod(int(cores), _CORES.get(capability, _CORES_SINCE_8_6))
        return None if rest else count

    def _read_mig_mode(self, handle: Any, uuid: str, capability: str | None, capacity_mib: int) -> Sharing:
        """Return the facts of a card in MIG mode."""
        profiles = self._profiles.get(uuid) or _read_profiles(self._nvml, self._ask, handle)
        if profiles.all:
            self._profiles[uuid] = profiles
        places = dict(self._places(handle))
        instances = tuple(self._instances(handle, profiles, places, capacity_mib))
        closed = {id_ for id_ in places if id_ not in {instance.gpu_instance for instance in instances}}
        occupied = {n for id_ in closed for n in range(places[id_][0], sum(places[id_]))}
        return Sharing(
            max(capacity_mib, sum(instance.memory_mib for instance in instances)),
            sm_count=profiles.sm_count or self._sm_count(handle, capability),
            mig=True,
            instances=instances,
            profiles=tuple(_without_occupied(profile, occupied) for profile in profiles.plain()),
        )

    def _places(self, handle: Any) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield id, start and width of each GPU instance, also of unusable ones. Only root sees them."""
        for id_ in range(MAX_INSTANCES):
            instance = self._ask("DeviceGetGpuInstanceById", handle, id_)
            info = None if instance is None else self._ask("GpuInstanceGetInfo", instance)
            if info is not None:
                yield id_, (int(info.placement.start), int(info.placement.size))

    def _instances(
        self, handle: Any, profiles: "_Profiles", places: Mapping[int, tuple[int, int]], capacity_mib: int
    ) -> Iterator[MigInstance]:
        """Yield instances that one task can use alone: compute instances of one GPU instance share its memory."""
        mig = list(self._mig_devices(handle))
        gpu_instances = [gpu_instance for _, gpu_instance, _ in mig]
        for device, gpu_instance, compute_instance in mig:
            uuid, name = self._ask("DeviceGetUUID", device), self._ask("DeviceGetName", device)
            facts = self._ask("DeviceGetAttributes_v2", device)
            if not uuid or not name or facts is None or gpu_instances.count(gpu_instance) > 1:
                continue
            start, width = places.get(gpu_instance, (0, 0))
            memory_mib, slices = int(facts.memorySizeMB), int(facts.computeInstanceSliceCount)
            memory_of, memory_in = (
                (width, profiles.memory_slices) if profiles.memory_slices else (memory_mib, capacity_mib)
            )
            yield MigInstance(
                uuid=_text(uuid),
                profile=_text(name).rpartition("MIG ")[2],
                memory_mib=memory_mib,
                sm_count=int(facts.multiprocessorCount),
                gpu_instance=gpu_instance,
                compute_instance=compute_instance,
                compute_milli=slices * WHOLE // max(profiles.compute_slices, slices, 1),
                memory_milli=min(memory_of * WHOLE // max(memory_in, 1), WHOLE),
                start=start,
                width=width,
            )

    def _mig_devices(self, handle: Any) -> Iterator[tuple[Any, int, int]]:
        """Yield handle, GPU instance and compute instance of each MIG device."""
        for index in range(self._ask("DeviceGetMaxMigDeviceCount", handle) or 0):
            device = self._ask("DeviceGetMigDeviceHandleByIndex", handle, index)
            if device is None:  # the maximum is not reached
                continue
            ids = [self._ask(f"DeviceGet{kind}InstanceId", device) for kind in ("Gpu", "Compute")]
            if None not in ids:
                yield device, int(ids[0]), int(ids[1])


@dataclass(frozen=True, slots=True)
class _Profiles:
    """Profiles of a card, with the numbers of its slices; 0 if not known."""

    all: tuple[MigProfile, ...] = ()
    compute_slices: int = 0
    memory_slices: int = 0
    sm_count: int = 0

    def plain(self) -> list[MigProfile]:
        """Return profiles without extensions for media and graphics ("1g.10gb+me"), which few instances can have."""
        return [profile for profile in self.all if profile.starts and not {"+", "-"} & set(profile.name)]


def _read_profiles(nvml: Any, ask: Any, handle: Any) -> _Profiles:
    """Return all profiles of GPU instances that a card supports."""
    infos = []
    for number in range(getattr(nvml, "NVML_GPU_INSTANCE_PROFILE_COUNT", 0)):
        # Version 2 of the answer has the name (driver 510).
        info = ask("DeviceGetGpuInstanceProfileInfo", handle, number)
        if info is not None:
            infos.append((info, _placements(nvml, ask, handle, int(info.id))))
    compute_slices = max((int(info.sliceCount) for info, _ in infos), default=0)
    memory_slices = max((start + width for _, places in infos for start, width in places), default=0)
    return _Profiles(
        tuple(
            MigProfile(
                name=_text(info.name).rpartition("MIG ")[2],
                number=int(info.id),
                memory_mib=int(info.memorySizeMB),
                compute_milli=int(info.sliceCount) * WHOLE // compute_slices,
                memory_milli=places[0][1] * WHOLE // memory_slices if places else 0,
                starts=tuple(sorted(start for start, _ in places)),
                width=places[0][1] if places else 0,
            )
            for info, places in infos
        ),
        compute_slices,
        memory_slices,
        max((int(info.multiprocessorCount) for info, _ in infos), default=0),
    )


def _placements(nvml: Any, ask: Any, handle: Any, profile: int) -> list[tuple[int, int]]:
    """Return start and width of all positions of a profile, also occupied ones; only root may query them."""
    count = c_uint(0)
    if ask("DeviceGetGpuInstancePossiblePlacements", handle, profile, None, byref(count)) is None:
        return []
    places = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    if ask("DeviceGetGpuInstancePossiblePlacements", handle, profile, places, byref(count)) is None:
        return []
    return [(int(place.start), int(place.size)) for place in places[: count.value]]


def _without_occupied(profile: MigProfile, occupied: Collection[int]) -> MigProfile:
    """Return the profile without positions that overlap unusable instances."""
    free = [s for s in profile.starts if not any(n in occupied for n in range(s, s + profile.width))]
    return replace(profile, starts=tuple(free))


def _text(value: Any) -> str:
    """Return text as str; older versions of the binding return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
