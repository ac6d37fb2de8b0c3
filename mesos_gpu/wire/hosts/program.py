"""JSON of `Program`, the release of a node monitor or an executor; pure functions.

A monitor's report has it in the field `program`; an executor sends it in the data of its first update. The host side
imports this module, so it uses only the standard library.
"""

import json
import re
from typing import Any, Final

from mesos_gpu.model.nodes.gpu import Program
from mesos_gpu.model.nodes.wires import OLDEST, WIRE
from mesos_gpu.wire.body import parsed

MAX_WIRE: Final = 1_000_000
#: Versions by PEP 440, and similar ones.
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,63}", re.ASCII)
_DIGEST: Final = re.compile(r"(?:[0-9a-f]{64})?", re.ASCII)


def program_to_json(program: Program) -> dict[str, Any]:
    """Return a program as a JSON object; unknown digests are left out."""
    digests = {"digest": program.digest, "replaced": program.replaced}
    return {
        "version": program.version,
        "wire": program.wire,
        "oldest": program.oldest,
        **{name: digest for name, digest in digests.items() if digest},
    }


def program_from_json(value: Any) -> Program:
    """Parse a JSON object from `program_to_json`; unknown fields are ignored.

    Raises:
        ValueError: A field is missing, has another type, or is out of range; the message names it.
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
    """Decode the data of a status update; None if it has no program.

    Raises:
        ValueError: The program is invalid.
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
        raise ValueError(f"program: {name} is invalid, got {got!r:.80}")
    return got
