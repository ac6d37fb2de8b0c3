"""GPUs that a file describes: for clusters without GPUs, for tests, and for demonstrations of failures."""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mesos_gpu.adapters.simulated.use import Holder, asks_for_holders, reading_of
from mesos_gpu.errors import Damaged
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory, Link, numbered
from mesos_gpu.model.nodes.health import Reading, Survey
from mesos_gpu.model.shares.card import Ability
from mesos_gpu.wire.body import parsed
from mesos_gpu.wire.mesos.report import gpu_from_json, gpu_to_json
from mesos_gpu.wire.mesos.sharing import unknown_in

#: Memory in MiB by model, with names and values as NVML reports them.
MODELS: Final = {
    "Tesla T4": 15360,
    "Tesla V100-SXM2-32GB": 32768,
    "NVIDIA A100-SXM4-80GB": 81920,
    "NVIDIA H100 80GB HBM3": 81559,
    "NVIDIA H200": 143771,
}
#: Compute capability by model. Source: developer.nvidia.com/cuda-gpus.
CAPABILITIES: Final = {
    "Tesla T4": "7.5",
    "Tesla V100-SXM2-32GB": "7.0",
    "NVIDIA A100-SXM4-80GB": "8.0",
    "NVIDIA H100 80GB HBM3": "9.0",
    "NVIDIA H200": "9.0",
}
SIMULATED_DRIVER: Final = "535.0.0-simulated"
#: Enforcement of shares that hosts of simulated cards support unless the file says otherwise.
_ABILITIES: Final = {Ability.SHIM.value: ""}


#: Fields of an entry besides a GPU's facts, with their types.
_SAID: Final = {
    "health": str,
    "reason": str,
    "xids": list,
    "pids": list,
    "process_mib": dict,
    "clocks_event_reasons": int,
    "hang": bool,
    "use": dict,
}
_HEALTH: Final = ("ok", "sick", "lost", "unknown")
_REMEDY: Final = (
    'write {"gpus": [{"uuid": "GPU-…", "model": "Tesla T4", "memory_mib": 15360, "minor": 0}, …]}'
)


