"""Ports that the Mesos agents of a host give to tasks, and the ports that one task may bind.

The executor imports this module, so it imports few others.
"""

import _socket
import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from isolator.host.control_ports import is_off
from mesos_gpu.errors import BadConfiguration, Unavailable

SETTING: Final = "MESOS_GPU_TASK_PORTS"
#: First and last port of a range.
Range = tuple[int, int]
#: Field numbers of mesos.proto (1.11): SlaveInfo.resources; Resource.name and ranges; Value.Ranges.range;
#: Value.Range.begin and end.
_RESOURCES, _NAME, _RANGES, _RANGE, _BEGIN, _END = 3, 1, 4, 1, 1, 2
_SIZE_BYTES: Final = 4  # length prefix of the message in a checkpoint (stout/protobuf.hpp)


@dataclass(frozen=True, slots=True)
class PortGrant:
    """The ports that a task may bind: every port that is not reserved, and the reserved ports granted to the task.

    Attributes:
        reserved: Ports that agents of this host give to tasks.
        granted: Ports that Mesos gave to this task.
    """

    reserved: tuple[Range, ...] = ()
    granted: tuple[Range, ...] = ()

    def allows(self, port: int) -> bool:
        """Return whether the task may bind a port."""
        return _holds(self.granted, port) or not _holds(self.reserved, port)

    def denied_port(self) -> int | None:
        """Return the lowest port that the task must not bind; None if the task may bind all ports."""
        return next((port for port in each_of(self.reserved) if not _holds(self.granted, port)), None)


EVERY_PORT: Final = PortGrant()


def _holds(ranges: Iterable[Range], port: int) -> bool:
    return any(first <= port <= last for first, last in ranges)


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the ranges sorted, with overlapping and adjacent ranges joined."""
    result: list[Range] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return tuple(result)


def common(one: Iterable[Range], other: Iterable[Range]) -> tuple[Range, ...]:
    """Return the intersection of two lists of ranges."""
    others = tuple(other)
    return merged((max(a, c), min(b, d)) for a, b in one for c, d in others if max(a, c) <= min(b, d))


def without(ranges: Iterable[Range], removed: Iterable[Range]) -> tuple[Range, ...]:
    """Return the ports of `ranges` that are not in `removed`."""
    left = merged(ranges)
    for first, last in removed:
        cut = (((a, min(b, first - 1)), (max(a, last + 1), b)) for a, b in left)
        left = tuple(part for parts in cut for part in parts if part[0] <= part[1])
    return left


def each_of(ranges: Iterable[Range]) -> Iterator[int]:
    """Yield the ports of ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)


def unbindable(ports: Iterable[int]) -> list[int]:
    """Return the ports at which a TCP or UDP socket of this process cannot be bound, as another one is there.

    No option of the probing sockets lets them share a port.
    """
    kinds = tuple(product((_socket.AF_INET, _socket.AF_INET6), (_socket.SOCK_STREAM, _socket.SOCK_DGRAM)))
    return [port for port in ports if not all(_can_bind(port, *kind) for kind in kinds)]


def _can_bind(port: int, family: int, kind: int) -> bool:
    """Return whether a socket can be bound to a port at all addresses; a refusal for another reason counts as yes."""
    try:
        with closing(_socket.socket(family, kind)) as probe:
            if family == _socket.AF_INET6:
                probe.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 1)
            probe.bind(("", port))
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    return True


def text_of(ranges: Iterable[Range]) -> str:
    """Format ranges as in MESOS_GPU_TASK_PORTS, such as `9000-9019,31000-32000`."""
    return ",".join(f"{first}-{last}" if first != last else str(first) for first, last in ranges)


def parse(text: str) -> tuple[Range, ...]:
    """Parse ranges: PORT or FIRST-LAST, separated by commas or spaces.

    Raises:
        ValueError: A word is not a port or a range of ports.
    """
    return merged(_range(word) for word in text.replace(",", " ").split())


def _range(word: str) -> Range:
    first, dash, last = word.partition("-")
    for bound in (first, last if dash else first):
        if not (bound.isascii() and bound.isdigit() and 0 < int(bound) < 1 << 16):
            raise ValueError(f"{bound!r} is not a port")
    if dash and int(last) < int(first):
        raise ValueError(f"{word!r} ends before it begins")
    return int(first), int(last if dash else first)


