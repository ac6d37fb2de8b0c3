"""JSON of the result of a check that is only shown, in the data of a TASK_RUNNING update; pure functions.

The executor imports this module, so it uses only the standard library's json.
"""

import json
from collections.abc import Mapping

from mesos_gpu.model.jobs.healthcheck import Checked
from mesos_gpu.wire.body import parsed

_KEY = "checked"


def encode_checked(checked: Checked) -> bytes:
    """Encode a check result as the data of a status update."""
    return json.dumps({_KEY: {"ok": checked.ok, "code": checked.code}}, separators=(",", ":")).encode()


def decode_checked(data: bytes) -> Checked | None:
    """Decode the data of a status update; None if the data is not JSON or has no such result.

    Raises:
        ValueError: A part of the result is missing or invalid.
    """
    try:
        value = parsed(data)
    except ValueError:
        return None
    if not isinstance(value, Mapping) or _KEY not in value:
        return None
    result = value[_KEY]
    if not isinstance(result, Mapping) or type(result.get("ok")) is not bool:
        raise ValueError(f"checked must be an object with ok, got {result!r:.80}")
    code = result.get("code")
    if code is not None and (type(code) is not int or not 0 <= code <= 999):
        raise ValueError(f"checked: code must be a number from 0 to 999, got {code!r:.80}")
    return Checked(result["ok"], code)
