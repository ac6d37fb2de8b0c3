"""JSON of orders to forward connections to ports of a task; pure functions.

The host side imports this module, so it uses only the standard library's json.
"""

from dataclasses import dataclass
from typing import Final

from mesos_gpu.wire.checking import Problem

MAX_PORTS: Final = 32
_LAST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class Forward:
    """An order to forward connections to these ports of the task's own addresses, and to no others."""

    ports: tuple[int, ...]


def forward_of(value: object) -> tuple[Forward | None, list[Problem]]:
    """Parse an order; return it and no problems, or None and all problems."""
    if not isinstance(value, dict):
        return None, [Problem("", "must be an object")]
    problems = [Problem(f"/{name}", "unknown field") for name in sorted(value.keys() - {"ports"})]
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
