"""GPUs that a file describes: for clusters without any, for tests, and for people who want to see one fail."""

import hashlib
import json
import math
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from mesos_gpu.errors import Damaged
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory, Link
from mesos_gpu.model.nodes.gpu_use import Meters, Span
from mesos_gpu.model.nodes.health import Reading, Survey
from mesos_gpu.model.shares.card import Ability
from mesos_gpu.wire.body import MOST_AMOUNT, parsed
from mesos_gpu.wire.mesos.report import gpu_from_json, gpu_to_json
from mesos_gpu.wire.mesos.sharing import unknown_in

#: Model to memory in MiB, as NVML names and reports them.
MODELS: Final = {
    "Tesla T4": 15360,
    "Tesla V100-SXM2-32GB": 32768,
    "NVIDIA A100-SXM4-80GB": 81920,
    "NVIDIA H100 80GB HBM3": 81559,
    "NVIDIA H200": 143771,
}
#: Compute capability of the same. Source: developer.nvidia.com/cuda-gpus.
CAPABILITIES: Final = {
    "Tesla T4": "7.5",
    "Tesla V100-SXM2-32GB": "7.0",
    "NVIDIA A100-SXM4-80GB": "8.0",
    "NVIDIA H100 80GB HBM3": "9.0",
    "NVIDIA H200": "9.0",
}
SIMULATED_DRIVER: Final = "535.0.0-simulated"
#: What hosts of simulated cards can use to enforce shares, where the file does not say it.
_ABILITIES: Final = {Ability.SHIM.value: ""}


#: What an entry may say besides a GPU's facts, and what it must be.
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
_METERS: Final = tuple(field.name for field in fields(Meters))
_OF_USE: Final = ("busy_pct", "process_busy_pct", *_METERS)
_HELD: Final = "held"  # of a use: what else it is while a task holds the card
_WAVE_S: Final = 180.0  # from high to low and back
_HEALTH: Final = ("ok", "sick", "lost", "unknown")
_REMEDY: Final = (
    'write {"gpus": [{"uuid": "GPU-…", "model": "Tesla T4", "memory_mib": 15360, "minor": 0}, …]}'
)


