"""What the last apply left on hosts: kept beside the secrets, so that what leaves the file can be taken away."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

import msgspec

from mesos_gpu.adapters.files import private
from mesos_gpu.adapters.ssh.client import Ssh
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.install.cluster.description import HA, Cluster, Host, Role

NAME: Final = "applied.json"
_VERSION: Final = 1
_MAX_BYTES: Final = 64 << 20
#: Where files of ours are; nothing else is ever removed from a host.
_OURS: Final = re.compile(
    r"(/etc/mesos-gpu/|/usr/lib/mesos-gpu/|/var/lib/mesos-gpu-zookeeper/|/etc/logrotate\.d/mesos-gpu-"
    r"|/usr/lib/(tmpfiles|sysusers)\.d/mesos-gpu-|/(etc|usr/lib)/systemd/system/mesos-gpu-)[\w./-]+"
)
_UNIT: Final = re.compile(r"mesos-gpu-[a-z]+\.service")


@dataclass(frozen=True, slots=True)
class Remembered:
    """A host as it was applied.

    Attributes:
        host: Its name, address, roles, and how it is reached.
        files: Paths of the files that it was given.
        units: Services that it was given.
        program: How the program came there, "deb" or "wheel"; "": it was there, or it has none.
        number: Of its server of ZooKeeper; 0: it has none.
    """

    host: Host
    files: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    program: str = ""
    number: int = 0

    def and_also(self, other: "Remembered") -> "Remembered":
        """The other description of the host, with what this one was given, too."""
        roles = tuple(role for role in Role if role in {*self.host.roles, *other.host.roles})
        host = Host(other.host.name, other.host.address, roles, other.host.ssh)
        return Remembered(
            host,
            tuple(dict.fromkeys((*self.files, *other.files))),
            tuple(dict.fromkeys((*self.units, *other.units))),
            other.program or self.program,
            other.number or self.number,
        )


@dataclass(frozen=True)
class _Entry:
    """A host in the file of the record."""

    address: str
    roles: list[Role]
    files: list[str]
    units: list[str]
    host: str
    user: str = "root"
    port: int = 22
    identity: str = ""
    known_hosts: str = ""
    options: dict[str, str] = field(default_factory=dict)
    program: str = ""
    number: int = 0


@dataclass(frozen=True)
class _Document:
    version: int
    hosts: dict[str, _Entry]


class Record:
    """All hosts that were applied, by name. It is written as a whole after each change."""

    def __init__(self, file: Path, hosts: Mapping[str, Remembered]) -> None:
        """`file`: where it is kept, its owner's alone."""
        self._file = file
        self.hosts = dict(hosts)

    def with_role(self, role: Role) -> list[str]:
        """Names of the hosts that had a role."""
        return [name for name, each in self.hosts.items() if role in each.host.roles]

    def schedulers_meet(self, cluster: Cluster) -> bool:
        """Whether there are several schedulers, or one that stays was one of several: its state goes with a log in
        ZooKeeper, by which it knows whether it is the newest."""
        if len(list(cluster.of(Role.SCHEDULER))) > 1:
            return True
        had = (self.hosts.get(host.name) for host in cluster.of(Role.SCHEDULER))
        return bool(cluster.zookeeper) and any(each is not None and HA in each.files for each in had)

    def numbers(self, servers: Iterable[Host]) -> dict[str, int]:
        """A number for each server of ZooKeeper by the name of its host: the one that it had, or the lowest that is
        free, in the order of names."""
        names = sorted(host.name for host in servers)
        made = {name: n for name in names if (n := self.hosts[name].number if name in self.hosts else 0)}
        free = iter(sorted({*range(1, len(names) + len(made) + 1)} - {*made.values()}))
        return {name: made.get(name) or next(free) for name in names}

    def add(self, each: Remembered) -> None:
        """Remember what a host is about to be given, beside what it has."""
        before = self.hosts.get(each.host.name)
        self._put(each.host.name, before.and_also(each) if before else each)

    def settle(self, each: Remembered) -> None:
        """Remember that a host has this, and nothing else any more."""
        self._put(each.host.name, each)

    def forget(self, name: str) -> None:
        """Remember nothing of a host."""
        if self.hosts.pop(name, None) is not None:
            self._write()

    def _put(self, name: str, each: Remembered) -> None:
        if self.hosts.get(name) != each:
            self.hosts[name] = each
            self._write()

    def _write(self) -> None:
        entries = {name: _entry(each) for name, each in self.hosts.items()}
        text = json.dumps({"version": _VERSION, "hosts": entries}, indent=1) + "\n"
        private.write(self._file, text.encode())


def read(directory: Path) -> Record:
    """What was applied with the secrets of a directory; nothing, if there is no record.

    Raises:
        BadConfiguration: The record is damaged, or others could have changed it.
    """
    file = directory / NAME
    if not file.exists():
        return Record(file, {})
    try:
        document = msgspec.json.decode(private.read(file, most_bytes=_MAX_BYTES), type=_Document)
        if document.version != _VERSION:
            raise ValueError(f"it is of version {document.version}, and this program writes {_VERSION}")
        return Record(file, {name: _remembered(name, each) for name, each in document.hosts.items()})
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise BadConfiguration(
            f"{file}: {error}",
            remedy="bring back a copy; or move it away: hosts that left are not known then",
        ) from error


def _entry(each: Remembered) -> dict[str, object]:
    ssh = each.host.ssh
    return {
        "address": str(each.host.address),
        "roles": list(each.host.roles),
        "files": list(each.files),
        "units": list(each.units),
        "host": ssh.host,
        "user": ssh.user,
        "port": ssh.port,
        "identity": str(ssh.identity.absolute()) if ssh.identity else "",
        "known_hosts": str(ssh.known_hosts.absolute()) if ssh.known_hosts else "",
        "options": dict(ssh.options),
        "program": each.program,
        "number": each.number,
    }


def _remembered(name: str, each: _Entry) -> Remembered:
    if strange := [path for path in each.files if not _OURS.fullmatch(path) or ".." in path.split("/")]:
        raise ValueError(f"{name}: {strange[0]} is no file of this program")
    if strange := [unit for unit in each.units if not _UNIT.fullmatch(unit)]:
        raise ValueError(f"{name}: {strange[0]} is no service of this program")
    ssh = Ssh(
        each.host,
        each.user,
        each.port,
        Path(each.identity) if each.identity else None,
        Path(each.known_hosts) if each.known_hosts else None,
        each.options,
    )
    host = Host(name, IPv4Address(each.address), tuple(role for role in Role if role in each.roles), ssh)
    return Remembered(host, tuple(each.files), tuple(each.units), each.program, each.number)
