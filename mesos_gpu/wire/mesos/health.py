"""JSON of health readings and of the monitor's health history. Uses only the standard library; pure functions."""

from dataclasses import asdict, fields
from typing import Any

from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.gpu_use import Meters, Span
from mesos_gpu.model.nodes.health import CardHealth, Reading
from mesos_gpu.wire.mesos.report import gpu_from_json, gpu_to_json


def reading_to_json(reading: Reading) -> dict[str, Any]:
    """Return a reading as a JSON object."""
    return {field.name: getattr(reading, field.name) for field in fields(reading)} | {
        "gpu": gpu_to_json(reading.gpu),
        "meters": asdict(reading.meters),
        "span": None if reading.span is None else asdict(reading.span),
    }


def reading_from_json(value: Any) -> Reading:
    """Parse a reading from `reading_to_json`.

    Raises:
        ValueError, KeyError, TypeError: The value is not a reading.
    """
    pids, span = value["pids"], value.get("span")
    return Reading(
        **{
            **value,
            "gpu": gpu_from_json(value["gpu"]),
            "xids": tuple(map(int, value["xids"])),
            "pids": None if pids is None else tuple(map(int, pids)),
            "process_mib": _pairs(value.get("process_mib")),
            "meters": Meters(**value.get("meters", {})),
            "span": None if span is None else Span(**span),
            "process_busy_ms": _pairs(value.get("process_busy_ms")),
        }
    )


def _pairs(value: Any) -> tuple[tuple[int, int], ...] | None:
    return None if value is None else tuple((int(pid), int(amount)) for pid, amount in value)


def record_to_json(record: CardHealth) -> dict[str, Any]:
    """Return the health history of a GPU as a JSON object."""
    return {field.name: getattr(record, field.name) for field in fields(record)} | {
        "gpu": gpu_to_json(record.gpu),
        "state": record.state.value,
    }


def record_from_json(value: Any) -> CardHealth:
    """Parse a health history from `record_to_json`.

    Raises:
        ValueError, KeyError, TypeError: The value is not a health history.
    """
    ecc = value["uncorrectable_ecc"]
    return CardHealth(
        gpu=gpu_from_json(value["gpu"]),
        state=Health(value["state"]),
        why=str(value["why"]),
        bad=int(value["bad"]),
        clean=int(value["clean"]),
        times_sick=int(value["times_sick"]),
        sick_at=float(value["sick_at"]),
        recheck_at=float(value["recheck_at"]),
        latched=bool(value["latched"]),
        uncorrectable_ecc=None if ecc is None else int(ecc),
        notes=tuple((float(at), str(text)) for at, text in value["notes"]),
        resets=tuple(map(str, value["resets"])),
    )