class SimulatedProbe:
    """`GpuProbe` that reads an inventory file at each survey: editing the file changes the GPUs.

    An entry may have `"health": "sick"` (needs a reset), `"lost"` or `"unknown"` (cannot be read), each with a
    `"reason"`; `"hang": true` (the card does not answer in time); `"xids": [31]`, which occur once each time the file
    is written; `"pids"` and `"clocks_event_reasons"` as NVML gives them; `"process_mib"`, the memory of processes, as
    {"4711": 512}.

    `"use"` describes its use: any of `Meters`' fields, as `{"power_mw": 250000}`; `"busy_pct"`, the percentage of time
    between surveys in which it computes, and `"process_busy_pct"`, the same for processes, as {"4711": 30}. Omitted
    fields are unknown. `"held"`, an object with such fields, replaces them while a task holds the card. An amount may
    be a pair, `[35, 95]`: it moves between both values in a wave of three minutes, with another phase for each card.
    `"scripts"` has the activity of jobs by patterns of their ids, step by step from when they hold the card: `{"ann-*":
    [{"for_s": 30, "busy_pct": 95}, {"for_s": 600, "burst_ms": 50, "every_s": 60}, {"unknown": true}]}` computes for
    half a minute, for ten minutes only 50 ms of each minute, and then the activity is unknown. The last step continues;
    the first matching pattern counts.

    By default all memory of a card can be shared, and its host has the shim. `"sharing"` changes that: an object with
    `"memory_mib"`, `"abilities"` (each with the reason why it cannot be used; "" if it can), `"sm_count"`, `"mig"` and
    `"instances"`; null if the card cannot be shared.

    Args:
        path: Path of the inventory file.
        held: Function that returns the tasks that hold cards, called only if the file depends on them. A
            `MesosGpuError` that it raises is raised by the survey too.
        clock: Function that returns seconds since the epoch.
    """

    def __init__(
        self,
        path: str | Path,
        held: Callable[[], Collection[Holder]] = tuple,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._held, self._clock = Path(path), held, clock
        self._seen: _Stamp | None = None
        self._surveyed_ms: int | None = None

    def survey(self) -> Survey:
        """Return the GPUs that the file describes now.

        Raises:
            Damaged: The file is missing, is not JSON, or has an invalid field; the message names file and field.
        """
        stamp, before = self._stamp(), self._seen
        self._seen = stamp
        now_ms, last_ms = round(1000 * self._clock()), self._surveyed_ms
        try:
            value = parsed(self._path.read_text())
            span = None if last_ms is None or last_ms > now_ms else last_ms, now_ms
            survey = _survey(value, self._holders(value), span, events=stamp != before)
            self._surveyed_ms = now_ms
            return survey
        except (OSError, ValueError) as error:
            raise Damaged(f"the inventory file {self._path}: {error}", remedy=_REMEDY) from error

    def _holders(self, value: Any) -> Collection[Holder]:
        """Return the tasks that hold cards, if the file depends on them; else none."""
        entries = value.get("gpus") if isinstance(value, dict) else None
        needs_holders = isinstance(entries, list) and any(
            asks_for_holders(entry.get("use")) for entry in entries if isinstance(entry, dict)
        )
        return self._held() if needs_holders else ()

    def changed(self) -> bool:
        """Return whether the file was written or replaced since the last survey."""
        return self._stamp() != self._seen

    def reset(self, gpu_id: GpuId) -> str:
        """Remove health and other faults of a GPU from the file. Return the reason of a failure; "" on success."""
        try:
            cleared = dict.fromkeys(name for name in _SAID if name != "use")
            return "" if change_gpu(self._path, gpu_id, **cleared) else f"{self._path} has no {gpu_id}"
        except (OSError, ValueError) as error:
            return f"{self._path}: {error}"

    def close(self) -> None:
        """Do nothing: no resource is kept open."""

    def _stamp(self) -> "_Stamp | None":
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


_NAMING: Final = ("uuid", "model", "memory_mib", "minor")
_Stamp = tuple[int, int, int]
_Look = tuple[int | None, int]  # times of the previous and this survey, in milliseconds since the epoch


def _survey(value: Any, holders: Collection[Holder], look: _Look, *, events: bool) -> Survey:
    """Return the survey that the parsed inventory file describes."""
    if not isinstance(value, dict) or not isinstance(value.get("gpus"), list):
        raise ValueError('must be an object with a list "gpus"')
    for name in ("driver_version", "cuda_version"):
        if not isinstance(value.get(name, ""), str):
            raise ValueError(f"{name} must be a string, got {value[name]!r}")
    readings = []
    for index, item in enumerate(value["gpus"]):
        try:
            readings.append(_reading(item, holders, look, events=events))
        except ValueError as error:
            readings.append(_misdescribed(item, f"gpus[{index}]: {error}"))
    gpus = numbered([reading.gpu for reading in readings])
    Inventory(gpus)  # each UUID and minor once
    return Survey(
        tuple(replace(reading, gpu=gpu) for reading, gpu in zip(readings, gpus, strict=True)),
        source="simulated",
        driver_version=value.get("driver_version"),
        cuda_version=value.get("cuda_version"),
    )


def _misdescribed(item: Any, why: str) -> Reading:
    """Return a reading of a card that cannot be used, because its description has a fault.

    Raises:
        ValueError: The fault is in a field that identifies the card.
    """
    named = {name: item[name] for name in _NAMING if name in item} if isinstance(item, dict) else {}
    try:
        return Reading(gpu=gpu_from_json(named), misdescribed=why)
    except ValueError:
        raise ValueError(why) from None


def _reading(item: Any, holders: Collection[Holder], look: _Look, *, events: bool) -> Reading:
    """Return the reading that an entry of the inventory file describes."""
    settings = {name: item[name] for name in _SAID if name in item} if isinstance(item, dict) else {}
    for name, value in settings.items():
        if not isinstance(value, _SAID[name]) or (isinstance(value, bool) and name != "hang"):
            raise ValueError(f"{name} must be of type {_SAID[name].__name__}, got {value!r}")
    health, reason = settings.get("health", "ok"), settings.get("reason", "")
    if health not in _HEALTH:
        raise ValueError(f"health must be one of {', '.join(_HEALTH)}, got {health!r}")
    unreadable = (reason or "set in the inventory file") if health == "unknown" else ""
    gpu = _gpu({k: v for k, v in item.items() if k not in settings} if settings else item)
    reading = Reading(
        gpu=gpu,
        lost=health == "lost",
        unreadable="it does not answer" if settings.get("hang") else unreadable,
        reset_required=(reason or "set in the inventory file") if health == "sick" else "",
        xids=tuple(map(int, settings.get("xids", ()))) if events else (),
        pids=tuple(map(int, settings["pids"])) if "pids" in settings else None,
        process_mib=tuple((int(pid), int(mib)) for pid, mib in settings["process_mib"].items())
        if "process_mib" in settings
        else None,
        clocks_event_reasons=settings.get("clocks_event_reasons"),
    )
    return replace(reading, **reading_of(settings.get("use", {}), gpu.id, holders, *look))


def _gpu(item: Any) -> Gpu:
    """Return the card of an entry, with defaults for omitted parts of `sharing`."""
    if not isinstance(item, dict):
        return gpu_from_json(item)  # raises an error that describes the fault
    sharing = item.get("sharing", {})
    if isinstance(sharing, dict):
        if strange := unknown_in(sharing):
            raise ValueError(f"sharing: {strange}")
        sharing = {"memory_mib": item.get("memory_mib"), "abilities": _ABILITIES, **sharing}
    gpu = gpu_from_json({**item, "sharing": sharing})
    if gpu.sharing and gpu.sharing.memory_mib > gpu.memory_mib:
        raise ValueError(
            f"sharing.memory_mib is {gpu.sharing.memory_mib}, more than the card's {gpu.memory_mib} MiB"
        )
    return gpu


def write_inventory(
    path: Path,
    gpus: Sequence[Gpu],
    *,
    driver_version: str = SIMULATED_DRIVER,
    cuda_version: str = "12.2",
    use: Callable[[Gpu], dict[str, Any] | None] = lambda _gpu: None,
) -> None:
    """Write the file atomically. `use`: function that returns the use of each GPU; None to omit it."""
    left_out = ["since", "warnings", "history"]  # set by the monitor
    if numbered([replace(gpu, index=None) for gpu in gpus]) == tuple(gpus):
        left_out.append("index")  # it follows from the bus ids, and earlier programs reject the field
    entries = [
        {k: v for k, v in gpu_to_json(gpu).items() if k not in left_out}
        | ({"use": gpu_use} if (gpu_use := use(gpu)) else {})
        for gpu in gpus
    ]
    _write(path, {"driver_version": driver_version, "cuda_version": cuda_version, "gpus": entries})


def change_gpu(path: Path, gpu_id: GpuId, **said: Any) -> bool:
    """Change fields of one GPU in the file, e.g. `health="lost"`; None removes a field.

    Returns:
        Whether the file has that GPU.

    Raises:
        OSError, ValueError: The file cannot be read or written, or is not JSON.
    """
    value = parsed(path.read_text())
    entries = [entry for entry in value["gpus"] if entry.get("uuid") == gpu_id]
    for entry in entries:
        entry.update(said)
        for name in [name for name in said if said[name] is None]:
            del entry[name]
    if entries:
        _write(path, value)
    return bool(entries)


def _write(path: Path, value: Any) -> None:
    fd, part = tempfile.mkstemp(dir=path.parent, prefix=".inventory-")
    with os.fdopen(fd, "w") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
    os.chmod(part, 0o644)
    os.rename(part, path)


def simulated_gpus(count: int, model: str, *, seed: str, memory_mib: int | None = None) -> tuple[Gpu, ...]:
    """Return GPUs of one host with distinct, repeatable UUIDs; pairs of them are linked, halves share a NUMA node."""
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
            compute_capability=CAPABILITIES.get(model),
            index=index,
        )
        for index in range(count)
    )


def _uuid(seed: str) -> GpuId:
    d = hashlib.sha256(seed.encode()).hexdigest()
    return GpuId(f"GPU-{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:32]}")
