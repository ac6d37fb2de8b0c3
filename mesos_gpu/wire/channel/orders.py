"""What a host may be ordered to do at a channel: a command, or a work of ours. Pure.

An order is a JSON object. Its `kind` says what it is; a command has none, as in releases that knew nothing else.
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
    """Write an order as JSON."""
    kind = next(name for name, of in _KINDS.items() if isinstance(order, of))
    said = {} if kind == _COMMAND else {"kind": kind}
    return json.dumps({**said, **asdict(order)}, separators=(",", ":")).encode()


def decode_order(data: bytes) -> AnyOrder:
    """The inverse, on the host.

    Raises:
        ValueError: It is none.
    """
    value = parsed(data)
    kind = value.pop("kind", _COMMAND) if isinstance(value, dict) else _COMMAND
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"an order of kind {kind!r} is not known here")
    order: AnyOrder | None
    order, problems = _READERS[_KINDS[kind]](value)
    if order is None:
        raise ValueError("; ".join(f"{each.path}: {each.reason}" for each in problems))
    return order
