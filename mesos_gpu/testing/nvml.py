"""NVML without a card: the calls that `NvmlProbe` makes, over GPUs that a test gives. The errors are pynvml's own."""

from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any, Final

import pynvml

from mesos_gpu.model.gpu import Gpu, Health

_BROKEN: Final = {
    "library": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    "driver": pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    "unknown": pynvml.NVML_ERROR_UNKNOWN,
}


class FakeNvml:
    """Stands for the module. A handle is the GPU's index.

    broken: what nvmlInit fails with; nameless: indexes whose UUID cannot be read; unsupported: optional
    queries answer NOT_SUPPORTED. A GPU that is SICK is lost from the bus.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        *,
        broken: str = "",
        nameless: Collection[int] = (),
        unsupported: bool = False,
    ) -> None:
        """`open` counts sessions: a test asserts that it is 0 again."""
        self._gpus, self._broken, self._nameless, self._unsupported = gpus, broken, nameless, unsupported
        self.open = 0

    def __getattr__(self, name: str) -> Any:
        """Constants and errors are the real ones."""
        if name.startswith("NVML"):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def nvmlInit(self) -> None:
        """Open a session, or fail."""
        if self._broken:
            raise pynvml.NVMLError(_BROKEN[self._broken])
        self.open += 1

    def nvmlShutdown(self) -> None:
        """Close it."""
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> bytes:
        """Bytes, as older versions of the binding answer."""
        return b"550.54.15"

    def nvmlDeviceGetCount(self) -> int:
        """How many."""
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        """The index."""
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        """Readable also of a lost card."""
        if handle in self._nameless:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return str(self._gpus[handle].id)

    def nvmlDeviceGetMinorNumber(self, handle: int) -> int:
        """Likewise."""
        return self._gpus[handle].minor

    def nvmlDeviceGetName(self, handle: int) -> str:
        """The model."""
        return self._well(handle).model

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        """Bytes."""
        return SimpleNamespace(total=self._well(handle).memory_mib << 20)

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        """The bus id."""
        return SimpleNamespace(busId=self._well(handle).pci_bus_id.encode())

    def nvmlDeviceGetNumaNodeId(self, handle: int) -> int:
        """The node."""
        return int(self._optional(handle).numa_node or 0)

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
        """All of one host bridge, but for what NVLink joins."""
        del other
        self._optional(one)
        return int(pynvml.NVML_TOPOLOGY_SYSTEM)

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        """As many as the first link's kind says, as NV4."""
        return int(link < self._links(handle)[1])

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:
        """The peer's bus id."""
        del link
        peer = self._links(handle)[0]
        return SimpleNamespace(busId=next(g.pci_bus_id for g in self._gpus if g.id == peer))

    def _links(self, handle: int) -> tuple[str, int]:
        joined = [link for link in self._optional(handle).links if link.kind.startswith("NV")]
        return (joined[0].peer, int(joined[0].kind[2:])) if joined else ("", 0)

    def _well(self, handle: int) -> Gpu:
        if self._gpus[handle].health is Health.SICK:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return self._gpus[handle]

    def _optional(self, handle: int) -> Gpu:
        if self._unsupported:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return self._well(handle)
