"""JSON of `Listening`, in the data of a TASK_STARTING or TASK_RUNNING update; pure functions.

The executor imports this module, so it uses only the standard library's json.
"""

import json
from collections.abc import Mapping
from typing import Any

from mesos_gpu.model.tasks.listening import Listening
from mesos_gpu.wire.body import parsed

_MAX_PORTS = 1000
_MAX_TEXT = 2000
_LAST_PORT = 65535


def listening_to_json(listening: Listening) -> dict[str, Any]:
    """Return the value of the JSON field `listening`."""
    return {"ports": list(listening.ports), "problem": listening.problem[:_MAX_TEXT]}


def encode_listening(listening: Listening) -> bytes:
    """Encode the ports at which a task listens as the data of a status update."""
    return json.dumps({"listening": listening_to_json(listening)}, separators=(",", ":")).encode()


def decode_listening(data: bytes) -> Listening | None:
    """Decode the data of a status update; None if the data is not JSON or has no field `listening`.

    Raises:
        ValueError: The field `listening` has a missing or invalid part.
    """
    try:
        value = parsed(data)
    except ValueError:
        return None
    if not isinstance(value, Mapping) or "listening" not in value:
        return None
    listening = value["listening"]
    if not isinstance(listening, Mapping):
        raise ValueError(f"listening must be an object, got {listening!r:.80}")
    ports, problem = listening.get("ports"), listening.get("problem")
    if not isinstance(ports, list) or len(ports) > _MAX_PORTS or not all(map(_is_port, ports)):
        raise ValueError(
            f"listening: ports must be a list of numbers from 1 to {_LAST_PORT}, got {ports!r:.80}"
        )
    if not isinstance(problem, str) or len(problem) > _MAX_TEXT:
        raise ValueError(f"listening: problem must be a string of at most {_MAX_TEXT} characters")
    return Listening(tuple(ports), problem)


def _is_port(value: object) -> bool:
    return type(value) is int and 1 <= value <= _LAST_PORT
