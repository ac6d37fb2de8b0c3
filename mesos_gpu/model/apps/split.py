"""A service: one name whose requests go to several apps by weight; and what a load balancer is told of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

_STEP: Final = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
HOST: Final = re.compile(rf"(?=.{{1,253}}\Z){_STEP}(\.{_STEP})*")  # the name of a host


class Mode(Enum):
    """What a load balancer understands of what passes through."""

    HTTP = "http"
    TCP = "tcp"


@dataclass(frozen=True, slots=True)
class TrafficSplit:
    """A service: a named set of apps with weights, as it is kept. What it leaves open the labels of its apps say, those
    of the first app first."""

    name: str
    weights: Mapping[str, int]  # by app id; one at least is above 0
    port_index: int = 0  # which port of the apps' tasks serves
    port: int | None = None  # where the load balancer listens; None: as labels say, or nowhere
    hosts: tuple[str, ...] = ()  # names of virtual hosts; empty: as labels say
    mode: Mode | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """A task that serves."""

    task_id: str
    app_id: str
    host: str  # an address, or a name
    port: int
    weight: int  # 1 to 256, beside the other servers of the service


@dataclass(frozen=True, slots=True)
class Backend:
    """A service as a load balancer shall serve it now."""

    name: str
    mode: Mode = Mode.HTTP
    port: int | None = None
    hosts: tuple[str, ...] = ()
    balance: str = "roundrobin"
    sticky: bool = False
    servers: tuple[Server, ...] = ()
    shares: Mapping[str, int] = field(default_factory=dict)  # by app, of those that have servers: its weight
    problems: tuple[str, ...] = ()  # what was asked for and is not done, for people
