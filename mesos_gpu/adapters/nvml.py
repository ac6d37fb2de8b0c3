"""The GPUs of this host through NVML: nvidia-ml-py, module pynvml, loaded when it is first needed.

Source of the calls' meaning: NVIDIA's NVML API reference, "Device Queries".
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
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
        self._said: set[str] = set()
        self._known: dict[
            GpuId, Gpu
        ] = {}  # as last read without a fault: what a lost card cannot say any more

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
        self._say_once(logging.INFO, f"this is a CPU host: {why}")
        return Inventory()

    def _say_once(self, level: int, text: str) -> None:
        """A probe reads every few seconds; its log is for what is new."""
        if text not in self._said:
            self._said.add(text)
            logger.log(level, text)

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
        except nvml.NVMLError as error:
            self._say_once(
                logging.ERROR, f"GPU {index} of this host cannot be named and is left out: {error}"
            )
            return None
        known = self._known.get(uuid)
        problems: list[str] = []

        def read(call: Callable[[Any], Any], fallback: Any, *, optional: bool = False) -> Any:
            try:
                return call(handle)
            except nvml.NVMLError as error:
                if not (optional and error.value in _unsupported(nvml)):
                    problems.append(str(error))
                return fallback

        minor = read(nvml.nvmlDeviceGetMinorNumber, known and known.minor)
        memory = read(nvml.nvmlDeviceGetMemoryInfo, None)
        model = read(nvml.nvmlDeviceGetName, known.model if known else "unknown")
        pci = read(nvml.nvmlDeviceGetPciInfo, None)
        numa = read(nvml.nvmlDeviceGetNumaNodeId, known and known.numa_node, optional=True)
        if minor is None:
            self._say_once(logging.ERROR, f"{uuid} has no device number and is left out: {problems[0]}")
            return None
        gpu = Gpu(
            id=uuid,
            model=_text(model),
            memory_mib=max(memory.total >> 20, 1) if memory else known.memory_mib if known else 1,
            minor=int(minor),
            pci_bus_id=_text(pci.busId) if pci else known.pci_bus_id if known else "",
            numa_node=int(numa)
            if numa is not None and 0 <= int(numa) < 1 << 16
            else None,  # -1, unsigned: none
            health=Health.SICK if problems else Health.OK,
            reason="; ".join(dict.fromkeys(problems)),
        )
        if not problems:
            self._known[uuid] = gpu
        return gpu, handle


def _unsupported(nvml: Any) -> tuple[int, int]:
    """What a driver or card answers that does not have the query: that is no sickness."""
    return nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND


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


def _with_links(nvml: Any, gpu: Gpu, handle: Any, everyone: list[tuple[Gpu, Any]]) -> Gpu:
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
        except nvml.NVMLError:  # it has no such link, or no links at all
            continue
        count += _bus(_text(remote.busId)) == _bus(peer_bus_id)
    return count


def _bus(pci_bus_id: str) -> tuple[int, str]:
    """NVML pads the domain to 4 or to 8 digits, by the call's version."""
    domain, _, rest = pci_bus_id.partition(":")
    return int(domain or "0", 16), rest.lower()
