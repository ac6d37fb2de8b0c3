"""JSON of the use of GPUs in a monitor's report: `GpuUse` and `TaskUse`.

It has a version of its own, to change independently of the report. Values that a monitor leaves out, and all values in
another version, count as unknown. The host side imports this module, so it uses only the standard library.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any, Final

from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu_use import MAX_GPU_USES, MAX_TASK_USES, GpuUse, Meters, TaskUse, Work
from mesos_gpu.wire.body import MAX_AMOUNT

VERSION: Final = 1
_METERS: Final = tuple(field.name for field in fields(Meters))
Uses = tuple[tuple[GpuUse, ...], tuple[TaskUse, ...]]


def uses_to_json(gpus: Iterable[GpuUse], tasks: Iterable[TaskUse]) -> dict[str, Any]:
    """Return the uses as a JSON object, without unknown values."""
    cards = [{**_known(asdict(use)), "meters": _known(asdict(use.meters))} for use in gpus]
    return {
        "version": VERSION,
        "cards": cards[:MAX_GPU_USES],
        "tasks": [_known(asdict(use)) for use in tasks][:MAX_TASK_USES],
    }


def uses_from_json(value: Any) -> Uses:
    """Parse uses from `uses_to_json`; unknown fields are ignored.

    Raises:
        ValueError: A field has another type, or is out of range; the message names it.
        KeyError, TypeError, AttributeError: A field is missing, or has another type.
    """
    if value["version"] != VERSION:
        return (), ()
    cards, tasks = value["cards"][:MAX_GPU_USES], value["tasks"][:MAX_TASK_USES]
    return tuple(map(_gpu_use, cards)), tuple(map(_task_use, tasks))


def _known(value: dict[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in value.items() if item is not None}


def _gpu_use(value: Any) -> GpuUse:
    meters = value.get("meters", {})
    return GpuUse(
        gpu_id=GpuId(str(value["gpu_id"])),
        at=_moment(value, "at"),
        meters=Meters(**{name: _amount(meters, name) for name in _METERS if name in meters}),
        work=_work(value.get("work")),
        processes=_amount(value, "processes"),
        xid=_amount(value, "xid"),
    )


def _task_use(value: Any) -> TaskUse:
    return TaskUse(
        task_id=TaskId(str(value["task_id"])),
        gpu_id=GpuId(str(value["gpu_id"])),
        at=_moment(value, "at"),
        processes=_amount(value, "processes"),
        memory_mib=_amount(value, "memory_mib"),
        work=_work(value.get("work")),
        idle_since=_moment(value, "idle_since") if "idle_since" in value else None,
    )


def _work(value: Any) -> Work | None:
    if value is None:
        return None
    seen_ms, busy_ms = _amount(value, "seen_ms"), _amount(value, "busy_ms")
    if seen_ms is None or busy_ms is None or busy_ms > seen_ms:
        raise ValueError(f"work must have busy_ms and a seen_ms that is not less, got {value!r}")
    return Work(_moment(value, "since"), seen_ms, busy_ms)


def _moment(value: Any, name: str) -> float:
    got = value[name]
    if isinstance(got, bool) or not isinstance(got, int | float) or not 0 <= got < MAX_AMOUNT:
        raise ValueError(f"{name} must be seconds since the epoch, got {got!r}")
    if not math.isfinite(got):
        raise ValueError(f"{name} must be a finite number")
    return float(got)


def _amount(value: Any, name: str) -> int | None:
    """Return a whole number from 0; None if it is absent."""
    got = value.get(name)
    if got is None:
        return None
    if isinstance(got, bool) or not isinstance(got, int) or not 0 <= got < MAX_AMOUNT:
        raise ValueError(f"{name} must be a whole number from 0, got {got!r}")
    return got
