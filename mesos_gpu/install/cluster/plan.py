"""What each host of a cluster needs, as data; nothing is done or asked here."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mesos_gpu.adapters.files import private
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.install import agent, archive, master, scheduler, zookeeper
from mesos_gpu.install import secrets as of_mesos
from mesos_gpu.install.cluster import firewall, kept
from mesos_gpu.install.cluster.description import (
    HA,
    MESOS_PATH,
    SCHEDULER_PATH,
    Cluster,
    Host,
    Package,
    Role,
)
from mesos_gpu.install.cluster.kept import Kept
from mesos_gpu.install.cluster.record import Record
from mesos_gpu.install.files import HostFile, of_boot

ARCHIVE: Final = "/usr/lib/mesos-gpu/mesos-gpu-executor.pyz"
#: Where masters are told the place in ZooKeeper with its password; schedulers: `HA`.
ZK: Final = f"{agent.SECRETS}/zk"
#: Of schedulers; the authority is also told to those who speak to them.
CERT, KEY, CA = "/etc/mesos-gpu/server.pem", "/etc/mesos-gpu/server.key", "/etc/mesos-gpu/ca.pem"
ROOT: Final = "root:root"
#: Files that the Debian package of the program has, too: scripts/deb.py.
OF_DEB: Final = frozenset(file.path for file in scheduler.files("", "", None) if not file.is_settings)
#: Likewise of the one of agents.
OF_AGENT_DEB: Final = frozenset(
    [ARCHIVE, *(file.path for file in agent.files(agent.AgentHost("", 0, "v1")) if not file.is_settings)]
)
_SCHEDULERS: Final = f"{scheduler.USER}:{scheduler.USER}"
_MESOS: Final = ("libsasl2-2", "libsasl2-modules", "libstdc++6", "zlib1g")
#: Debian packages, by what a host does.
PACKAGES: Final = {
    Role.ZOOKEEPER: ("default-jre-headless", "zookeeper"),
    Role.MASTER: _MESOS,
    Role.SCHEDULER: (),
    Role.AGENT: _MESOS,
}
_PORTS: Final = {Role.ZOOKEEPER: 2181, Role.MASTER: 5050, Role.AGENT: 5051}


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file of a host.

    Attributes:
        path: Absolute.
        mode: Of its permissions.
        owner: As USER:GROUP.
        data: All of it; None: a secret that has not been chosen.
        secret: Where the secret is from that it holds, below the directory of secrets or by its own path; "": anybody
            may see it.
    """

    path: str
    mode: int
    owner: str
    data: bytes | None
    secret: str = ""

    @property
    def sha256(self) -> str:
        """Hexadecimal digest; "" where the text is not known."""
        return "" if self.data is None else hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class Service:
    """A unit of systemd that is to run.

    Attributes:
        name: With its suffix.
        address: IP:PORT at which it then listens; "": nowhere that is known.
        reads: Paths of the files after whose change it is started anew.
        of_program: Whether it is started anew after another release was installed.
    """

    name: str
    address: str
    reads: tuple[str, ...]
    of_program: bool


@dataclass(frozen=True, slots=True)
class HostPlan:
    """All that a host needs, in the order in which it is done.

    Attributes:
        host: Which one.
        packages: Debian's.
        program: Whether this package is installed there.
        users: Name of each user with its line of sysusers.d(5).
        files: All of them, units, settings and secrets.
        services: In the order in which they start.
        openings: Who must reach its ports.
        number: Of its server of ZooKeeper; 0: it has none.
    """

    host: Host
    packages: tuple[str, ...]
    program: bool
    users: tuple[tuple[str, str], ...]
    files: tuple[PlannedFile, ...]
    services: tuple[Service, ...]
    openings: tuple[firewall.Opening, ...]
    number: int = 0

    def commands(self, package: Package) -> Iterator[str]:
        """What `cluster apply` runs there as root, for who does it by hand: the files come before the last ones."""
        if self.packages:
            yield f"apt-get install -y --no-install-recommends {' '.join(self.packages)}"
        if self.program and package.deb:
            debs = " ".join(f"./{path.name}" for path in package.contents(self.host).values())
            yield f"apt-get install -y --no-install-recommends {debs}"
        if self.program and package.wheel:
            pip = "/opt/mesos-gpu/bin/pip install"
            yield "python3 -m venv /opt/mesos-gpu"
            yield f"{pip} --require-hashes -r {package.requirements and package.requirements.name}"
            yield f"{pip} --no-deps {package.wheel.name}"
        if self.users:
            yield "systemd-sysusers"
        yield "systemd-tmpfiles --create && systemctl daemon-reload"
        yield f"systemctl enable --now {' '.join(service.name for service in self.services)}"


