"""Hosts of a cluster on one machine: a network namespace with its own address for each, joined by a bridge.

Traffic between two hosts can be cut, one way or both, and slowed, by rules inside a host's own namespace, which
disappear with it. There is no default route, so that no program waits for a resolver that does not answer. Needs root,
iproute2, iptables.
"""

import hashlib
import ipaddress
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from mesos_gpu.errors import Unavailable

Way = Literal["from", "to", "both"]
#: Addresses for network tests (RFC 2544); each cluster uses 256 of them.
_ADDRESSES: Final = ipaddress.ip_network("198.18.0.0/15")
#: Name of a cluster's bridge, and prefix of the names of its namespaces and links: at most 15 characters in all.
NAME: Final = re.compile(r"mg[0-9a-f]{6}")
_CHAIN: Final = {"from": ("INPUT", "-s", "--sport"), "to": ("OUTPUT", "-d", "--dport")}


@dataclass(frozen=True, slots=True)
class Host:
    """A network namespace that acts as a host.

    Attributes:
        namespace: Name of the namespace for ip-netns(8).
        ip: Address of the host.
    """

    namespace: str
    ip: str

    def inside(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs a command on this host: in its network, with all else of this machine."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}", "--", *command]

    def cut(self, peers: Iterable[str], way: Way = "both", port: int | None = None) -> None:
        """Drop every packet from or to these addresses silently, as a broken switch does.

        Args:
            peers: Addresses of the other hosts.
            way: Direction of the packets to drop.
            port: TCP port of the peers; None for all packets.
        """
        for peer in peers:
            for direction in _CHAIN if way == "both" else (way,):
                chain, option, its_port = _CHAIN[direction]
                narrow = [] if port is None else ["-p", "tcp", its_port, str(port)]
                self._iptables("-A", chain, option, peer, *narrow, "-j", "DROP")

    def lose(self, share: float) -> None:
        """Drop a random share (0 to 1) of incoming packets."""
        self._iptables(
            "-A", "INPUT", "-m", "statistic", "--mode", "random", "--probability", f"{share}", "-j", "DROP"
        )

    def slow(self, kbit_s: int) -> None:
        """Limit the sending rate; packets that do not fit wait up to 400 ms, and are then lost."""
        _run("tc", "-n", self.namespace, "qdisc", "replace", "dev", "eth0", "root", "tbf",
             "rate", f"{kbit_s}kbit", "burst", "32kbit", "latency", "400ms")  # fmt: skip

    def heal(self) -> None:
        """Undo `cut`, `lose` and `slow`."""
        self._iptables("-F")
        if "tbf" in _run("tc", "-n", self.namespace, "qdisc", "show", "dev", "eth0"):
            _run("tc", "-n", self.namespace, "qdisc", "del", "dev", "eth0", "root")

    def _iptables(self, *arguments: str) -> None:
        _run(*self.inside(["iptables", "-w", *arguments]))


class Network:
    """Bridge and hosts of a cluster. `close` removes them, and so does `remove` after a kill -9.

    Args:
        directory: Directory of the cluster, from which all names are derived.

    Raises:
        Unavailable: This process is not root, or a program is missing.
    """

    def __init__(self, directory: Path) -> None:
        check()
        digest = hashlib.sha256(os.fsencode(os.path.realpath(directory))).hexdigest()
        self.name = f"mg{digest[:6]}"
        self.hosts: dict[str, Host] = {}
        self._range = _free_range(int(digest[6:10], 16), self.name)
        self._is_open = False

    @property
    def ip(self) -> str:
        """Address of this machine on the bridge."""
        return str(self._range[1])

    def add(self, name: str) -> Host:
        """Add a host; its name has at most 6 characters.

        Raises:
            Unavailable: The host cannot be created.
        """
        host = self.hosts[name] = Host(f"{self.name}-{name}", str(self._range[10 + len(self.hosts)]))
        if self._is_open:
            self._make(host)
        return host

    def open(self) -> None:
        """Create the bridge and the hosts.

        Raises:
            Unavailable: The bridge or a host cannot be created.
        """
        remove(self.name)
        _run("ip", "link", "add", self.name, "type", "bridge")
        _run("ip", "address", "add", f"{self.ip}/24", "dev", self.name)
        _run("ip", "link", "set", self.name, "up")
        for host in self.hosts.values():
            self._make(host)
        self._is_open = True

    def _make(self, host: Host) -> None:
        link = host.namespace
        _run("ip", "netns", "add", link)
        _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", link)
        _run("ip", "link", "set", link, "master", self.name, "up")
        _run("ip", "-n", link, "address", "add", f"{host.ip}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", link, "link", "set", device, "up")

    def close(self) -> None:
        """Remove the bridge and the hosts; harmless if nothing was created."""
        remove(self.name)
        self._is_open = False


def _free_range(first: int, own: str) -> ipaddress.IPv4Network:
    """Return a range of addresses that no other interface of this machine has; the search begins at index `first`."""
    routes = json.loads(_run("ip", "-j", "route"))
    taken = [ipaddress.IPv4Network(route["dst"]) for route in routes
             if route["dst"] != "default" and route.get("dev") != own]  # fmt: skip
    ranges = [ipaddress.IPv4Network(subnet) for subnet in _ADDRESSES.subnets(new_prefix=24)]
    turned = ranges[first % len(ranges) :] + ranges[: first % len(ranges)]
    return next(subnet for subnet in turned if not any(subnet.overlaps(other) for other in taken))


def check() -> None:
    """Check that this machine can have such hosts.

    Raises:
        Unavailable: Root or a program is missing; the message says which.
    """
    if os.geteuid():
        raise Unavailable("network namespaces need root", remedy="run it as root")
    for program, package in (("ip", "iproute2"), ("iptables", "iptables"), ("nsenter", "util-linux")):
        if shutil.which(program) is None:
            raise Unavailable(f"no program {program}", remedy=f"apt-get install -y {package}")


def remove(name: str) -> None:
    """Remove the namespaces and links of a cluster's network, also after its owner was killed.

    Processes in a namespace keep it until they end, without its name and its link.
    """
    namespaces = [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line]
    for namespace in namespaces:
        if namespace.startswith(f"{name}-"):
            _run("ip", "netns", "del", namespace)
    links = [link["ifname"] for link in json.loads(_run("ip", "-j", "link"))]
    for link in links:
        if link == name or link.startswith(f"{name}-"):
            # The link may have disappeared with its namespace.
            subprocess.run(["ip", "link", "del", link], capture_output=True, check=False)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(
            f"`{' '.join(command)}` failed: {done.stderr.strip()}",
            remedy="the kernel must support this command",
        )
    return done.stdout
