"""GPUs of this host through NVML: nvidia-ml-py, module pynvml, loaded on first use.

Runs in a process of its own (isolator/gpus/probing.py), as any call here may hang for ever.
Source of the calls' meaning: NVIDIA's NVML API reference, "Device Queries".
"""

import logging
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, Final

from mesos_gpu.adapters.nvml import health as nvml_health
from mesos_gpu.adapters.nvml.sharing import SharingFacts
from mesos_gpu.adapters.nvml.use import UseReader
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Link
from mesos_gpu.model.nodes.health import Reading, Survey

logger = logging.getLogger(__name__)
_LAST_MINOR: Final = (1 << 20) - 1


def load() -> Any:
    """Return the module pynvml; None if it is not installed."""
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


class Nvml:
    """A session with NVML.

    Args:
        lib: The pynvml module, or a fake of it; None if it is not installed.
        at: Callback, called with index and UUID of the card that is queried next, or with (None, "") before the driver
            itself is queried; a hang can then be attributed.
    """

    def __init__(self, lib: Any, at: Callable[[int | None, str], None] = lambda index, uuid: None) -> None:
        self._nvml, self._at = lib, at
        self._sharing, self._use = SharingFacts(lib), UseReader(lib)
        self._said: set[str] = set()
        self._absent = "" if lib else "the Python package nvidia-ml-py is not installed"
        self.is_open = False

    def open(self) -> None:
        """Open the session if it is not open; a host without driver is no error.

        Raises:
            Unavailable: NVML is present but fails as a whole.
        """
        if self.is_open or self._nvml is None:
            return
        nvml = self._nvml
        self._at(None, "")
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            if error.value not in (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED):
                raise _failed(error) from error
            self._absent = str(error)
        else:
            self.is_open = True

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._nvml.nvmlShutdown()

    def survey(self, skip: Collection[int] = (), only: int | None = None) -> Survey:
        """Read the cards.

        Args:
            skip: Indexes of cards that are not read.
            only: Index of the only card to read, -1 for none; None for all but `skip`.

        Raises:
            Unavailable: NVML fails as a whole.
        """
        if not self.is_open:
            return Survey(note=f"this is a CPU host: {self._absent}")
        nvml = self._nvml
        self._at(None, "")
        try:
            count = nvml.nvmlDeviceGetCount()
            driver = _text(nvml.nvmlSystemGetDriverVersion())
        except nvml.NVMLError as error:
            raise _failed(error) from error
        indexes = [n for n in range(count) if (n not in skip if only is None else n == only)]
        named = [(index, *card) for index in indexes if (card := self._named(index))]
        cards = [(self._read(index, handle, uuid), handle, index) for index, handle, uuid in named]
        readings = tuple(self._linked(reading, handle, index, cards) for reading, handle, index in cards)
        return Survey(
            readings,
            source="nvml",
            driver_version=driver,
            cuda_version=self._cuda(),
            note="" if count else "NVML sees no GPU",
        )

    def handles(self, skip: Collection[int] = ()) -> Iterator[tuple[int, Any, GpuId]]:
        """Yield index, handle and UUID of each card that can be identified."""
        for index in range(self._nvml.nvmlDeviceGetCount() if self.is_open else 0):
            if index not in skip and (card := self._named(index)):
                yield index, *card

    def _cuda(self) -> str | None:
        """Return the CUDA version; NVML gives 1000 x major + 10 x minor."""
        try:
            number = self._nvml.nvmlSystemGetCudaDriverVersion_v2()
        except self._nvml.NVMLError:
            return None
        return f"{number // 1000}.{number % 1000 // 10}"

    def _named(self, index: int) -> tuple[Any, GpuId] | None:
        """Return handle and UUID of a card; None, with a log line, if it cannot even be identified."""
        nvml = self._nvml
        self._at(index, "")
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = GpuId(_text(nvml.nvmlDeviceGetUUID(handle)))
        except nvml.NVMLError as error:
            text = f"GPU {index} of this host cannot be identified and is left out: {error}"
            if text not in self._said:  # cards are read every few seconds: log only what is new
                self._said.add(text)
                logger.error("%s", text)
            return None
        self._at(index, uuid)
        return handle, uuid

    def _read(self, index: int, handle: Any, uuid: GpuId) -> Reading:
        """Read facts and health of a card; facts that cannot be read get placeholders, and the reading says so."""
        self._at(index, uuid)
        look = nvml_health.Look(self._nvml, handle)
        minor = look.needed("device number", "MinorNumber")
        model = look.needed("name", "Name")
        memory = look.optional("MemoryInfo")
        pci = look.optional("PciInfo")
        numa = look.optional("NumaNodeId")
        capability = look.optional("CudaComputeCapability")  # major, minor
        gpu = Gpu(
            id=uuid,
            model=_text(model) if model else "unknown",
            memory_mib=(memory.total >> 20 if memory else 0) or _host_memory_mib(),
            minor=_LAST_MINOR - index if minor is None else int(minor),
            pci_bus_id=_text(pci.busId) if pci else "",
            numa_node=int(numa) if numa is not None and 0 <= int(numa) < 1 << 16 else None,  # -1: none
            compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
            index=index,
        )
        self._at(index, uuid)
        sharing = self._sharing.read(handle, uuid, gpu.compute_capability) if memory else None
        reading = look.reading(replace(gpu, sharing=sharing))
        if reading.lost or reading.unreadable:
            return reading
        self._at(index, uuid)
        return self._use.read(reading, handle)

    def _linked(
        self, reading: Reading, handle: Any, index: int, cards: list[tuple[Reading, Any, int]]
    ) -> Reading:
        if reading.lost or reading.unreadable:
            return reading
        self._at(index, reading.gpu.id)
        links = _links(self._nvml, reading.gpu, handle, [(r.gpu, h) for r, h, _ in cards])
        return replace(reading, gpu=replace(reading.gpu, links=links))


