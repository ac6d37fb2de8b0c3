"""Plans of what each host of a cluster needs, as data; hosts are neither read nor changed here."""

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
#: File with the masters' ZooKeeper URL, which contains a password; that of schedulers is `HA`.
ZK: Final = f"{agent.SECRETS}/zk"
#: TLS files of schedulers; the CA certificate is also given to agents.
CERT, KEY, CA = "/etc/mesos-gpu/server.pem", "/etc/mesos-gpu/server.key", "/etc/mesos-gpu/ca.pem"
ROOT: Final = "root:root"
#: Files that the Debian package mesos-gpu also contains: scripts/deb.py.
OF_DEB: Final = frozenset(file.path for file in scheduler.files("", "", None) if not file.is_settings)
#: Files that the Debian package mesos-gpu-agent also contains.
OF_AGENT_DEB: Final = frozenset(
    [ARCHIVE, *(file.path for file in agent.files(agent.AgentHost("", 0, "v1")) if not file.is_settings)]
)
_SCHEDULERS: Final = f"{scheduler.USER}:{scheduler.USER}"
_MESOS: Final = ("libsasl2-2", "libsasl2-modules", "libstdc++6", "zlib1g")
#: Debian packages by role of the host.
PACKAGES: Final = {
    Role.ZOOKEEPER: ("default-jre-headless", "zookeeper"),
    Role.MASTER: _MESOS,
    Role.SCHEDULER: (),
    Role.AGENT: _MESOS,
}
_PORTS: Final = {Role.ZOOKEEPER: 2181, Role.MASTER: 5050, Role.AGENT: 5051}


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file to write on a host.

    Attributes:
        path: Absolute path on the host.
        mode: Permission bits of the file.
        owner: Owner as USER:GROUP.
        data: Content; None for a secret that has not been generated.
        secret: Origin of the secret in it: a path below the directory of secrets, or a path of its own; "" if the
            content is not secret.
    """

    path: str
    mode: int
    owner: str
    data: bytes | None
    secret: str = ""

    @property
    def sha256(self) -> str:
        """Hexadecimal digest of the content; "" if the content is not known."""
        return "" if self.data is None else hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class Service:
    """A systemd unit that must be running.

    Attributes:
        name: Unit name with suffix.
        address: IP:PORT at which the service listens once it runs; "" if not known.
        reads: Paths of files whose change requires a restart.
        of_program: Whether installing another release requires a restart.
    """

    name: str
    address: str
    reads: tuple[str, ...]
    of_program: bool


@dataclass(frozen=True, slots=True)
class HostPlan:
    """Requirements of one host.

    Attributes:
        host: Host that the plan is for.
        packages: Debian packages to install.
        program: Whether this package is installed on the host.
        users: System users, each with its line of sysusers.d(5).
        files: Files to write: units, settings and secrets.
        services: Services in the order in which they start.
        openings: Ports with the clients that must reach them.
        number: Number of its ZooKeeper server; 0 if it has none.
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
        """Yield the commands that `cluster apply` runs as root, for manual use; files go before systemd's commands."""
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
    """Return the paths of files that Debian packages install on a host: only dpkg may remove them."""
    of_agent = package.agent_deb and Role.AGENT in host.roles
    return (OF_DEB if package.deb else frozenset()) | (OF_AGENT_DEB if of_agent else frozenset())


def planned(
    cluster: Cluster, secrets: Kept, record: Record, *, executor: bytes | None = None
) -> list[HostPlan]:
    """Return the plans of all hosts, in the order in which hosts are installed.

    Args:
        cluster: Cluster as its file describes it.
        secrets: Secrets of the cluster, generated or not.
        record: Record of the last apply: ZooKeeper servers keep their numbers, and new ones come last; a scheduler
            that was one of several keeps its place in ZooKeeper.
        executor: Content of mesos-gpu-executor.pyz for agents; None to build it from this installation.

    Raises:
        BadConfiguration: A value cannot be written to an environment file, or a secret cannot be read.
        Unavailable: A package that executors need is not installed here.
    """
    if executor is None:
        needed = any(cluster.of(Role.AGENT)) and not cluster.package.agent_deb
        executor = archive.packed(archive.contents()) if needed else b""
    numbers = record.numbers(cluster.of(Role.ZOOKEEPER))
    earlier = record.with_role(Role.ZOOKEEPER)
    meets = record.schedulers_meet(cluster)
    hosts = sorted(
        cluster.hosts,
        key=lambda host: ([*Role].index(host.roles[0]), host.name in numbers and host.name not in earlier),
    )
    return [_host(cluster, host, secrets, executor, numbers, meets=meets) for host in hosts]


