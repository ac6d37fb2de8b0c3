"""MIG in the double of NVML: instances are in the state, so that all processes of a test see them.

Answers as in NVIDIA's NVML API reference, "Multi Instance GPU Management".
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pynvml

from mesos_gpu.model.nodes.gpu import Gpu
from tests.doubles.nvml.mig_tables import MIG_TABLES, MigTable
from tests.doubles.nvml.state import State

Made = tuple[int, int, int, list[int]]  # id, number of its profile, start, ids of its compute instances


class FakeMig(State):
    """Calls of NVML for MIG, on cards whose state has the key `mig`.

    It is {"mode": 0 or 1, "made": [[id, profile, start, [compute instances]]], "busy": ids of GPU instances that a
    process uses}. A handle of an instance is a tuple that begins with the card's index.
    """

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        """Return the current and the pending mode."""
        mig = self._mig(handle)
        return [mig["mode"], mig.get("pending", mig["mode"])]

    def nvmlDeviceGetGpuInstanceProfileInfo(self, handle: int, profile: int, version: int = 2) -> Any:
        """Return facts of a profile of the card's model; its name begins with "MIG"."""
        assert version == 2
        for number, name, kind, slices, sms, memory_mib, _, _ in self._table(handle).rows:
            if kind == profile:
                return SimpleNamespace(
                    id=number,
                    sliceCount=slices,
                    multiprocessorCount=sms,
                    memorySizeMB=memory_mib,
                    name=f"MIG {name}".encode(),
                )
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetGpuInstancePossiblePlacements(
        self, handle: int, profile: int, places: Any, count: Any
    ) -> int:
        """Return all placements of a profile, also occupied ones; needs privilege."""
        self._privileged()
        row = self._row(handle, profile)
        if places is not None:
            for place, start in zip(places, row[6], strict=True):
                place.start, place.size = start, row[7]
        count._obj.value = len(row[6])
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:
        return self._table(handle).compute_slices

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, index: int) -> tuple[int, int, int]:
        """Return a handle: card, GPU instance, compute instance."""
        devices = [(handle, gi, ci) for gi, _, _, cis in self._mig(handle)["made"] for ci in cis]
        if index >= len(devices):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return devices[index]

    def nvmlDeviceGetGpuInstanceId(self, device: tuple[int, int, int]) -> int:
        return device[1]

    def nvmlDeviceGetComputeInstanceId(self, device: tuple[int, int, int]) -> int:
        return device[2]

    def nvmlDeviceGetAttributes_v2(self, device: tuple[int, int, int]) -> Any:
        """Return facts of a MIG device; compute instances share its compute in equal parts, and all of its memory."""
        if not isinstance(device, tuple):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        _, profile, _, compute = self._instance(device[0], device[1])
        _, _, _, slices, sms, memory_mib, _, _ = self._row(device[0], profile)
        return SimpleNamespace(
            multiprocessorCount=sms // len(compute),
            gpuInstanceSliceCount=slices,
            computeInstanceSliceCount=slices // len(compute),
            memorySizeMB=memory_mib,
        )

    def nvmlDeviceGetGpuInstanceById(self, handle: int, id_: int) -> tuple[int, int]:
        """Return a handle of a GPU instance; needs privilege."""
        self._privileged()
        self._instance(handle, id_)
        return handle, id_

    def nvmlGpuInstanceGetInfo(self, instance: tuple[int, int]) -> Any:
        """Return id, profile and placement of a GPU instance."""
        id_, profile, start, _ = self._instance(*instance)
        place = SimpleNamespace(start=start, size=self._row(instance[0], profile)[7])
        return SimpleNamespace(id=id_, profileId=profile, placement=place)

    def nvmlDeviceCreateGpuInstanceWithPlacement(
        self, handle: int, profile: int, place: Any
    ) -> tuple[int, int]:
        """Create a GPU instance; fails if its slices overlap with another one or the profile lacks the placement."""
        self._privileged()
        start, width = place._obj.start, place._obj.size
        row = self._row(handle, profile)
        if start not in row[6] or width != row[7]:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        with self._changing(handle) as made:
            taken = {n for _, p, s, _ in made for n in range(s, s + self._row(handle, p)[7])}
            if not taken.isdisjoint(range(start, start + width)):
                raise pynvml.NVMLError(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
            id_ = next(n for n in range(1, 15) if n not in [each[0] for each in made])
            made.append([id_, profile, start, []])
        return handle, id_

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(
        self, instance: tuple[int, int], profile: int, engines: int, version: int = 2
    ) -> Any:
        """Return facts of a profile; a profile has one slice, or as many as the GPU instance."""
        assert (engines, version) == (pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, 2)
        slices = self._row(instance[0], self._instance(*instance)[1])[3]
        kinds = {1: 0x0, 2: 0x1, 3: 0x2, 4: 0x3, 7: 0x4}
        if profile not in (kinds[1], kinds[slices]):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(id=100 + profile, sliceCount=slices if profile == kinds[slices] else 1)

    def nvmlGpuInstanceCreateComputeInstance(
        self, instance: tuple[int, int], profile: int
    ) -> tuple[int, int, int]:
        """Create a compute instance; fails if the GPU instance has one."""
        assert profile >= 100, "an id, no kind"
        with self._changing(instance[0]) as made:
            (row,) = [each for each in made if each[0] == instance[1]]
            if row[3]:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
            row[3].append(0)
        return (*instance, 0)

    def nvmlGpuInstanceGetComputeInstanceById(
        self, instance: tuple[int, int], id_: int
    ) -> tuple[int, int, int]:
        """Return a handle: card, GPU instance, compute instance."""
        if id_ not in self._instance(*instance)[3]:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return (*instance, id_)

    def nvmlComputeInstanceDestroy(self, compute: tuple[int, int, int]) -> int:
        """Destroy a compute instance; fails while a process uses the GPU instance."""
        if compute[1] in self._mig(compute[0]).get("busy", ()):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_IN_USE)
        with self._changing(compute[0]) as made:
            (row,) = [each for each in made if each[0] == compute[1]]
            row[3].remove(compute[2])
        return int(pynvml.NVML_SUCCESS)

    def nvmlGpuInstanceDestroy(self, instance: tuple[int, int]) -> int:
        """Destroy a GPU instance; fails while it has compute instances."""
        with self._changing(instance[0]) as made:
            (row,) = [each for each in made if each[0] == instance[1]]
            if row[3]:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_IN_USE)
            made.remove(row)
        return int(pynvml.NVML_SUCCESS)

    def _mig_uuid(self, device: tuple[int, int, int]) -> str:
        _, profile, start, _ = self._instance(device[0], device[1])
        return f"MIG-{device[0]}-{profile}-{start}-{device[2]}"

    def _mig_name(self, device: tuple[int, int, int]) -> str:
        _, profile, _, compute = self._instance(device[0], device[1])
        name = self._row(device[0], profile)[1]
        return f"{self._gpus[device[0]].model} MIG {'1c.' * (len(compute) > 1)}{name}"

    def _mig(self, handle: int) -> Any:
        self._optional(handle)
        mig = self._card(handle).get("mig")
        if mig is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return mig

    def _table(self, handle: int) -> MigTable:
        gpu: Gpu = self._optional(handle)
        if gpu.model not in MIG_TABLES:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return MIG_TABLES[gpu.model]

    def _row(self, handle: int, profile: int) -> Any:
        rows = [row for row in self._table(handle).rows if row[0] == profile]
        if not rows:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return rows[0]

    def _instance(self, handle: int, id_: int) -> Made:
        for each in self._mig(handle)["made"]:
            if each[0] == id_:
                made: Made = tuple(each)
                return made
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def _privileged(self) -> None:
        if self._now().get("user"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

    @contextmanager
    def _changing(self, handle: int) -> Iterator[list[Any]]:
        """Yield the list of a card's instances, and store it after the block has changed it."""
        state = self._now()
        yield state["cards"][str(handle)]["mig"]["made"]
        self._put(state)