def _failed(error: Exception) -> Unavailable:
    return Unavailable(
        f"NVML failed: {error}", remedy="run nvidia-smi on this host; a reset or reboot may be necessary"
    )


def _host_memory_mib() -> int:
    """Return the host's memory in MiB, in place of that of a card without its own memory (NOT_SUPPORTED, GB10)."""
    return max(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20, 1)


def _text(value: Any) -> str:
    """Return text as str; older versions of the binding return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _links(nvml: Any, gpu: Gpu, handle: Any, everyone: list[tuple[Gpu, Any]]) -> tuple[Link, ...]:
    """Return the links of a card to all others, by NVLink or by the topology of the host."""
    names = {
        nvml.NVML_TOPOLOGY_INTERNAL: "PIX",
        nvml.NVML_TOPOLOGY_SINGLE: "PIX",
        nvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
        nvml.NVML_TOPOLOGY_NODE: "NODE",
        nvml.NVML_TOPOLOGY_SYSTEM: "SYS",
    }
    joined = _nvlinks(nvml, handle)
    links = []
    for peer, other in everyone:
        if peer.id == gpu.id:
            continue
        try:
            level = nvml.nvmlDeviceGetTopologyCommonAncestor(handle, other)
        except nvml.NVMLError:
            continue
        bonded = joined.count(_bus(peer.pci_bus_id))
        links.append(Link(peer.id, f"NV{bonded}" if bonded else names.get(level, "SYS")))
    return tuple(links)


def _nvlinks(nvml: Any, handle: Any) -> list[tuple[int, str]]:
    """Return the bus addresses of the peers of all active NVLinks."""
    peers = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED:
                remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)
                peers.append(_bus(_text(remote.busId)))
        except nvml.NVMLError:  # the card has no such link, or no links at all
            continue
    return peers


def _bus(pci_bus_id: str) -> tuple[int, str]:
    """Return domain and rest of a bus id: NVML pads the domain to 4 or 8 digits, depending on the call's version."""
    domain, _, rest = pci_bus_id.partition(":")
    return int(domain or "0", 16), rest.lower()
