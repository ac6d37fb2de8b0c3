"""Ports that a task requests, and ports that it has."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PortWish:
    """A requested port of an app, from a port definition or a port mapping."""

    name: str | None
    number: int  # port of the container or of the definition; 0 if none is given
    host_port: int | None  # 0 for any; None if no port of the host leads to it
    protocols: tuple[str, ...] = ("tcp",)  # "tcp", "udp"
    labels: tuple[tuple[str, str], ...] = ()  # labels for service discovery in Mesos


@dataclass(frozen=True, slots=True)
class PortBinding:
    """A port of the host that is forwarded to a port of a container."""

    container_port: int
    host_port: int
    protocol: str  # "tcp" or "udp"
