"""A double of the module pynvml: the calls of our probe, on GPUs that a test gives, with pynvml's own errors."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pynvml

from mesos_gpu.model.nodes.gpu import Gpu
from tests.doubles.nvml.faults import FakeFaults
from tests.doubles.nvml.limits import FakeLimits
from tests.doubles.nvml.mig import FakeMig
from tests.doubles.nvml.use import FakeUse

_BROKEN: Final = {
    "library": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    "driver": pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    "unknown": pynvml.NVML_ERROR_UNKNOWN,
}


class FakeNvml(FakeMig, FakeLimits, FakeUse, FakeFaults):
    """A double of the module pynvml, in which the handle of a GPU is its index.

    `state` is read at each call. A path names a JSON file with the state, for a double in another process. Its keys:

    - `broken`: error of nvmlInit; `hang`: nvmlInit never returns; `unsupported`: all optional queries are refused
    - `events`: [UUID, XID] pairs in their order; a wait returns those that came after nvmlEventSetCreate
    - `cards`: states by index, as text: `lost`, `nameless`, `hang`, `reset_required`, `error` (code of each query),
      `rows` (for nvmlDeviceGetRemappedRows), `retired`, `ecc`, `clocks`, `pids`, `recovery`, `memory`: "n/a",
      `reserved_mib`, `cores`, and the keys of `FakeMig` and `FakeUse`
    """

    def __init__(self, gpus: Sequence[Gpu], state: Mapping[str, Any] | Path | None = None) -> None:
        """Set the GPUs and their state; `open` counts sessions, and a test asserts that it is 0 at the end."""
        self._gpus = gpus
        self._state = state or {}
        self._told = 0
        self.open = 0

    def __getattr__(self, name: str) -> Any:
        """Return constants, errors and types of pynvml."""
        if name.startswith(("NVML", "nvmlEventType", "nvmlMemory_v2", "c_nvml")):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def hang(self) -> None:
        while True:
            time.sleep(60)

    def nvmlInit(self) -> None:
        """Begin a session, or fail as the state says."""
        state = self._now()
        if state.get("hang"):
            self.hang()
        if state.get("broken"):
            raise pynvml.NVMLError(_BROKEN[state["broken"]])
        self.open += 1

    def nvmlShutdown(self) -> None:
        """End a session."""
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        """Return the number of GPUs, lost ones included."""
        return len(self._gpus)

    def nvmlSystemGetDriverVersion(self) -> str:
        return "535.0.0-fake"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12020

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        """Return the index of a GPU, or never if the GPU hangs."""
        if self._card(index).get("hang"):
            self.hang()
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str | bytes) -> int:
        name = uuid.decode() if isinstance(uuid, bytes) else uuid
        for index, gpu in enumerate(self._gpus):
            if gpu.id == name:
                return self.nvmlDeviceGetHandleByIndex(index)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetUUID(self, handle: int | str | tuple[int, int, int]) -> str:
        """Return the UUID, which a lost GPU has too."""
        if isinstance(handle, str):  # of an event
            return handle
        if isinstance(handle, tuple):
            return self._mig_uuid(handle)
        if self._card(handle).get("nameless"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return str(self._gpus[handle].id)

    def nvmlDeviceGetMinorNumber(self, handle: int) -> int:
        """Return the minor number, which a lost GPU has too."""
        return self._gpus[handle].minor

    def nvmlDeviceGetName(self, handle: int | tuple[int, int, int]) -> str:
        return self._mig_name(handle) if isinstance(handle, tuple) else self._well(handle).model

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int | None = None) -> Any:
        """Return bytes of memory; version 2 also has those that the driver reserves."""
        gpu = self._well(handle)
        if self._card(handle).get("memory") == "n/a":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if version is None:
            return SimpleNamespace(total=gpu.memory_mib << 20)
        assert version == pynvml.nvmlMemory_v2
        reserved_mib, used_mib = self._fact(handle, "reserved_mib"), self._card(handle).get("used_mib", 0)
        return SimpleNamespace(
            total=gpu.memory_mib << 20,
            reserved=int(reserved_mib * (1 << 20)),
            used=used_mib << 20,
            free=int((gpu.memory_mib - used_mib - reserved_mib) * (1 << 20)),
        )

    def nvmlDeviceGetNumGpuCores(self, handle: int) -> int:
        return int(self._fact(handle, "cores"))

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=self._well(handle).pci_bus_id.encode())

    def nvmlDeviceGetNumaNodeId(self, handle: int) -> int:
        return int(self._optional(handle).numa_node or 0)

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, ...]:
        capability = self._optional(handle).compute_capability
        if capability is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return tuple(map(int, capability.split(".")))

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: int) -> list[Any]:
        """Fail as a driver before 510, which lacks the function."""
        del handle
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    def nvmlDeviceGetComputeRunningProcesses_v2(self, handle: int) -> list[Any]:
        pids = self._fact(handle, "pids")
        memory = pids if isinstance(pids, dict) else dict.fromkeys(pids)
        return [SimpleNamespace(pid=pid, usedGpuMemory=memory[pid]) for pid in memory]

    nvmlDeviceGetGraphicsRunningProcesses_v3 = nvmlDeviceGetComputeRunningProcesses_v3
    nvmlDeviceGetGraphicsRunningProcesses_v2 = nvmlDeviceGetComputeRunningProcesses_v3
    nvmlDeviceGetMPSComputeRunningProcesses_v3 = nvmlDeviceGetComputeRunningProcesses_v3
    nvmlDeviceGetMPSComputeRunningProcesses_v2 = nvmlDeviceGetComputeRunningProcesses_v3

    def nvmlDeviceGetFieldValues(self, handle: int, fields: Sequence[int]) -> list[Any]:
        """Return the recovery action, an unknown field if the state has none, or the fields of `FakeUse`."""
        if list(fields) != [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]:
            return self._use_fields(handle, fields)
        self._optional(handle)
        action = self._card(handle).get("recovery")
        answer = pynvml.NVML_ERROR_INVALID_ARGUMENT if action is None else pynvml.NVML_SUCCESS
        return [SimpleNamespace(nvmlReturn=answer, value=SimpleNamespace(uiVal=action))]

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
        """Return that two GPUs are joined by the system alone: only NVLink joins more closely here."""
        del other
        self._optional(one)
        return int(pynvml.NVML_TOPOLOGY_SYSTEM)

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        """Return whether a link is up; the kind of the first link, such as NV4, has the number of links."""
        return int(link < self._links(handle)[1])

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:
        """Return the bus id of the GPU at the other end of a link."""
        del link
        peer = self._links(handle)[0]
        return SimpleNamespace(busId=next(g.pci_bus_id for g in self._gpus if g.id == peer))

    def _links(self, handle: int) -> tuple[str, int]:
        joined = [link for link in self._optional(handle).links if link.kind.startswith("NV")]
        return (joined[0].peer, int(joined[0].kind[2:])) if joined else ("", 0)
