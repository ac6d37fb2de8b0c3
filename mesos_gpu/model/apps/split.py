"""Services: names whose requests are divided among apps by weight, and their configuration for load balancers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address
from typing import Final

_STEP: Final = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
HOST: Final = re.compile(rf"(?=.{{1,253}}\Z){_STEP}(\.{_STEP})*")  # a host name

#: Name of a server; "_" is not allowed in host names, but is used in practice.
_ALIAS: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")


def is_host(text: str) -> bool:
    """Return whether a text is a host name or an IP address without a zone, so that exports may contain it."""
    if _ALIAS.fullmatch(text):
        return True
    try:
        return "%" not in text and ip_address(text).version == 6  # IPv4 addresses match the pattern above
    except ValueError:
        return False


class Mode(Enum):
    """Protocol as a load balancer sees it."""

    HTTP = "http"
    TCP = "tcp"


@dataclass(frozen=True, slots=True)
class TrafficSplit:
    """A service: a named set of apps with weights, as configured. Labels of its apps fill open fields, first app
    first."""

    name: str
    weights: Mapping[str, int]  # by app id; at least one is above 0
    port_index: int = 0  # index of the serving port of the apps' tasks
    port: int | None = None  # port of the load balancer; None to use labels, or none
    hosts: tuple[str, ...] = ()  # names of virtual hosts; empty to use labels
    mode: Mode | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """A task that serves."""

    task_id: str
    app_id: str
    host: str  # address or host name
    port: int | None  # None if the task is not proved to listen at its port
    weight: int  # 1 to 256, relative to the other servers of the service

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
    """A name and password that clients of a service must send."""

    realm: str
    user: str
    password: str  # hash in the format of crypt(3)


@dataclass(frozen=True, slots=True)
class Backend:
    """Configuration of a service for load balancers, at one time."""

    name: str
    mode: Mode = Mode.HTTP
    port: int | None = None
    hosts: tuple[str, ...] = ()
    balance: str = "roundrobin"
    sticky: bool = False
    servers: tuple[Server, ...] = ()
    # By app id, only of apps with servers: weight of the app.
    shares: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()  # requested settings that have no effect, as text for people
    path: str = ""  # path prefix of its requests; "" for any
    login: Login | None = None
    https_only: bool = False  # whether requests without TLS are redirected
    left_out: str = ""  # reason why exports leave it out; "" if they include it