def brought(package: Package, host: Host) -> frozenset[str]:
    """Paths of the files that Debian packages bring to a host: they are dpkg's, and nobody else removes them."""
    of_agent = package.agent_deb and Role.AGENT in host.roles
    return (OF_DEB if package.deb else frozenset()) | (OF_AGENT_DEB if of_agent else frozenset())


def planned(
    cluster: Cluster, secrets: Kept, record: Record, *, executor: bytes | None = None
) -> list[HostPlan]:
    """Plans of all hosts, in the order in which they are done.

    Args:
        cluster: As it is described.
        secrets: Those that have been chosen, if they have.
        record: Of the last apply: servers of ZooKeeper keep their numbers, and those that are new come last; a
            scheduler that was one of several keeps its place in ZooKeeper.
        executor: What agents run, mesos-gpu-executor.pyz; None: as this installation has it.

    Raises:
        BadConfiguration: A value cannot stand in a file of variables, or a secret cannot be read.
        Unavailable: A package that executors need is not installed here.
    """
    if executor is None:
        needed = any(cluster.of(Role.AGENT)) and not cluster.package.agent_deb
        executor = archive.packed(archive.contents()) if needed else b""
    numbers = record.numbers(cluster.of(Role.ZOOKEEPER))
    known = record.with_role(Role.ZOOKEEPER)
    meets = record.schedulers_meet(cluster)
    hosts = sorted(
        cluster.hosts,
        key=lambda host: ([*Role].index(host.roles[0]), host.name in numbers and host.name not in known),
    )
    return [_host(cluster, host, secrets, executor, numbers, meets=meets) for host in hosts]


def _host(
    cluster: Cluster, host: Host, secrets: Kept, executor: bytes, numbers: Mapping[str, int], *, meets: bool
) -> HostPlan:
    made = {role: tuple(_FILES[role](cluster, host, secrets)) for role in host.roles if role in _FILES}
    if Role.SCHEDULER in host.roles:
        made[Role.SCHEDULER] = tuple(_of_scheduler(cluster, host, secrets, meets=meets))
    if Role.ZOOKEEPER in host.roles:
        made[Role.ZOOKEEPER] = tuple(_of_zookeeper(cluster, host, numbers))
    files = [each for role in host.roles for each in made[role]]
    if Role.AGENT in host.roles and not cluster.package.agent_deb:
        files.append(PlannedFile(ARCHIVE, 0o644, ROOT, executor))
    services = [_service(role, host, made[role]) for role in host.roles]
    table = PlannedFile(firewall.PATH, 0o644, ROOT, firewall.table(cluster, host).encode())
    files.append(table)
    packages = [name for role in host.roles for name in PACKAGES[role]]
    if cluster.firewall:
        unit = _planned(of_boot("firewall", "Ports of mesos_gpu", f"/usr/sbin/nft -f {firewall.PATH}"))
        files.append(unit)
        services.insert(0, Service("mesos-gpu-firewall.service", "", (firewall.PATH, unit.path), False))
        packages.append("nftables")
    runs = bool({*host.roles} - {Role.ZOOKEEPER})
    if runs and cluster.package.wheel:
        packages += ["python3", "python3-venv"]
    return HostPlan(
        host,
        tuple(sorted(set(packages))),
        runs and not cluster.package.program,
        tuple(_users(host)),
        tuple({each.path: each for each in files}.values()),  # secrets that two roles name are one file
        tuple(services),
        tuple(firewall.openings(cluster, host)),
        numbers.get(host.name, 0),
    )


def _users(host: Host) -> Iterator[tuple[str, str]]:
    if Role.SCHEDULER in host.roles:
        yield scheduler.USER, scheduler.SYSUSERS


def _service(role: Role, host: Host, files: Sequence[PlannedFile]) -> Service:
    apart = (
        "/etc/logrotate.d/",
        "/usr/lib/tmpfiles.d/",
        CERT,
        KEY,
    )  # a new certificate is taken without a restart
    reads = tuple(each.path for each in files if not each.path.startswith(apart))
    address = ":".join(firewall.api(host)) if role is Role.SCHEDULER else f"{host.address}:{_PORTS[role]}"
    return Service(f"mesos-gpu-{role}.service", address, reads, role is not Role.ZOOKEEPER)


def _of_zookeeper(cluster: Cluster, host: Host, numbers: Mapping[str, int]) -> Iterator[PlannedFile]:
    servers = {numbers[each.name]: zookeeper.Server(str(each.address)) for each in cluster.of(Role.ZOOKEEPER)}
    yield from map(_planned, zookeeper.files(servers, numbers[host.name], cluster.heap_mib))


