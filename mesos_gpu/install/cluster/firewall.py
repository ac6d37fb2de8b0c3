"""Ports of a host with the addresses that may reach them, and nftables rules that drop everything else. Pure."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network, collapse_addresses
from itertools import pairwise
from typing import Final

from mesos_gpu.install.cluster.description import ZOOKEEPER_PORT, Cluster, Host, Role

PATH: Final = "/etc/mesos-gpu/firewall.nft"
TASKS: Final = "31000-32000"  # the port range that mesos_gpu/install/agent.py offers
_TABLE: Final = """\
# Ports of mesos_gpu: addresses that are not listed here are dropped. Other ports are not touched.
table inet mesos_gpu
delete table inet mesos_gpu
table inet mesos_gpu {
    chain input {
        type filter hook input priority filter; policy accept;
        iifname "lo" accept
RULES    }
}
"""


@dataclass(frozen=True, slots=True)
class Opening:
    """Addresses that may reach a port.

    Attributes:
        ports: TCP port, or range FIRST-LAST.
        who: Description of the clients.
        sources: Addresses and networks that may connect; none if empty.
    """

    ports: str
    who: str
    sources: tuple[str, ...]

    @property
    def rules(self) -> str:
        """Rules for nft(8) that accept these sources and drop other connections."""
        if not self.sources:
            return f"        tcp dport {self.ports} drop\n"
        return (
            f"        tcp dport {self.ports} ip saddr {{ {', '.join(self.sources)} }} accept # {self.who}\n"
            f"        tcp dport {self.ports} drop\n"
        )


def api(host: Host) -> tuple[str, str]:
    """Return IP and port at which a scheduler listens, from its options."""
    words = shlex.split(host.options)
    values = dict(pairwise(words)) | dict(word.split("=", 1) for word in words if "=" in word)
    ip = values.get("--host", "127.0.0.1")
    return "127.0.0.1" if ip == "0.0.0.0" else ip, values.get("--port", "8080")  # nosec B104 # compared


def openings(cluster: Cluster, host: Host) -> Iterator[Opening]:
    """Yield the openings of a host for all of its roles."""

    def to(ports: str, who: str, *roles: Role, people: bool = False) -> Opening:
        addresses = [IPv4Network(host.address) for host in cluster.of(*roles)]
        networks = list(collapse_addresses(cluster.people if people else ()))
        alone = [address for address in addresses if not any(address.subnet_of(other) for other in networks)]
        return Opening(ports, who, tuple(str(network).removesuffix("/32") for network in (*alone, *networks)))

    zookeeper, master, scheduler, agent = Role
    if zookeeper in host.roles:
        yield to(f"{ZOOKEEPER_PORT}", "masters, schedulers, agents", *Role)
        yield to(f"{ZOOKEEPER_PORT + 1}-{ZOOKEEPER_PORT + 2}", "servers of ZooKeeper", zookeeper)
    if master in host.roles:
        yield to("5050", "masters, schedulers, agents, people", master, scheduler, agent, people=True)
    if scheduler in host.roles:
        yield to(api(host)[1], "people, agents, schedulers", scheduler, agent, people=True)
    if agent in host.roles:
        yield to("5051", "masters, schedulers", master, scheduler)
        yield to(TASKS, "tasks: people, agents, schedulers", scheduler, agent, people=True)


def table(cluster: Cluster, host: Host) -> str:
    """Return a host's rules as a file that `nft -f` can load repeatedly."""
    return _TABLE.replace("RULES", "".join(opening.rules for opening in openings(cluster, host)))
