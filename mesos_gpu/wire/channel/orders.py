"""Encoding of orders that a host executes at a channel: commands, file transfers, port forwarding; pure functions.

An order is a JSON object with a field `kind`; commands have none, as in releases that had no other kind.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final, TypeAlias

from mesos_gpu.wire.body import parsed
from mesos_gpu.wire.channel.file import FileOrder, file_order_of
from mesos_gpu.wire.channel.forward import Forward, forward_of
from mesos_gpu.wire.channel.order import Order, order_of
from mesos_gpu.wire.checking import Problem

AnyOrder: TypeAlias = Order | FileOrder | Forward
_COMMAND: Final = "command"
_KINDS: Final[Mapping[str, type]] = {_COMMAND: Order, "file": FileOrder, "forward": Forward}
_READERS: Final[Mapping[type, Callable[[object], tuple[Any, list[Problem]]]]] = {
    Order: order_of,
    FileOrder: file_order_of,
    Forward: forward_of,
}


def encode_order(order: AnyOrder) -> bytes:
    """Encode an order as JSON."""
    kind = next(name for name, of in _KINDS.items() if isinstance(order, of))
    kind_field = {} if kind == _COMMAND else {"kind": kind}
    return json.dumps({**kind_field, **asdict(order)}, separators=(",", ":")).encode()


def decode_order(data: bytes) -> AnyOrder:
    """Decode an order, on the host.

    Raises:
        ValueError: The data is not a valid order.
    """
    value = parsed(data)
    kind = value.pop("kind", _COMMAND) if isinstance(value, dict) else _COMMAND
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"unknown kind of order, {kind!r}")
    order: AnyOrder | None
    order, problems = _READERS[_KINDS[kind]](value)
    if order is None:
        raise ValueError("; ".join(f"{problem.path}: {problem.reason}" for problem in problems))
    return order
