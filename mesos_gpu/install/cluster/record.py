"""Record of what the last apply left on hosts, kept beside the secrets, so that it can be removed later."""

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
#: Paths of files that this program writes; nothing else is ever removed from a host.
_OURS: Final = re.compile(
    r"(/etc/mesos-gpu/|/usr/lib/mesos-gpu/|/var/lib/mesos-gpu-zookeeper/|/etc/logrotate\.d/mesos-gpu-"
    r"|/usr/lib/(tmpfiles|sysusers)\.d/mesos-gpu-|/(etc|usr/lib)/systemd/system/mesos-gpu-)[\w./-]+"
)
_UNIT: Final = re.compile(r"mesos-gpu-[a-z]+\.service")


@dataclass(frozen=True, slots=True)
class AppliedHost:
    """A host as it was applied.

    Attributes:
        host: Name, address, roles and SSH settings.
        files: Paths of the files that were written.
        units: Services that were installed.
        program: Package by which the program was installed, "deb" or "wheel"; "" if it was not installed by apply.
        number: Number of its ZooKeeper server; 0 if it has none.
    """

    host: Host
    files: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    program: str = ""
    number: int = 0

    def and_also(self, other: "AppliedHost") -> "AppliedHost":
        """Return the other description of this host, with the files, units and roles of both."""
        roles = tuple(role for role in Role if role in {*self.host.roles, *other.host.roles})
        host = Host(other.host.name, other.host.address, roles, other.host.ssh)
        return AppliedHost(
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
    """Record of all hosts that were applied, by name. Each change rewrites the file as a whole.

    Args:
        file: File of the record, readable by its owner only.
        hosts: Hosts at the beginning.
    """

    def __init__(self, file: Path, hosts: Mapping[str, AppliedHost]) -> None:
        self._file = file
        self.hosts = dict(hosts)

    def with_role(self, role: Role) -> list[str]:
        """Return the names of hosts that had a role."""
        return [name for name, entry in self.hosts.items() if role in entry.host.roles]

    def schedulers_meet(self, cluster: Cluster) -> bool:
        """Return whether schedulers meet in ZooKeeper: there are several, or one that stays was one of several.

        The latter's state belongs to a log in ZooKeeper, by which it knows whether its state is the newest.
        """
        if len(list(cluster.of(Role.SCHEDULER))) > 1:
            return True
        entries = (self.hosts.get(host.name) for host in cluster.of(Role.SCHEDULER))
        return bool(cluster.zookeeper) and any(entry is not None and HA in entry.files for entry in entries)

    def numbers(self, servers: Iterable[Host]) -> dict[str, int]:
        """Return the number of each ZooKeeper server by host name.

        A server keeps its number; new servers get the lowest free numbers in the order of their names.
        """
        names = sorted(host.name for host in servers)
        numbers = {name: n for name in names if (n := self.hosts[name].number if name in self.hosts else 0)}
        free = iter(sorted({*range(1, len(names) + len(numbers) + 1)} - {*numbers.values()}))
        return {name: numbers.get(name) or next(free) for name in names}

    def add(self, host: AppliedHost) -> None:
        """Record what a host is about to be given, in addition to what it has."""
        before = self.hosts.get(host.host.name)
        self._put(host.host.name, before.and_also(host) if before else host)

    def settle(self, host: AppliedHost) -> None:
        """Record exactly what a host has now; earlier entries of this host are dropped."""
        self._put(host.host.name, host)

    def forget(self, name: str) -> None:
        """Remove a host from the record."""
        if self.hosts.pop(name, None) is not None:
            self._write()

    def _put(self, name: str, remembered: AppliedHost) -> None:
        if self.hosts.get(name) != remembered:
            self.hosts[name] = remembered
            self._write()

    def _write(self) -> None:
        entries = {name: _entry(remembered) for name, remembered in self.hosts.items()}
        text = json.dumps({"version": _VERSION, "hosts": entries}, indent=1) + "\n"
        private.write(self._file, text.encode())


def read(directory: Path) -> Record:
    """Read the record beside the secrets in a directory; it is empty if there is no file.

    Raises:
        BadConfiguration: The record is damaged, or others could have changed it.
    """
    file = directory / NAME
    if not file.exists():
        return Record(file, {})
    try:
        document = msgspec.json.decode(private.read(file, most_bytes=_MAX_BYTES), type=_Document)
        if document.version != _VERSION:
            raise ValueError(f"its version is {document.version}, this program supports {_VERSION}")
        return Record(file, {name: _remembered(name, entry) for name, entry in document.hosts.items()})
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise BadConfiguration(
            f"{file}: {error}",
            remedy="restore a copy; or move the file away: surplus on hosts is then not found",
        ) from error


def _entry(remembered: AppliedHost) -> dict[str, object]:
    """Return the JSON object of a host for the file of the record."""
    ssh = remembered.host.ssh
    return {
        "address": str(remembered.host.address),
        "roles": list(remembered.host.roles),
        "files": list(remembered.files),
        "units": list(remembered.units),
        "host": ssh.host,
        "user": ssh.user,
        "port": ssh.port,
        "identity": str(ssh.identity.absolute()) if ssh.identity else "",
        "known_hosts": str(ssh.known_hosts.absolute()) if ssh.known_hosts else "",
        "options": dict(ssh.options),
        "program": remembered.program,
        "number": remembered.number,
    }


def _remembered(name: str, entry: _Entry) -> AppliedHost:
    """Return the host of an entry, unless the entry has paths or units of other programs."""
    if strange := [path for path in entry.files if not _OURS.fullmatch(path) or ".." in path.split("/")]:
        raise ValueError(f"{name}: {strange[0]} is not a file of this program")
    if strange := [unit for unit in entry.units if not _UNIT.fullmatch(unit)]:
        raise ValueError(f"{name}: {strange[0]} is not a service of this program")
    ssh = Ssh(
        entry.host,
        entry.user,
        entry.port,
        Path(entry.identity) if entry.identity else None,
        Path(entry.known_hosts) if entry.known_hosts else None,
        entry.options,
    )
    host = Host(name, IPv4Address(entry.address), tuple(role for role in Role if role in entry.roles), ssh)
    return AppliedHost(host, tuple(entry.files), tuple(entry.units), entry.program, entry.number)
