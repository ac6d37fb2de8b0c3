"""Restriction of the scheduler's own checks to addresses of tasks, as an app's author chooses port and path. Pure.

A check is a request from the scheduler's own place in the network, and the answer of a readiness check can be read. It
must not be a way to what only the scheduler's host reaches: its loopback, a cloud's metadata, its own interface.
"""

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from mesos_gpu.model.nodes import control

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

FIRST_FREE: Final = 1024  # lower ports are a host's own services: ssh, mail, its resolver
METADATA: Final = frozenset(map(ip_address, control.METADATA))
_NAT64: Final = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
_6TO4: Final = ip_network("2002::/16")
_ALLOW: Final = "--check-network allows it"


@dataclass(frozen=True, slots=True)
class Outward:
    """Permissions by the operator for checks that the scheduler makes.

    Attributes:
        check_networks: Networks to which checks may always connect.
        check_low_ports: Whether a check may use a port below FIRST_FREE that its task does not have.
    """

    check_networks: tuple[Network, ...] = ()
    check_low_ports: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """Rules for connections from the scheduler to tasks.

    Attributes:
        outward: Permissions by the operator.
        denied: Ports that command the cluster, on any address.
        own: Addresses and ports of the scheduler itself, except loopback.
        own_ports: Ports of the scheduler, which it also has on loopback.
        is_here: Whether the master is on this host's loopback; then agents are, too, and checks may connect there.
    """

    outward: Outward = field(default_factory=Outward)
    denied: frozenset[int] = frozenset()
    own: frozenset[tuple[Address, int]] = frozenset()
    own_ports: frozenset[int] = frozenset()
    is_here: bool = True

    def wrong(self, address: str, port: int, *, has: bool) -> str:
        """Return why a check must not connect to an address; "" if it may.

        Args:
            address: IP address, not a name.
            port: Port to connect to.
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
        return f"{address} is {kind}, where checks may not connect ({_ALLOW})"


def kind_of(address: Address) -> str:
    """Describe a special address that requests on a user's behalf must not go to; "" for an ordinary address."""
    if address in METADATA:
        return "a cloud's metadata service, which has the host's credentials"
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
    """Return the IPv4 address embedded in an IPv6 address (mapped, compatible, 6to4, NAT64).

    Without one, the address itself is returned, without its scope.
    """
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