def listed(env: Mapping[str, str]) -> tuple[Range, ...]:
    """Return the reserved ports that MESOS_GPU_TASK_PORTS adds to those of the agent's resources.

    Raises:
        BadConfiguration: The setting is not a list of ranges.
    """
    try:
        return parse(env.get(SETTING, ""))
    except ValueError as error:
        raise BadConfiguration(
            f"{SETTING} is {env[SETTING]!r}: {error}",
            remedy="list PORT or FIRST-LAST, separated by commas: 9000-9019,31000-32000",
        ) from error


def of_task(task: Mapping[str, Any]) -> tuple[Range, ...]:
    """Return the ports among the resources of a TaskInfo."""
    return merged(
        (int(bounds["begin"]), int(bounds["end"]))
        for resource in task.get("resources", ())
        if resource["name"] == "ports"
        for bounds in resource.get("ranges", {}).get("range", ())
    )


def of_agent(work_dir: str, agent: str = "latest") -> tuple[Range, ...]:
    """Return the ports of an agent's resources, from the SlaveInfo that the agent checkpoints when it registers.

    Args:
        work_dir: The agent's work directory (--work_dir).
        agent: Agent id; "latest" for the agent's current checkpoint.

    Raises:
        OSError: The checkpoint cannot be read.
        ValueError: The file is not a checkpoint of a SlaveInfo.
    """
    path = f"{work_dir}/meta/slaves/{agent}/slave.info"
    with open(path, "rb") as file:
        data = file.read()
    message = data[_SIZE_BYTES:]
    if len(data) < _SIZE_BYTES or int.from_bytes(data[:_SIZE_BYTES], "little") != len(message):
        raise ValueError(f"{path} is not a checkpoint of a SlaveInfo")
    resources = (_decode(value) for number, value in _fields(message) if number == _RESOURCES)
    ranges = [
        each
        for resource in resources
        if resource.get(_NAME) == [b"ports"]
        for values in resource.get(_RANGES, ())
        for each in _decode(values).get(_RANGE, ())
    ]
    bounds = [_decode(each) for each in ranges]
    return merged((each[_BEGIN][0], each[_END][0]) for each in bounds)  # type: ignore[misc]


def _decode(message: "int | bytes") -> "dict[int, list[int | bytes]]":
    if isinstance(message, int):
        raise ValueError("a number in the place of a message")
    decoded: dict[int, list[int | bytes]] = {}
    for number, value in _fields(message):
        decoded.setdefault(number, []).append(value)
    return decoded


def _fields(message: bytes) -> "Iterator[tuple[int, int | bytes]]":
    """Yield number and value of each field (protobuf.dev/programming-guides/encoding)."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value: int | bytes
        if key & 7 == 0:
            value, at = _varint(message, at)
        else:
            size, at = _varint(message, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = message[at : at + size], at + size
        yield key >> 3, value
    if at != len(message):
        raise ValueError("the message ends within a field")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message):
            raise ValueError("the message ends within a number")
        value |= (message[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if message[at - 1] < 0x80:
            return value, at


def grant_of(env: Mapping[str, str], sandbox: str, task: Mapping[str, Any]) -> PortGrant:
    """Return the ports that a task may bind; every port if the operator has set off the rules for ports.

    Args:
        env: The executor's environment.
        sandbox: Sandbox directory of the executor, below the agent's work directory.
        task: TaskInfo of the task, as a mapping.

    Raises:
        BadConfiguration: MESOS_GPU_TASK_PORTS is not a list of ranges.
        Unavailable: Neither MESOS_GPU_TASK_PORTS nor the agent's checkpoint gives the agent's ports.
    """
    if is_off(env):
        return EVERY_PORT
    more = listed(env)
    work_dir, below, rest = os.path.realpath(sandbox).partition("/slaves/")
    try:
        if not below:
            raise FileNotFoundError(2, f"{sandbox} is not below the work_dir of an agent")
        own = of_agent(work_dir, rest.partition("/")[0])
    except (OSError, ValueError, KeyError) as error:
        if not more:
            raise Unavailable(
                f"tasks cannot be kept from ports of other tasks: the agent's range of ports is unknown: {error}",
                remedy=f"set {SETTING} on the agent to the ports of its --resources, such as 31000-32000",
            ) from error
        own = ()
    return PortGrant(merged((*own, *more)), of_task(task))


def ephemeral(port_range: str, reserved: str) -> tuple[Range, ...]:
    """Return the ports that the kernel may choose for a socket that is bound to port 0 or connects unbound.

    Args:
        port_range: Content of /proc/sys/net/ipv4/ip_local_port_range.
        reserved: Content of /proc/sys/net/ipv4/ip_local_reserved_ports.
    """
    words = port_range.split()
    return without([(int(words[0]), int(words[1]))] if words else [], parse(reserved))