def _of_master(cluster: Cluster, host: Host, secrets: Kept) -> Iterator[PlannedFile]:
    masters = len(list(cluster.of(Role.MASTER)))
    described = master.MasterHost(
        str(host.address),
        f"file://{ZK}" if cluster.zookeeper else "",
        masters // 2 + 1,
        binary=f"{cluster.package.command} mesos master",
        more=host.flags.get(Role.MASTER, {}),
    )
    for each in map(_planned, master.files(described)):
        more = _even(cluster) if each.path == master.SETTINGS else b""
        yield replace(each, data=(each.data or b"") + more)
    yield from _secrets_of("master", secrets)
    if cluster.zookeeper:
        yield _place(ZK, ROOT, cluster, MESOS_PATH, kept.OF_MASTERS, secrets)


def _even(cluster: Cluster) -> bytes:
    """A remark that has masters started anew when one of three has left: both have the registry as it was written last
    once they have elected one, so that one of them may leave, too."""
    masters = [str(host.address) for host in cluster.of(Role.MASTER)]
    return f"# until one more leaves: {', '.join(masters)}\n".encode() if len(masters) % 2 == 0 else b""


def _of_agent(cluster: Cluster, host: Host, secrets: Kept) -> Iterator[PlannedFile]:
    described = agent.AgentHost(
        cluster.master,
        host.gpus,
        host.cgroups,
        binary=f"{cluster.package.command} mesos agent",
        environment={**({"MESOS_GPU_SCHEDULER_CACERT": CA} if cluster.ca else {}), **host.settings},
        ip=str(host.address),
        more=host.flags.get(Role.AGENT, {}),
    )
    for each in map(_planned, agent.files(described)):
        # The unit of the Debian package starts another program: ours goes before it.
        own = (
            each.path.replace("/usr/lib/systemd/", "/etc/systemd/")
            if cluster.package.agent_deb
            else each.path
        )
        yield replace(each, path=own)
    yield from _secrets_of("agent", secrets)
    yield from _authority(cluster)


def _of_scheduler(cluster: Cluster, host: Host, secrets: Kept, *, meets: bool) -> Iterator[PlannedFile]:
    """`meets`: whether it is, or was, one of several."""
    tls = host.tls
    options = [
        f"--mesos-credentials {of_mesos.OF_SCHEDULER} --auth token,socket --socket /run/mesos-gpu/api.sock",
        *([f"--ha file://{HA}"] if meets else []),
        *([f"--ha-cacert {CA}"] if meets and cluster.ca else []),
        *([f"--tls-cert {CERT} --tls-key {KEY}"] if tls else []),
        *([f"--role {cluster.role}"] if cluster.role != "*" else []),
        *([host.options] if host.options else []),
    ]
    made = scheduler.files(cluster.master, cluster.package.command, ARCHIVE, " ".join(options))
    yield from map(_planned, made)
    yield _secret(of_mesos.OF_SCHEDULER, _SCHEDULERS, "scheduler/mesos-credentials.json", secrets)
    if meets:
        yield _place(HA, _SCHEDULERS, cluster, SCHEDULER_PATH, kept.OF_SCHEDULERS, secrets)
    if tls:
        yield PlannedFile(CERT, 0o644, ROOT, tls.cert.read_bytes())
        yield PlannedFile(KEY, 0o600, _SCHEDULERS, _private(tls.key), str(tls.key))
    yield from _authority(cluster)


_FILES: Final = {
    Role.MASTER: _of_master,
    Role.AGENT: _of_agent,
}


def _authority(cluster: Cluster) -> Iterator[PlannedFile]:
    if cluster.ca:
        yield PlannedFile(CA, 0o644, ROOT, cluster.ca.read_bytes())


def _private(path: Path) -> bytes:
    """The bytes of a file that only its owner can read.

    Raises:
        BadConfiguration: Others could have read it.
    """
    try:
        return private.read(path)
    except OSError as error:
        raise BadConfiguration(f"{path}: {error.strerror}", remedy=private.remedy_of(path, error)) from error


def _planned(file: HostFile) -> PlannedFile:
    return PlannedFile(file.path, file.mode, ROOT, file.text.encode())


def _secrets_of(part: str, secrets: Kept) -> Iterator[PlannedFile]:
    for name in secrets.names(part):
        yield _secret(f"{agent.SECRETS}/{Path(name).name}", ROOT, name, secrets)


def _secret(path: str, owner: str, name: str, secrets: Kept) -> PlannedFile:
    data = secrets.text(name).encode() if secrets.is_there else None
    return PlannedFile(path, 0o600, owner, data, name)


def _place(path: str, owner: str, cluster: Cluster, at: str, name: str, secrets: Kept) -> PlannedFile:
    """A place in ZooKeeper with the password of who writes there."""
    data = None
    if secrets.is_there:
        data = f"zk://{secrets.text(name).strip()}@{cluster.zookeeper}{at}\n".encode()
    return PlannedFile(path, 0o600, owner, data, name)


def needs_secrets(plans: Iterable[HostPlan]) -> bool:
    """Whether a secret has not been chosen."""
    return any(file.data is None for plan in plans for file in plan.files)
