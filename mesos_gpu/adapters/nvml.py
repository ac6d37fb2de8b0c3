"""The GPUs of this host through NVML: nvidia-ml-py, module pynvml, loaded when it is first needed.

Source of the calls' meaning: NVIDIA's NVML API reference, "Device Queries".
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mesos_gpu.errors import Unavailable
from mesos_gpu.model.gpu import Gpu, Health, Inventory, Link
from mesos_gpu.model.ids import GpuId

logger = logging.getLogger(__name__)


class NvmlProbe:
    """`GpuProbe` over libnvidia-ml. One init and one shutdown for each read: no global state."""

    def __init__(self, lib: Any = None) -> None:
        """`lib`: the pynvml module, or a fake of it; None: import it."""
        self._given = lib
        self._said = False

    def changed(self) -> bool:
        """NVML cannot say; reading is up to the caller's interval."""
        return False

    def inventory(self) -> Inventory:
        """All GPUs. Without library, driver or GPU: an empty inventory, said once in the log.

        Raises:
            Unavailable: NVML is there and fails as a whole.
        """
        nvml = self._given or self._imported()
        if nvml is None:
            return self._none("the Python package nvidia-ml-py is not installed")
        absent = (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED)
        try:
            with _session(nvml):
                return self._read(nvml)
        except nvml.NVMLError as error:
            if error.value in absent:
                return self._none(str(error))
            raise Unavailable(
                f"NVML failed: {error}", remedy="run nvidia-smi on this host; a reset or reboot may be due"
            ) from error

    def _imported(self) -> Any:
        try:
            import pynvml
        except ImportError:
            return None
        return pynvml

    def _none(self, why: str) -> Inventory:
        if not self._said:
            self._said = True
            logger.info("this is a CPU host: %s", why)
        return Inventory()

    def _read(self, nvml: Any) -> Inventory:
        handles = []
        for index in range(nvml.nvmlDeviceGetCount()):
            gpu = self._gpu(nvml, index)
            if gpu is not None:
                handles.append(gpu)
        if not handles:
            return self._none("NVML sees no GPU")
        gpus = tuple(_with_links(nvml, gpu, handle, handles) for gpu, handle in handles)
        return Inventory(gpus, source="nvml", driver_version=_text(nvml.nvmlSystemGetDriverVersion()))

    def _gpu(self, nvml: Any, index: int) -> tuple[Gpu, Any] | None:
        """One GPU and its handle; a card that cannot even be named is left out, and said."""
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = GpuId(_text(nvml.nvmlDeviceGetUUID(handle)))
            minor = int(nvml.nvmlDeviceGetMinorNumber(handle))
        except nvml.NVMLError as error:
            logger.error("GPU %d of this host cannot be named and is left out: %s", index, error)
            return None
        problems: list[str] = []

        def read(call: Callable[[Any], Any], fallback: Any) -> Any:
            try:
                return call(handle)
            except nvml.NVMLError as error:
                problems.append(str(error))
                return fallback

        memory = read(nvml.nvmlDeviceGetMemoryInfo, None)
        model = _text(read(nvml.nvmlDeviceGetName, "unknown"))
        pci = read(nvml.nvmlDeviceGetPciInfo, None)
        gpu = Gpu(
            id=uuid,
            model=model,
            memory_mib=max(memory.total >> 20, 1) if memory else 1,
            minor=minor,
            pci_bus_id=_text(pci.busId) if pci else "",
            numa_node=_numa(nvml, handle),
            health=Health.SICK if problems else Health.OK,
            reason="; ".join(dict.fromkeys(problems)),
        )
        return gpu, handle


@contextmanager
def _session(nvml: Any) -> Iterator[None]:
    nvml.nvmlInit()
    try:
        yield
    finally:
        nvml.nvmlShutdown()


def _text(value: Any) -> str:
    """Older versions of the binding give bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _numa(nvml: Any, handle: Any) -> int | None:
    try:
        node = int(nvml.nvmlDeviceGetNumaNodeId(handle))
    except nvml.NVMLError:  # not supported by this driver or card: unknown is not sick
        return None
    return node if 0 <= node < 1 << 16 else None


def _with_links(nvml: Any, gpu: Gpu, handle: Any, everyone: list[tuple[Gpu, Any]]) -> Gpu:
    from dataclasses import replace

    names = {
        nvml.NVML_TOPOLOGY_INTERNAL: "PIX",
        nvml.NVML_TOPOLOGY_SINGLE: "PIX",
        nvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
        nvml.NVML_TOPOLOGY_NODE: "NODE",
        nvml.NVML_TOPOLOGY_SYSTEM: "SYS",
    }
    links = []
    for peer, other in everyone:
        if peer.id == gpu.id:
            continue
        try:
            level = nvml.nvmlDeviceGetTopologyCommonAncestor(handle, other)
        except nvml.NVMLError:
            continue
        bonded = _nvlinks(nvml, handle, peer.pci_bus_id)
        links.append(Link(peer.id, f"NV{bonded}" if bonded else names.get(level, "SYS")))
    return replace(gpu, links=tuple(links))


def _nvlinks(nvml: Any, handle: Any, peer_bus_id: str) -> int:
    """How many active NVLinks lead straight to the peer."""
    count = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link) != nvml.NVML_FEATURE_ENABLED:
                continue
            remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)
        except nvml.NVMLError:
            break
        count += _text(remote.busId) == peer_bus_id
    return count
