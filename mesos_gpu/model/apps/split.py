"""A service: one name whose requests go to several apps by weight; and what a load balancer is told of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address
from typing import Final

_STEP: Final = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
HOST: Final = re.compile(rf"(?=.{{1,253}}\Z){_STEP}(\.{_STEP})*")  # the name of a host

_ALIAS: Final = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?"
)  # "_" is not allowed in host names, but used


def is_host(text: str) -> bool:
    """Return whether a text is a host name or an IP address without a zone, so that exports may contain it."""
    if _ALIAS.fullmatch(text):
        return True
    try:
        return "%" not in text and ip_address(text).version == 6  # IPv4 addresses match the pattern above
    except ValueError:
        return False


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
    port: int | None  # None if the task is not proved to listen at its port
    weight: int  # 1 to 256, beside the other servers of the service

    @property
    def problem(self) -> str:
        """Reason why the server is left out of exports for load balancers; "" if it is not left out."""
        if not is_host(self.host):
            return (
                f"{self.task_id}: its host {self.host!r:.80} is neither a name nor an address, and left out"
            )
        if self.port is None:
            return f"{self.task_id}: nothing that listens at its port is proved to be the task, and it is left out"
        return ""

    @property
    def place(self) -> str:
        """Host and port of the server in URL syntax, such as "h1:31000" or "[::1]:31000"."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    """A name and password that clients of a service need."""

    realm: str
    user: str
    password: str  # hashed, as crypt(3) has it


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
    path: str = ""  # what paths of its requests begin with; "" for any
    login: Login | None = None
    https_only: bool = False  # a request without TLS is redirected
    left_out: str = ""  # why it is in no export; "" if it is in all
