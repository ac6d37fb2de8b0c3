"""Hosts of a cluster, as a file describes them: nouns."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Final

from mesos_gpu.adapters.ssh.client import Ssh
from mesos_gpu.install.cluster.release import Release
from mesos_gpu.install.mesos_access import roles_of

ZOOKEEPER_PORT: Final = 2181
#: Where a scheduler that is one of several is told where they meet.
HA: Final = "/etc/mesos-gpu/ha"
#: Below it masters meet in ZooKeeper, and below the other one schedulers.
MESOS_PATH, SCHEDULER_PATH = "/mesos", "/mesos-gpu"


class Role(StrEnum):
    """What a host does, in the order in which a cluster comes up."""

    ZOOKEEPER = "zookeeper"
    MASTER = "master"
    SCHEDULER = "scheduler"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Package:
    """Where this package comes from: exactly one of `wheel`, `deb` and `program` is given.

    Attributes:
        wheel: File of `make wheel`.
        requirements: File of what a wheel needs, with hashes; with `wheel` only.
        wheels: Directory of those packages, for hosts that reach no index; None: hosts ask theirs.
        deb: File mesos-gpu_….deb of `make deb`.
        agent_deb: File mesos-gpu-agent_….deb, for agents; with `deb` only. None: what executors are is sent by itself.
        program: Path of `mesos-gpu` on hosts that have it already.
        release: What the wheel or `deb` says of itself; None: a program that is there.
    """

    wheel: Path | None = None
    requirements: Path | None = None
    wheels: Path | None = None
    deb: Path | None = None
    agent_deb: Path | None = None
    program: str = ""
    release: Release | None = None

    @property
    def command(self) -> str:
        """Path of `mesos-gpu` on the hosts."""
        return self.program or "/opt/mesos-gpu/bin/mesos-gpu"

    def contents(self, host: "Host") -> dict[str, Path]:
        """What is sent to a host, by its name there."""
        if self.deb:
            named = {"mesos-gpu.deb": self.deb}
            more = self.agent_deb if Role.AGENT in host.roles else None
            return {**named, **({"mesos-gpu-agent.deb": more} if more else {})}
        if not self.wheel or not self.requirements:
            return {}
        wheels = sorted(self.wheels.glob("*.whl")) if self.wheels else []
        return {
            self.wheel.name: self.wheel,
            "requirements.txt": self.requirements,
            **{f"wheels/{path.name}": path for path in wheels},
        }


@dataclass(frozen=True, slots=True)
class Tls:
    """What a scheduler proves itself with: files of PEM here.

    Attributes:
        cert: Its certificate, and those between it and the root.
        key: Its key, which others cannot read.
    """

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Host:
    """A machine.

    Attributes:
        name: By which people call it.
        address: At which the others of the cluster reach it.
        roles: What it does, in the order of `Role`.
        ssh: How it is reached, by its address if nothing else is said.
        gpus: How many an agent has.
        cgroups: Version of the host's, for an agent: v1 or v2.
        settings: Variables of an agent's executors, MESOS_GPU_….
        flags: Further flags of Mesos' master or agent, by role and name, without dashes.
        options: Further options of `mesos-gpu scheduler`.
        tls: Of a scheduler; None: its options say, or it speaks plain HTTP.
    """

    name: str
    address: IPv4Address
    roles: tuple[Role, ...]
    ssh: Ssh = field(default_factory=Ssh)
    gpus: int = 0
    cgroups: str = "v2"
    settings: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[Role, Mapping[str, str]] = field(default_factory=dict)
    options: str = ""
    tls: Tls | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """All of it.

    Attributes:
        hosts: In the order in which they are done: each after those that it needs.
        package: Where the program comes from.
        role: Mesos role of the scheduler.
        people: Networks from which people reach masters, schedulers and tasks.
        firewall: Whether hosts load the rules that are printed.
        heap_mib: Memory of a server of ZooKeeper.
        ca: File of PEM: the authority of schedulers' certificates; None: hosts know it.
    """

    hosts: tuple[Host, ...]
    package: Package
    role: str = "*"
    people: tuple[IPv4Network, ...] = ()
    firewall: bool = False
    heap_mib: int = 512
    ca: Path | None = None

    @property
    def mesos_roles(self) -> tuple[str, ...]:
        """Roles of the scheduler: its own, and those of queues that its options name."""
        words = (shlex.split(host.options) for host in self.of(Role.SCHEDULER))
        every = (role for each in words for role in roles_of(each, self.role))
        return tuple(dict.fromkeys([self.role, *every]))

    def of(self, *roles: Role) -> Iterator[Host]:
        """Hosts that have one of these roles."""
        return (host for host in self.hosts if set(roles) & set(host.roles))

    @property
    def zookeeper(self) -> str:
        """Servers of ZooKeeper as HOST:PORT,…; "": there is none."""
        return ",".join(f"{host.address}:{ZOOKEEPER_PORT}" for host in self.of(Role.ZOOKEEPER))

    @property
    def master(self) -> str:
        """What agents and schedulers ask for the master that leads."""
        if servers := self.zookeeper:
            return f"zk://{servers}{MESOS_PATH}"
        (only,) = self.of(Role.MASTER)
        return f"{only.address}:5050"
