"""An order to carry connections to ports of a task, as JSON. Pure.

Only the standard library's json: the host side imports it.
"""

from dataclasses import dataclass
from typing import Final

from mesos_gpu.wire.checking import Problem

MAX_PORTS: Final = 32
_LAST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class Forward:
    """Connections to these ports, and to no others, of the task's own addresses."""

    ports: tuple[int, ...]


def forward_of(value: object) -> tuple[Forward | None, list[Problem]]:
    """What a JSON value asks for, or all that is wrong with it."""
    if not isinstance(value, dict):
        return None, [Problem("", "must be an object")]
    problems = [Problem(f"/{name}", "is not known here") for name in sorted(value.keys() - {"ports"})]
    ports = value.get("ports")
    if not isinstance(ports, list) or not 1 <= len(ports) <= MAX_PORTS or not all(map(_is_port, ports)):
        problems.append(
            Problem("/ports", f"must be a list of 1 to {MAX_PORTS} numbers from 1 to {_LAST_PORT}")
        )
    if problems or not isinstance(ports, list):
        return None, problems
    return Forward(tuple(ports)), []


def _is_port(value: object) -> bool:
    return type(value) is int and 1 <= value <= _LAST_PORT
