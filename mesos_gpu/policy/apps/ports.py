"""Choice of host ports for an instance of an app. Pure.

The rules are those of Marathon 1.11 (PortsMatcher.scala): ports that are requested by number must be offered; the
others are taken in sequence from the agent's ranges, the longest first, from a start that differs from launch to
launch, so that load balancers have time before a port serves another app.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from mesos_gpu.model.apps.app import App, EngineType, NetworkMode, PortDefinition, PortMapping
from mesos_gpu.model.jobs.port import PortBinding, PortWish
from mesos_gpu.model.nodes.offer import PortRange, count_ports

#: Marathon's name of the network of container/bridge without the Docker Engine.
MESOS_BRIDGE: Final = "mesos-bridge"
_NONE_FREED: Final[Mapping[int, float]] = {}


@dataclass(frozen=True, slots=True)
class Chosen:
    """Host ports that an instance gets.

    Attributes:
        numbers: Host port of each port of the app, in order; None for a port without one.
        taken: Each chosen host port once, in ascending order, with the kind of its resource.
    """

    numbers: tuple[int | None, ...]
    taken: tuple[PortRange, ...]


def networks_as_host(app: App) -> tuple[str, ...]:
    """Return the names of an app's networks that are not joined: its tasks use the host's network instead."""
    container = app.container
    has_bridge = (
        container is not None and container.type is EngineType.DOCKER and container.docker is not None
    )
    return tuple(
        network.name or MESOS_BRIDGE
        for network in app.networks
        if network.mode is NetworkMode.CONTAINER or (network.mode is NetworkMode.BRIDGE and not has_bridge)
    )


def wishes_of(app: App) -> tuple[PortWish, ...]:
    """Return the ports that an app requests: its mappings, or without any its definitions.

    A definition of port 0 requests any port even with `require_ports`, as it has no service port yet. Where the host's
    network replaces a container's, a mapping without a host port requests the container's port, on which the task
    listens.
    """
    mappings = app.container.port_mappings if app.container else None
    if mappings and networks_as_host(app):
        return tuple(
            PortWish(
                port.name,
                port.container_port,
                port.host_port or port.container_port,
                _protocols(port),
                _sorted({**port.labels, "network-scope": "host"}),
            )
            for port in mappings
        )
    if mappings:
        return tuple(
            PortWish(port.name, port.container_port, port.host_port, _protocols(port), _scoped(port))
            for port in mappings
        )
    return tuple(
        PortWish(
            port.name,
            port.port,
            port.port if app.require_ports else 0,
            _protocols(port),
            _sorted(port.labels),
        )
        for port in app.port_definitions or ()
    )


def _protocols(port: PortDefinition | PortMapping) -> tuple[str, ...]:
    return tuple(port.protocol.value.split(","))


def _scoped(port: PortMapping) -> tuple[tuple[str, str], ...]:
    """Return the port's labels with its network scope, container or host (as PortDiscovery.scala in Marathon)."""
    scope = "container" if port.host_port is None else "host"
    return _sorted({**port.labels, "network-scope": scope})


def _sorted(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def bindings_of(wishes: Sequence[PortWish], ports: Sequence[int]) -> tuple[PortBinding, ...]:
    """Return which host ports lead to which ports of a container on a bridge.

    Each wish must have a host port; a wish that names no port of the container gets the host's number there.
    """
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
    """Choose host ports; return None if the agent lacks them. Equal arguments give equal ports.

    Args:
        wishes: Requested ports of an app.
        offered: Port ranges of one agent, which do not overlap.
        seed: Text that differs from launch to launch, such as a task id.
        freed: Ports that the kernel may still hold, with the time at which each was given back; they are chosen last,
            the one that was given back first before others.
    """
    fixed = {wish.host_port for wish in wishes if wish.host_port}
    if any(_range_of(port, offered) is None for port in fixed):
        return None
    all_ports = _all_from(offered, seed)
    ordered = sorted(all_ports, key=lambda port: freed.get(port, -inf)) if freed else all_ports
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
    """Return whether `choose` would find ports. Cheap, as each match tests a thousand agents."""
    fixed = {wish.host_port for wish in wishes if wish.host_port}
    if any(_range_of(port, offered) is None for port in fixed):
        return False
    return count_ports(offered) - len(fixed) >= sum(wish.host_port == 0 for wish in wishes)


def offers(offered: Iterable[PortRange], port: int) -> bool:
    """Return whether a port is in one of the offered ranges."""
    return _range_of(port, offered) is not None


def _range_of(port: int, offered: Iterable[PortRange]) -> PortRange | None:
    """Return the offered range that contains a port; None without one."""
    return next((candidate for candidate in offered if candidate.begin <= port <= candidate.end), None)


def _all_from(offered: Sequence[PortRange], seed: str) -> Iterator[int]:
    """Yield all offered ports, those of the longest range first, from a start in it that depends on the seed.

    Short ranges come last: they are mostly meant for requests by number.
    """
    if not offered:
        return
    longest = max(offered, key=lambda candidate: candidate.end - candidate.begin)
    count = longest.end - longest.begin + 1
    middle = longest.begin + int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") % count
    yield from range(middle, longest.end + 1)
    yield from range(longest.begin, middle)
    for candidate in offered:
        if candidate is not longest:
            yield from range(candidate.begin, candidate.end + 1)


def without(taken: Sequence[PortRange], offered: Iterable[PortRange]) -> tuple[PortRange, ...]:
    """Return the offered ranges without ports that are taken; `taken` are single ports in them, in ascending order."""
    left: list[PortRange] = []
    for range_ in offered:
        begin = range_.begin
        for port in (single.begin for single in taken):
            if begin <= port <= range_.end:
                if port > begin:
                    left.append(PortRange(begin, port - 1, range_.kind))
                begin = port + 1
        if begin <= range_.end:
            left.append(PortRange(begin, range_.end, range_.kind))
    return tuple(left)
