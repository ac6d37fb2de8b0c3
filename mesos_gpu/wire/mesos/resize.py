"""JSON of `Resize`, a MESSAGE to an executor, and of `ResizeAnswer`, the data of a TASK_RUNNING; pure functions.

The host side imports this module, so it uses only the standard library's json.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mesos_gpu.model.tasks.resize import Resize, ResizeAnswer
from mesos_gpu.wire.body import MAX_AMOUNT, parsed

_AMOUNTS = ("number", "memory_mib", "memory_max_mib", "compute_milli")


def encode_request(resize: Resize) -> bytes:
    """Encode a resize request as a message."""
    return json.dumps({"resize": asdict(resize)}, separators=(",", ":")).encode()


def decode_request(data: bytes) -> Resize | None:
    """Decode a resize request; None for another message.

    Raises:
        ValueError: The request has a missing or invalid amount.
    """
    value = _object(data)
    return None if value is None or "resize" not in value else Resize(**_amounts(value["resize"]))


def encode_answer(resized: ResizeAnswer) -> bytes:
    """Encode the answer to a resize request as status data."""
    return json.dumps({"resized": asdict(resized)}, separators=(",", ":")).encode()


def decode_answer(data: bytes) -> ResizeAnswer | None:
    """Decode the answer to a resize request; None for other data.

    Raises:
        ValueError: The answer has a missing or invalid amount.
    """
    value = _object(data)
    if value is None or "resized" not in value:
        return None
    answer = value["resized"]
    amounts = _amounts(answer)
    used_mib = answer.get("used_mib")
    return ResizeAnswer(
        **amounts,
        refused=str(answer.get("refused", "")),
        used_mib=None if used_mib is None else _amount("used_mib", used_mib),
        restart=answer.get("restart") is True,
    )


def _object(data: bytes) -> Mapping[str, Any] | None:
    try:
        value = parsed(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _amounts(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        raise ValueError(f"a resize must be an object, got {value!r}")
    return {name: _amount(name, value.get(name)) for name in _AMOUNTS}


def _amount(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MAX_AMOUNT:
        raise ValueError(f"{name} must be a whole number from 0, got {value!r}")
    return value
