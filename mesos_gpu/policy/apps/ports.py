"""Which ports of its host an instance of an app gets. Pure.

The rules are those of Marathon 1.11 (PortsMatcher.scala): ports that are asked for by number must be offered; the
others are neighbours in the agent's ranges, the longest first, from a place that differs from launch to launch, so that
load balancers have time before a port serves another app.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from mesos_gpu.model.apps.app import App, EngineType, NetworkMode, PortDefinition, PortMapping
from mesos_gpu.model.jobs.port import PortBinding, PortWish
from mesos_gpu.model.nodes.offer import PortRange, count_ports

MESOS_BRIDGE: Final = (
    "mesos-bridge"  # Marathon's name of the network of container/bridge without the Docker Engine
)
_NONE_FREED: Final[Mapping[int, float]] = {}


@dataclass(frozen=True, slots=True)
class Chosen:
    """What an instance gets.

    Attributes:
        numbers: Of each port of the app, in its order, the host's; None: it has none.
        taken: Each of them once, in order, with the kind of resource that it is.
    """

    numbers: tuple[int | None, ...]
    taken: tuple[PortRange, ...]


def networks_as_host(app: App) -> tuple[str, ...]:
    """Return the names of an app's networks that are not joined: its tasks are in the host's network instead."""
    container = app.container
    has_bridge = (
        container is not None and container.type is EngineType.DOCKER and container.docker is not None
    )
    return tuple(
        each.name or MESOS_BRIDGE
        for each in app.networks
        if each.mode is NetworkMode.CONTAINER or (each.mode is NetworkMode.BRIDGE and not has_bridge)
    )


def wishes_of(app: App) -> tuple[PortWish, ...]:
    """The ports that an app asks for: its mappings, or without any its definitions.

    A definition of port 0 is of any port even with `require_ports`: it was given no service port yet. Where the host's
    network takes the place of a container's, a mapping without a host port is of the container's port, at which the
    task listens.
    """
    mappings = app.container.port_mappings if app.container else None
    if mappings and networks_as_host(app):
        return tuple(
            PortWish(
                each.name,
                each.container_port,
                each.host_port or each.container_port,
                _protocols(each),
                _sorted({**each.labels, "network-scope": "host"}),
            )
            for each in mappings
        )
    if mappings:
        return tuple(
            PortWish(each.name, each.container_port, each.host_port, _protocols(each), _scoped(each))
            for each in mappings
        )
    return tuple(
        PortWish(
            each.name,
            each.port,
            each.port if app.require_ports else 0,
            _protocols(each),
            _sorted(each.labels),
        )
        for each in app.port_definitions or ()
    )


def _protocols(port: PortDefinition | PortMapping) -> tuple[str, ...]:
    return tuple(port.protocol.value.split(","))


def _scoped(port: PortMapping) -> tuple[tuple[str, str], ...]:
    """The port's labels, with whose port is announced (PortDiscovery.scala)."""
    scope = "container" if port.host_port is None else "host"
    return _sorted({**port.labels, "network-scope": scope})


def _sorted(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def bindings_of(wishes: Sequence[PortWish], ports: Sequence[int]) -> tuple[PortBinding, ...]:
    """Which ports of its host lead to which of a container on a bridge; all wishes have one there. A wish that names
    no port of the container gets there the host's number."""
    return tuple(
        PortBinding(wish.number or port, port, protocol)
        for wish, port in zip(wishes, ports, strict=True)
        for protocol in wish.protocols
    )


def choose(
    wishes: Sequence[PortWish],
    offered: Sequence[PortRange],
    seed: str,
    freed: Mapping[int, float] = _NONE_FREED,
) -> Chosen | None:
    """Choose host ports; None: the agent lacks them. The same arguments give the same ports.

    Args:
        wishes: All of an app.
        offered: Of one agent; no two ranges overlap.
        seed: Text that differs from launch to launch, such as a task id.
        freed: Ports that the kernel may still hold, with the time at which each was given back; they are chosen
            last, the one that was given back first before others.
    """
    fixed = {wish.host_port for wish in wishes if wish.host_port}
    if any(_range_of(port, offered) is None for port in fixed):
        return None
    every = _all_from(offered, seed)
    ordered = sorted(every, key=lambda port: freed.get(port, -inf)) if freed else every
    free = (port for port in ordered if port not in fixed)
    numbers: list[int | None] = []
    for wish in wishes:
        port = next(free, None) if wish.host_port == 0 else wish.host_port
        if port is None and wish.host_port is not None:
            return None
        numbers.append(port)
    used = sorted({port for port in numbers if port is not None})
    taken = [PortRange(port, port, within.kind) for port in used if (within := _range_of(port, offered))]
    return Chosen(tuple(numbers), tuple(taken))


def enough(wishes: Sequence[PortWish], offered: Sequence[PortRange]) -> bool:
    """Whether `choose` finds ports: a thousand agents are asked at a match."""
    fixed = {wish.host_port for wish in wishes if wish.host_port}
    if any(_range_of(port, offered) is None for port in fixed):
        return False
    return count_ports(offered) - len(fixed) >= sum(wish.host_port == 0 for wish in wishes)


def offers(offered: Iterable[PortRange], port: int) -> bool:
    """Whether a port is among them."""
    return _range_of(port, offered) is not None


def _range_of(port: int, offered: Iterable[PortRange]) -> PortRange | None:
    return next((each for each in offered if each.begin <= port <= each.end), None)


def _all_from(offered: Sequence[PortRange], seed: str) -> Iterator[int]:
    """All ports: those of the longest range first, from somewhere in it round to there, then those of the others. Short
    ranges are rather meant for who asks for a port by its number."""
    if not offered:
        return
    longest = max(offered, key=lambda each: each.end - each.begin)
    count = longest.end - longest.begin + 1
    middle = longest.begin + int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") % count
    yield from range(middle, longest.end + 1)
    yield from range(longest.begin, middle)
    for each in offered:
        if each is not longest:
            yield from range(each.begin, each.end + 1)


def without(taken: Sequence[PortRange], offered: Iterable[PortRange]) -> tuple[PortRange, ...]:
    """What is left of the offered ranges; `taken` are single ports of theirs, in order."""
    left: list[PortRange] = []
    for each in offered:
        begin = each.begin
        for port in (one.begin for one in taken):
            if begin <= port <= each.end:
                if port > begin:
                    left.append(PortRange(begin, port - 1, each.kind))
                begin = port + 1
        if begin <= each.end:
            left.append(PortRange(begin, each.end, each.kind))
    return tuple(left)