class SimulatedProbe:
    """`GpuProbe` over an inventory file; edit the file, and the GPUs change.

    An entry may say `"health": "sick"` (it needs a reset), `"lost"` or `"unknown"` (it cannot be read), each with a
    `"reason"`; `"hang": true` (as a card that does not answer in time); `"xids": [31]`, which happen once each time
    the file is written; `"pids"` and `"clocks_event_reasons"` as NVML gives them;
    `"process_mib"`: the memory of processes, as {"4711": 512}.

    `"use"` says how it is used: any of `Meters`' fields, as `{"power_mw": 250000}`; `"busy_pct"`, the part of the time
    from look to look in which it works, and `"process_busy_pct"`, the same of processes, as {"4711": 30}. What it does
    not say is unknown. `"held"`, an object of the same, says what is so while a task holds the card, in place of the
    rest. An amount may be a pair, `[35, 95]`: it goes from one to the other and back every three minutes, at other
    times of each card.

    All memory of a card can be shared out, and its host has the shim. `"sharing"` says otherwise: an object with
    `"memory_mib"`, `"abilities"` (each with why it cannot be used, "": it can), `"sm_count"`, `"mig"` and
    `"instances"`; null: it cannot be shared.
    """

    def __init__(
        self,
        path: str | Path,
        held: Callable[[], Collection[GpuId]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The file is read at each `survey()`.

        Args:
            path: The file.
            held: The cards that tasks hold; it may raise `MesosGpuError`, and so does the survey of a file that asks.
            clock: In seconds.
        """
        self._path, self._held, self._clock = Path(path), held, clock
        self._seen: _Stamp | None = None
        self._surveyed_at: float | None = None  # on the monotonic clock

    def survey(self) -> Survey:
        """What the file says now.

        Raises:
            Damaged: It is missing, is no JSON, or a field is wrong; the message names file and field.
        """
        stamp, before = self._stamp(), self._seen
        self._seen = stamp
        now, last = self._clock(), self._surveyed_at
        elapsed_ms = None if last is None else round(1000 * (now - last))
        try:
            value = self._played(parsed(self._path.read_text()), now)
            survey = _survey(value, events=stamp != before, elapsed_ms=elapsed_ms)
            self._surveyed_at = now
            return survey
        except (OSError, ValueError) as error:
            raise Damaged(f"the inventory file {self._path}: {error}", remedy=_REMEDY) from error

    def _played(self, value: Any, now: float) -> Any:
        """The file's value with the uses as they are now; what is wrong in it stays as it is."""
        entries = value.get("gpus") if isinstance(value, dict) else None
        if not isinstance(entries, list):
            return value
        uses = [each.get("use") if isinstance(each, dict) else None for each in entries]
        asked = any(isinstance(use, dict) and _HELD in use for use in uses)
        held = self._held() if asked else ()
        played = list(entries)
        for index, use in enumerate(uses):
            if isinstance(use, dict):
                uuid = entries[index].get("uuid")
                try:
                    now_used = _played(use, str(uuid), uuid in held, now)
                except ValueError as error:
                    raise ValueError(f"gpus[{index}]: {error}") from error
                played[index] = {**entries[index], "use": now_used}
        return {**value, "gpus": played}

    def changed(self) -> bool:
        """Whether the file is another one, or was written, since it was read."""
        return self._stamp() != self._seen

    def reset(self, gpu_id: GpuId) -> str:
        """Take the fault out of the file."""
        try:
            well = dict.fromkeys(name for name in _SAID if name != "use")
            return "" if change_gpu(self._path, gpu_id, **well) else f"{self._path} has no {gpu_id}"
        except (OSError, ValueError) as error:
            return f"{self._path}: {error}"

    def close(self) -> None:
        """Nothing is open."""

    def _stamp(self) -> "_Stamp | None":
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


_Stamp = tuple[int, int, int]


def _survey(value: Any, *, events: bool, elapsed_ms: int | None) -> Survey:
    if not isinstance(value, dict) or not isinstance(value.get("gpus"), list):
        raise ValueError('must be an object with a list "gpus"')
    for name in ("driver_version", "cuda_version"):
        if not isinstance(value.get(name, ""), str):
            raise ValueError(f"{name} must be a string, got {value[name]!r}")
    readings = []
    for index, item in enumerate(value["gpus"]):
        try:
            readings.append(_reading(item, events=events, elapsed_ms=elapsed_ms))
        except ValueError as error:
            raise ValueError(f"gpus[{index}]: {error}") from error
    Inventory(tuple(reading.gpu for reading in readings))  # each UUID and minor once
    return Survey(
        tuple(readings),
        source="simulated",
        driver_version=value.get("driver_version"),
        cuda_version=value.get("cuda_version"),
    )


def _reading(item: Any, *, events: bool, elapsed_ms: int | None) -> Reading:
    said = {name: item[name] for name in _SAID if name in item} if isinstance(item, dict) else {}
    for name, value in said.items():
        if not isinstance(value, _SAID[name]) or (isinstance(value, bool) and name != "hang"):
            raise ValueError(f"{name} must be of type {_SAID[name].__name__}, got {value!r}")
    health, reason = said.get("health", "ok"), said.get("reason", "")
    if health not in _HEALTH:
        raise ValueError(f"health must be one of {', '.join(_HEALTH)}, got {health!r}")
    unreadable = (reason or "the file says so") if health == "unknown" else ""
    return Reading(
        gpu=_gpu({k: v for k, v in item.items() if k not in said} if said else item),
        lost=health == "lost",
        unreadable="it does not answer" if said.get("hang") else unreadable,
        reset_required=(reason or "the file says so") if health == "sick" else "",
        xids=tuple(map(int, said.get("xids", ()))) if events else (),
        pids=tuple(map(int, said["pids"])) if "pids" in said else None,
        process_mib=tuple((int(pid), int(mib)) for pid, mib in said["process_mib"].items())
        if "process_mib" in said
        else None,
        clocks_event_reasons=said.get("clocks_event_reasons"),
        **_use(said.get("use", {}), elapsed_ms),
    )


def _played(use: Mapping[str, Any], uuid: str, held: bool, now: float) -> dict[str, Any]:
    """A use as it is at a moment, without pairs and without what is so at other times.

    Raises:
        ValueError: `held` is no object, or has a field that is none of a use.
    """
    while_held = use.get(_HELD, {})
    if not isinstance(while_held, dict) or (strange := while_held.keys() - {*_OF_USE}):
        what = f"unknown field {min(strange)!r}" if isinstance(while_held, dict) else "it must be an object"
        raise ValueError(f"use.held: {what}; known are {', '.join(_OF_USE)}")
    rest = {name: amount for name, amount in use.items() if name != _HELD}
    turn = now / _WAVE_S + zlib.crc32(uuid.encode()) / 2**32
    part = (1 + math.sin(2 * math.pi * turn)) / 2
    return {name: _between(amount, part) for name, amount in (rest | (while_held if held else {})).items()}


def _between(amount: Any, part: float) -> Any:
    """Take the whole number at a part of the way from one to the other of a pair; anything else as it is."""
    if isinstance(amount, list) and len(amount) == 2 and all(type(each) in (int, float) for each in amount):
        return round(amount[0] + (amount[1] - amount[0]) * part)
    return amount


def _use(use: Mapping[str, Any], elapsed_ms: int | None) -> dict[str, Any]:
    """What a reading says of a card's use. `elapsed_ms`: since the look before; None: there was none."""
    if strange := sorted(use.keys() - {*_OF_USE}):
        raise ValueError(f"use: unknown field {strange[0]!r}; known are {_HELD}, {', '.join(_OF_USE)}")
    meters = {name: use[name] for name in _METERS if use.get(name) is not None}
    for name, amount in meters.items():
        if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount < MOST_AMOUNT:
            raise ValueError(f"use.{name} must be a whole number from 0, got {amount!r}")
    busy_pct = use.get("busy_pct")
    part_ms = None if busy_pct is None else _part("busy_pct", busy_pct, elapsed_ms or 0)
    span = None if part_ms is None or elapsed_ms is None else Span(elapsed_ms, part_ms)
    processes = use.get("process_busy_pct")
    if processes is not None and not isinstance(processes, dict):
        raise ValueError(f"use.process_busy_pct must be an object of pids with percent, got {processes!r}")
    busy_ms = {
        int(pid): _part("process_busy_pct", pct, elapsed_ms or 0) for pid, pct in (processes or {}).items()
    }
    return {
        "meters": Meters(**meters),
        "span": span,
        "process_busy_ms": tuple(busy_ms.items()) if span and processes is not None else None,
    }


def _part(name: str, pct: Any, elapsed_ms: int) -> int:
    if isinstance(pct, bool) or not isinstance(pct, int | float) or not 0 <= pct <= 100:
        raise ValueError(f"use.{name} must be percent from 0 to 100, got {pct!r}")
    return round(elapsed_ms * pct / 100)


def _gpu(item: Any) -> Gpu:
    """The card, with what it has for shares where the entry leaves that out, or a part of it."""
    if not isinstance(item, dict):
        return gpu_from_json(item)  # says what is wrong with it
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


def lifelike(gpu: Gpu) -> dict[str, Any]:
    """A use for an entry of the file: a card that does nothing until a task holds it, and then computes."""
    used_mib = gpu.memory_mib * 3 // 4
    return {
        "busy_pct": 0, "gpu_pct": 0, "memory_pct": 0, "memory_used_mib": 0, "memory_free_mib": gpu.memory_mib,
        "power_mw": 62_000, "power_limit_mw": 400_000, "temperature_c": 34, "sm_clock_mhz": 210,
        "memory_clock_mhz": 1215,
        _HELD: {
            "busy_pct": [55, 97], "gpu_pct": [55, 97], "memory_pct": [20, 60], "memory_used_mib": used_mib,
            "memory_free_mib": gpu.memory_mib - used_mib, "power_mw": [210_000, 372_000], "temperature_c": [58, 71],
            "sm_clock_mhz": 1410,
        },
    }  # fmt: skip


def write_inventory(
    path: Path,
    gpus: Sequence[Gpu],
    *,
    driver_version: str = SIMULATED_DRIVER,
    cuda_version: str = "12.2",
    use: Callable[[Gpu], dict[str, Any] | None] = lambda _gpu: None,
) -> None:
    """Write the file in one step: a reader sees the old or the new. `use`: of each GPU; None: nothing is said of it."""
    left_out = ("since", "warnings", "history")  # the monitor's own
    entries = [
        {k: v for k, v in gpu_to_json(gpu).items() if k not in left_out}
        | ({"use": said} if (said := use(gpu)) else {})
        for gpu in gpus
    ]
    _write(path, {"driver_version": driver_version, "cuda_version": cuda_version, "gpus": entries})


def change_gpu(path: Path, gpu_id: GpuId, **said: Any) -> bool:
    """Change what the file says of one GPU, `health="lost"`; None takes the field out.

    Returns:
        Whether the file has that GPU.

    Raises:
        OSError, ValueError: The file cannot be read or written, or is no JSON.
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
            compute_capability=CAPABILITIES.get(model),
        )
        for index in range(count)
    )


def _uuid(seed: str) -> GpuId:
    d = hashlib.sha256(seed.encode()).hexdigest()
    return GpuId(f"GPU-{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:32]}")
