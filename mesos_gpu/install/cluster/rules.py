"""Rules between the hosts of a cluster, so that it can start and survive a failure. Pure."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from mesos_gpu.install import agent, master
from mesos_gpu.install.cluster.description import Cluster, Role
from mesos_gpu.install.cluster.record import Record
from mesos_gpu.wire.checking import Problem

#: Flags that the file may not set: addresses, credentials and storage.
OWN_FLAGS: Final[Mapping[Role, frozenset[str]]] = {
    Role.MASTER: frozenset({"ip", "hostname", "port", "zk", "quorum", "registry", "work_dir", *master.AUTHENTICATION}),
    Role.AGENT: frozenset({
        "ip", "hostname", "port", "master", "work_dir", "runtime_dir", "resources", "launcher_dir",
        "executor_environment_variables", *agent.AUTHENTICATION, *agent.TOKENS,
    }),
}  # fmt: skip

#: Options of `mesos-gpu scheduler` that the plan sets.
OWN_OPTIONS: Final = frozenset({
    "--executor-archive", "--ha", "--journal", "--master", "--mesos-credentials", "--role", "--socket",
    "--state", "--user",
})  # fmt: skip
_OF_TLS: Final = {"--tls-cert", "--tls-key", "--insecure-plain-http"}


def faults(cluster: Cluster, record: Record) -> Iterator[Problem]:
    """Yield all violated rules. `record`: record of the last apply."""
    yield from _addresses(cluster)
    counts = Counter(role for host in cluster.hosts for role in host.roles)
    yield from _numbers(counts)
    yield from _even_numbers(cluster, record)
    yield from _options(cluster, record)


def _addresses(cluster: Cluster) -> Iterator[Problem]:
    seen: dict[object, str] = {}
    alone = all(host.address.is_loopback for host in cluster.hosts)
    for host in cluster.hosts:
        place = f"/hosts/{host.name}/address"
        if other := seen.get(host.address):
            yield Problem(place, f"{host.address} is also the address of {other}: give each host its own")
        seen[host.address] = host.name
        if (
            host.address.is_unspecified
            or host.address.is_multicast
            or (host.address.is_loopback and not alone)
        ):
            yield Problem(place, f"must be an address at which the other hosts reach it, got {host.address}")


def _numbers(counts: Mapping[Role, int]) -> Iterator[Problem]:
    if not counts[Role.MASTER]:
        yield Problem("/hosts", "must have a host with the role master")
    for role in (Role.MASTER, Role.SCHEDULER):
        if counts[role] > 1 and not counts[Role.ZOOKEEPER]:
            text = f"has {counts[role]} hosts with the role {role}, which elect one through ZooKeeper"
            yield Problem("/hosts", f"{text}: give 1, 3 or 5 of them the role zookeeper")


def _even_numbers(cluster: Cluster, record: Record) -> Iterator[Problem]:
    """Yield roles with an even number of hosts, unless hosts are leaving one after the other."""
    for role in (Role.MASTER, Role.ZOOKEEPER):
        names = {host.name for host in cluster.of(role)}
        if names and len(names) % 2 == 0 and not names <= {*record.with_role(role)}:
            text = f"has {len(names)} hosts with the role {role}; an even number tolerates no more failures"
            yield Problem("/hosts", f"{text}: use {len(names) - 1} or {len(names) + 1}")


def _options(cluster: Cluster, record: Record) -> Iterator[Problem]:
    meets = record.schedulers_meet(cluster)
    for host in cluster.of(Role.SCHEDULER):
        names = {word.partition("=")[0] for word in shlex.split(host.options)}
        place = f"/hosts/{host.name}/options"
        own = OWN_OPTIONS | (_OF_TLS if host.tls else set()) | ({"--ha-cacert"} if cluster.ca else set())
        for name in sorted(names & own):
            yield Problem(place, f"have {name}, which is set by the plan: remove it")
        if meets and "--host" not in names:
            what = "lack --host ADDRESS, and tls: or --insecure-plain-http"
            yield Problem(place, f"{what}: standby schedulers forward requests to the leader")
