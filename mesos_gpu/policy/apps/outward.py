"""Where checks may go that the scheduler makes: whoever writes an app chooses their port and path. Pure.

A check is a request from the scheduler's own place in the network, and the answer of a readiness check can be read.
It must not be a way to what only the scheduler's host reaches: its loopback, a cloud's metadata, its own interface.
"""

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from mesos_gpu.model.nodes import control

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

FIRST_FREE: Final = 1024  # below are a host's own services: ssh, mail, its resolver
METADATA: Final = frozenset(map(ip_address, control.METADATA))
_NAT64: Final = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
_6TO4: Final = ip_network("2002::/16")
_ALLOW: Final = "--check-network allows it"


@dataclass(frozen=True, slots=True)
class Outward:
    """What the operator allows. `check_networks`: where checks may go, whatever is there; `check_low_ports`: whether
    a check may name a port below FIRST_FREE that its task does not have."""

    check_networks: tuple[Network, ...] = ()
    check_low_ports: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """From the scheduler to the tasks.

    Attributes:
        outward: What the operator allows.
        denied: Ports that command the cluster, on any address.
        own: Addresses and ports of the scheduler itself, but for loopback.
        own_ports: Its ports, which it has on loopback, too.
        is_here: The master is on this host's loopback; then agents are, too, and checks may go there.
    """

    outward: Outward = field(default_factory=Outward)
    denied: frozenset[int] = frozenset()
    own: frozenset[tuple[Address, int]] = frozenset()
    own_ports: frozenset[int] = frozenset()
    is_here: bool = True

    def wrong(self, address: str, port: int, *, has: bool) -> str:
        """Why a check must not go there; "": it may.

        Args:
            address: That is connected to; no name.
            port: Likewise.
            has: Whether the task has this port.
        """
        if port in self.denied:
            return f"port {port} commands the cluster, and is not for tasks"
        real = innermost(ip_address(address))
        if port in self.own_ports and (real.is_loopback or (real, port) in self.own):
            return f"port {port} is the scheduler's own"
        if not has and port < FIRST_FREE and not self.outward.check_low_ports:
            return f"port {port} is not the task's (--check-low-ports allows it)"
        if any(
            real.version == network.version and real in network for network in self.outward.check_networks
        ):
            return ""
        kind = kind_of(real)
        if not kind or (real.is_loopback and self.is_here):
            return ""
        return f"{address} is {kind}, where no check goes ({_ALLOW})"


def kind_of(address: Address) -> str:
    """What is special about an address that requests on somebody's word must not go to; "": nothing."""
    if address in METADATA:
        return "where a cloud tells a host's credentials"
    if address.is_loopback:
        return "a loopback address"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast:
        return "a multicast address"
    if address.is_unspecified or (address.version == 4 and int(address) < 1 << 24):
        return "an address of this host itself"
    return "a reserved address" if address.version == 4 and address.is_reserved else ""


def innermost(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for (mapped, compatible, 6to4, NAT64), or the address itself,
    without its scope."""
    if isinstance(address, IPv4Address):
        return address
    plain = IPv6Address(int(address))
    if plain.ipv4_mapped is not None:
        return plain.ipv4_mapped
    if plain in _6TO4:
        return IPv4Address(int(plain) >> 80 & 0xFFFFFFFF)
    if any(plain in network for network in _NAT64) or 1 < int(plain) < 1 << 32:
        return IPv4Address(int(plain) & 0xFFFFFFFF)
    return plain
