"""What a node monitor and an executor are: `Program` to JSON, and back. Pure.

In a monitor's report it is the field `program`; an executor says it in the data of its first update. Only the standard
library: the host side imports it.
"""

import json
import re
from typing import Any, Final

from mesos_gpu.model.nodes.gpu import Program
from mesos_gpu.model.nodes.wires import OLDEST, WIRE
from mesos_gpu.wire.body import parsed

MAX_WIRE: Final = 1_000_000
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,63}", re.ASCII)  # as PEP 440 has them, and room
_DIGEST: Final = re.compile(r"(?:[0-9a-f]{64})?", re.ASCII)


def program_to_json(program: Program) -> dict[str, Any]:
    """The program as a JSON object; digests that are not known are left out."""
    digests = {"digest": program.digest, "replaced": program.replaced}
    return {
        "version": program.version,
        "wire": program.wire,
        "oldest": program.oldest,
        **{name: digest for name, digest in digests.items() if digest},
    }


def program_from_json(value: Any) -> Program:
    """The inverse; fields that are not known here are left out.

    Raises:
        ValueError: A field is missing, of another type, or out of range; the message names it.
    """
    if not isinstance(value, dict):
        raise ValueError(f"program must be an object, got {value!r:.80}")
    oldest, wire = _number(value, "oldest"), _number(value, "wire")
    if oldest > wire:
        raise ValueError(f"program: oldest must be no more than wire, got {oldest} and {wire}")
    return Program(
        _text(value, "version", _VERSION, None),
        wire,
        oldest,
        _text(value, "digest", _DIGEST, ""),
        _text(value, "replaced", _DIGEST, ""),
    )


def encode_program(version: str, **more: Any) -> bytes:
    """Encode the description of an executor as data of a status update.

    Args:
        version: Version of the executor's release.
        more: Further JSON fields.
    """
    program = {"version": version, "wire": WIRE, "oldest": OLDEST}
    return json.dumps({"program": program, **more}, separators=(",", ":")).encode()


def decode_program(data: bytes) -> Program | None:
    """The inverse; None: it is other data.

    Raises:
        ValueError: It is of this kind, and no program.
    """
    try:
        value = parsed(data)
    except ValueError:
        return None
    if not isinstance(value, dict) or "program" not in value:
        return None
    return program_from_json(value["program"])


def _number(value: dict[str, Any], name: str) -> int:
    got = value.get(name)
    if type(got) is not int or not 0 < got <= MAX_WIRE:
        raise ValueError(f"program: {name} must be a whole number from 1 to {MAX_WIRE}, got {got!r:.80}")
    return got


def _text(value: dict[str, Any], name: str, form: re.Pattern[str], default: str | None) -> str:
    got = value.get(name, default)
    if not isinstance(got, str) or not form.fullmatch(got):
        raise ValueError(f"program: {name} is not as it must be: {got!r:.80}")
    return got
