"""Description of a cluster's hosts and package, as its file gives them."""

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
#: File with the ZooKeeper URL (and password) through which several schedulers elect a leader.
HA: Final = "/etc/mesos-gpu/ha"
#: ZooKeeper paths of the masters and of the schedulers.
MESOS_PATH, SCHEDULER_PATH = "/mesos", "/mesos-gpu"


class Role(StrEnum):
    """Role of a host, in the order in which a cluster is started."""

    ZOOKEEPER = "zookeeper"
    MASTER = "master"
    SCHEDULER = "scheduler"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Package:
    """Source of the program that is installed: exactly one of `wheel`, `deb` and `program` is given.

    Attributes:
        wheel: Wheel built by `make wheel`.
        requirements: Lock file with hashes of the wheel's dependencies; only with `wheel`.
        wheels: Directory of these dependencies, for hosts without a package index; None if hosts use their index.
        deb: Debian package mesos-gpu_….deb built by `make deb`.
        agent_deb: Debian package mesos-gpu-agent_….deb for agents; only with `deb`. None if the executor archive
            is sent by itself.
        program: Path of an installed `mesos-gpu` on the hosts.
        release: Release of the wheel or `deb`; None with `program`.
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
        """Return the files to send to a host, by their names on the host."""
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
    """TLS certificate of a scheduler, as PEM files on this machine.

    Attributes:
        cert: Certificate of the scheduler, followed by its intermediate certificates.
        key: Private key, readable by its owner only.
    """

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Host:
    """A machine of the cluster.

    Attributes:
        name: Name in the file and in messages.
        address: Address at which the other hosts reach it.
        roles: Roles of the host, in the order of `Role`.
        ssh: SSH settings; the target is `address` if no host is given there.
        gpus: GPUs of an agent.
        cgroups: Cgroup version of an agent's host: v1 or v2.
        settings: Environment variables of an agent's executors (MESOS_GPU_…).
        flags: Additional flags of the Mesos master or agent, by role and name, without dashes.
        options: Additional options of `mesos-gpu scheduler`.
        tls: TLS certificate of a scheduler; None if `options` name one or the scheduler speaks plain HTTP.
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
    """All hosts of a cluster and the settings that they share.

    Attributes:
        hosts: Hosts in the order in which they are installed: each after the hosts that it needs.
        package: Source of the program.
        role: Mesos role of the scheduler.
        people: Networks from which users reach masters, schedulers and tasks.
        firewall: Whether hosts load the firewall rules that the plan prints.
        heap_mib: Java heap of a ZooKeeper server in MiB.
        ca: PEM file of the authority that signed the schedulers' certificates; None if hosts trust it already.
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
        """Mesos roles of the scheduler: its own, and those that its options assign to queues."""
        words = (shlex.split(host.options) for host in self.of(Role.SCHEDULER))
        roles = (role for words in words for role in roles_of(words, self.role))
        return tuple(dict.fromkeys([self.role, *roles]))

    def of(self, *roles: Role) -> Iterator[Host]:
        """Return the hosts that have at least one of these roles."""
        return (host for host in self.hosts if set(roles) & set(host.roles))

    @property
    def zookeeper(self) -> str:
        """Servers of ZooKeeper as HOST:PORT,…; "" if no host has the role zookeeper."""
        return ",".join(f"{host.address}:{ZOOKEEPER_PORT}" for host in self.of(Role.ZOOKEEPER))

    @property
    def master(self) -> str:
        """Address through which agents and schedulers find the leading master: a zk:// URL, or IP:PORT."""
        if servers := self.zookeeper:
            return f"zk://{servers}{MESOS_PATH}"
        (only,) = self.of(Role.MASTER)
        return f"{only.address}:5050"
