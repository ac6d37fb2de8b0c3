"""A port that a task asks for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PortWish:
    """One port of an app, be it a definition or a mapping."""

    name: str | None
    number: int  # of the container, or the definition's; 0: none is named
    host_port: int | None  # 0: any; None: the host has none for it
