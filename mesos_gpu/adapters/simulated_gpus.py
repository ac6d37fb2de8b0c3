"""GPUs that a file describes: for clusters without any, for tests, and for people who want to see one fail."""

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mesos_gpu.errors import Damaged
from mesos_gpu.model.gpu import Gpu, Health, Inventory, Link
from mesos_gpu.model.ids import GpuId
from mesos_gpu.wire.report import gpu_from_json, gpu_to_json

#: Model to memory in MiB, as NVML names and reports them.
MODELS: Final = {
    "Tesla T4": 15360,
    "Tesla V100-SXM2-32GB": 32768,
    "NVIDIA A100-SXM4-80GB": 81920,
    "NVIDIA H100 80GB HBM3": 81559,
    "NVIDIA H200": 143771,
}


class SimulatedProbe:
    """`GpuProbe` over an inventory file; edit the file, and the GPUs change."""

    def __init__(self, path: str | Path) -> None:
        """The file is read at each `inventory()`."""
        self._path = Path(path)
        self._seen: tuple[int, int, int] | None = None

    def inventory(self) -> Inventory:
        """What the file says now.

        Raises:
            Damaged: It is missing, is no JSON, or a field is wrong; the message names file and field.
        """
        self._seen = self._stamp()
        try:
            value = json.loads(self._path.read_text())
            return _inventory(value)
        except (OSError, ValueError) as error:
            raise Damaged(
                f"the inventory file {self._path}: {error}",
                remedy='write {"gpus": [{"uuid": "GPU-…", "model": "Tesla T4", "memory_mib": 15360, "minor": 0}, …]}',
            ) from error

    def changed(self) -> bool:
        """Whether the file is another one, or was written, since it was read."""
        return self._stamp() != self._seen

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _inventory(value: Any) -> Inventory:
    if not isinstance(value, dict) or not isinstance(value.get("gpus"), list):
        raise ValueError('must be an object with a list "gpus"')
    gpus = []
    for index, item in enumerate(value["gpus"]):
        try:
            gpus.append(gpu_from_json(item, health=Health.OK))
        except ValueError as error:
            raise ValueError(f"gpus[{index}]: {error}") from error
    version = value.get("driver_version")
    if version is not None and not isinstance(version, str):
        raise ValueError(f"driver_version must be a string, got {version!r}")
    return Inventory(tuple(gpus), source="simulated", driver_version=version)


def write_inventory(path: Path, gpus: Sequence[Gpu], *, driver_version: str = "535.0.0-simulated") -> None:
    """Write the file in one step: a reader sees the old or the new."""
    body = {"driver_version": driver_version, "gpus": [gpu_to_json(gpu) for gpu in gpus]}
    fd, part = tempfile.mkstemp(dir=path.parent, prefix=".inventory-")
    with os.fdopen(fd, "w") as file:
        json.dump(body, file, indent=2)
        file.write("\n")
    os.chmod(part, 0o644)
    os.rename(part, path)


def simulated_gpus(count: int, model: str, *, seed: str, memory_mib: int | None = None) -> tuple[Gpu, ...]:
    """GPUs of one host with distinct, repeatable UUIDs; pairs of them are linked, halves share a NUMA node."""
    ids = [_uuid(f"{seed}/{index}") for index in range(count)]
    return tuple(
        Gpu(
            id=ids[index],
            model=model,
            memory_mib=memory_mib or MODELS.get(model, 16384),
            minor=index,
            pci_bus_id=f"00000000:{0x10 + index:02X}:00.0",
            numa_node=0 if index < (count + 1) // 2 else 1,
            links=tuple(
                Link(ids[peer], "NV4" if peer == index ^ 1 else "SYS")
                for peer in range(count)
                if peer != index
            ),
            health=Health.OK,
        )
        for index in range(count)
    )


def _uuid(seed: str) -> GpuId:
    d = hashlib.sha256(seed.encode()).hexdigest()
    return GpuId(f"GPU-{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:32]}")