def _host(
    cluster: Cluster, host: Host, secrets: Kept, executor: bytes, numbers: Mapping[str, int], *, meets: bool
) -> HostPlan:
    """Return the plan of one host, for all of its roles."""
    files_by_role = {
        role: tuple(_FILES[role](cluster, host, secrets)) for role in host.roles if role in _FILES
    }
    if Role.SCHEDULER in host.roles:
        files_by_role[Role.SCHEDULER] = tuple(_of_scheduler(cluster, host, secrets, meets=meets))
    if Role.ZOOKEEPER in host.roles:
        files_by_role[Role.ZOOKEEPER] = tuple(_of_zookeeper(cluster, host, numbers))
    files = [file for role in host.roles for file in files_by_role[role]]
    if Role.AGENT in host.roles and not cluster.package.agent_deb:
        files.append(PlannedFile(ARCHIVE, 0o644, ROOT, executor))
    services = [_service(role, host, files_by_role[role]) for role in host.roles]
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
        tuple({file.path: file for file in files}.values()),  # secrets that two roles name are one file
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
    )  # new certificates are loaded without a restart
    reads = tuple(file.path for file in files if not file.path.startswith(apart))
    address = ":".join(firewall.api(host)) if role is Role.SCHEDULER else f"{host.address}:{_PORTS[role]}"
    return Service(f"mesos-gpu-{role}.service", address, reads, role is not Role.ZOOKEEPER)


def _of_zookeeper(cluster: Cluster, host: Host, numbers: Mapping[str, int]) -> Iterator[PlannedFile]:
    servers = {
        numbers[server.name]: zookeeper.Server(str(server.address)) for server in cluster.of(Role.ZOOKEEPER)
    }
    yield from map(_planned, zookeeper.files(servers, numbers[host.name], cluster.heap_mib))


def _of_master(cluster: Cluster, host: Host, secrets: Kept) -> Iterator[PlannedFile]:
    """Yield the files of a master."""
    masters = len(list(cluster.of(Role.MASTER)))
    described = master.MasterHost(
        str(host.address),
        f"file://{ZK}" if cluster.zookeeper else "",
        masters // 2 + 1,
        binary=f"{cluster.package.command} mesos master",
        more=host.flags.get(Role.MASTER, {}),
    )
    for file in map(_planned, master.files(described)):
        more = _even(cluster) if file.path == master.SETTINGS else b""
        yield replace(file, data=(file.data or b"") + more)
    yield from _secrets_of("master", secrets)
    if cluster.zookeeper:
        yield _place(ZK, ROOT, cluster, MESOS_PATH, kept.OF_MASTERS, secrets)


def _even(cluster: Cluster) -> bytes:
    """Return a comment for the masters' settings while their number is even; else b"".

    When one of three masters has left, the changed file restarts the others. Once they have elected a leader, both
    have the latest registry, so that one of them may leave too.
    """
    masters = [str(host.address) for host in cluster.of(Role.MASTER)]
    return f"# until one more leaves: {', '.join(masters)}\n".encode() if len(masters) % 2 == 0 else b""


def _of_agent(cluster: Cluster, host: Host, secrets: Kept) -> Iterator[PlannedFile]:
    """Yield the files of an agent."""
    described = agent.AgentHost(
        cluster.master,
        host.gpus,
        host.cgroups,
        binary=f"{cluster.package.command} mesos agent",
        environment={**({"MESOS_GPU_SCHEDULER_CACERT": CA} if cluster.ca else {}), **host.settings},
        ip=str(host.address),
        more=host.flags.get(Role.AGENT, {}),
    )
    for file in map(_planned, agent.files(described)):
        # The unit of the Debian package starts another program: the one in /etc takes precedence.
        own = (
            file.path.replace("/usr/lib/systemd/", "/etc/systemd/")
            if cluster.package.agent_deb
            else file.path
        )
        yield replace(file, path=own)
    yield from _secrets_of("agent", secrets)
    yield from _authority(cluster)


def _of_scheduler(cluster: Cluster, host: Host, secrets: Kept, *, meets: bool) -> Iterator[PlannedFile]:
    """Yield the files of a scheduler. `meets`: whether it is, or was, one of several schedulers."""
    tls = host.tls
    options = [
        f"--mesos-credentials {of_mesos.OF_SCHEDULER} --auth token,socket --socket /run/mesos-gpu/api.sock",
        *([f"--ha file://{HA}"] if meets else []),
        *([f"--ha-cacert {CA}"] if meets and cluster.ca else []),
        *([f"--tls-cert {CERT} --tls-key {KEY}"] if tls else []),
        *([f"--role {cluster.role}"] if cluster.role != "*" else []),
        *([host.options] if host.options else []),
    ]
    files = scheduler.files(cluster.master, cluster.package.command, ARCHIVE, " ".join(options))
    yield from map(_planned, files)
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
    """Return the content of a file that only its owner can read.

    Raises:
        BadConfiguration: The file cannot be read, or others could have read it.
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
    """Return a file with a ZooKeeper URL that contains the password for its path."""
    data = None
    if secrets.is_there:
        data = f"zk://{secrets.text(name).strip()}@{cluster.zookeeper}{at}\n".encode()
    return PlannedFile(path, 0o600, owner, data, name)


def needs_secrets(plans: Iterable[HostPlan]) -> bool:
    """Return whether a plan has a file whose secret has not been generated."""
    return any(file.data is None for plan in plans for file in plan.files)
