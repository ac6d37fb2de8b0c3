"""A port that a task asks for, and one that it has."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PortWish:
    """A port of an app, be it a definition or a mapping."""

    name: str | None
    number: int  # of the container, or the definition's; 0: none is named
    host_port: int | None  # 0: any; None: the host has none for it
    protocols: tuple[str, ...] = ("tcp",)  # "tcp", "udp"
    labels: tuple[tuple[str, str], ...] = ()  # for those who look services up in Mesos


@dataclass(frozen=True, slots=True)
class PortBinding:
    """A port of the host that leads to one of a container."""

    container_port: int
    host_port: int
    protocol: str  # "tcp" or "udp"
