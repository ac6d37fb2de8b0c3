"""Destinations that tasks of this host must not reach: control ports of the cluster, metadata addresses of clouds, and
destinations that the operator lists.

The executor imports this module, so it imports few others.
"""

import _socket
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.nodes.control import METADATA, ControlPort

SETTING: Final = "MESOS_GPU_CONTROL_PORTS"
OFF: Final = "off"
METADATA_SETTING: Final = "MESOS_GPU_METADATA"
#: Link-local addresses (RFC 3927, RFC 4291), at which most clouds have their metadata service, and the IPv4 ones as
#: translated by a NAT64 gateway (RFC 6052).
_LINK_LOCAL: Final = ("169.254.0.0/16", "fe80::/10", "64:ff9b::a9fe:0/112")
_DNS: Final = 53


@dataclass(frozen=True, slots=True)
class Denial:
    """Destination that a task cannot reach by TCP or UDP.

    Attributes:
        port: Port number; None for every port.
        address: IP address, or network as ADDRESS/BITS; None for any address of any host.
        exempt: Whether the destination can be reached although a later entry of the list denies it.
    """

    port: int | None
    address: str | None = None
    exempt: bool = False

    def covers(self, address: str) -> bool:
        """Return whether the denial applies to an IP address."""
        if self.address is None:
            return True
        family, packed, bits = split_network(self.address)
        other, given, _ = split_network(address)
        shift = 8 * len(packed) - bits
        return (
            family == other
            and int.from_bytes(packed, "big") >> shift == int.from_bytes(given, "big") >> shift
        )


def split_network(text: str) -> tuple[int, bytes, int]:
    """Return family, packed address and prefix length in bits of ADDRESS or ADDRESS/BITS."""
    address, slash, bits = text.partition("/")
    family = _socket.AF_INET6 if ":" in address else _socket.AF_INET
    packed = _socket.inet_pton(family, address)
    return family, packed, int(bits) if slash else 8 * len(packed)


def is_off(env: Mapping[str, str]) -> bool:
    """Return whether the operator lets tasks of this host reach every port, or does not isolate them at all."""
    return env.get(SETTING) == OFF or env.get("MESOS_GPU_ISOLATION") == "off"


def listed(env: Mapping[str, str]) -> tuple[Denial, ...]:
    """Return the denials in MESOS_GPU_CONTROL_PORTS, which add to the ports of agents, master and scheduler.

    The setting lists PORT, ADDRESS:PORT or [ADDRESS]:PORT, separated by commas.

    Raises:
        BadConfiguration: An entry is invalid.
    """
    words = () if is_off(env) else env.get(SETTING, "").split(",")
    return tuple(_parsed(word) for word in filter(None, map(str.strip, words)))


def _parsed(word: str) -> Denial:
    address, _, port = word.rpartition(":")
    text = address[1:-1] if address.startswith("[") and address.endswith("]") else address
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise _bad(word, f"{port!r} is not a port")
    if text and (_family(text) is None or (":" in text) != (text != address)):
        raise _bad(
            word,
            f"{address!r} is not an IP address"
            if _family(text) is None
            else "an IPv6 address needs brackets",
        )
    return _denial(int(port), text)


def _bad(word: str, why: str) -> BadConfiguration:
    return BadConfiguration(
        f"{SETTING} has the entry {word!r}: {why}",
        remedy=f"list PORT, ADDRESS:PORT or [ADDRESS]:PORT, separated by commas; or set it to {OFF}",
    )


def _family(address: str) -> int | None:
    for family in (_socket.AF_INET, _socket.AF_INET6):
        try:
            _socket.inet_pton(family, address)
        except OSError:
            continue
        return family
    return None


def _denial(port: int, address: str) -> Denial:
    """Return the denial of a port and address; for an address of this host, of the port at any address.

    A host has many addresses (0.0.0.0, all of 127/8, those of its interfaces).
    """
    return Denial(port, address if address and not _is_of_this_host(address) else None)


def _is_of_this_host(address: str) -> bool:
    family = _family(address)
    if family is None:
        return False
    with contextlib.closing(_socket.socket(family, _socket.SOCK_DGRAM)) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def allows_metadata(env: Mapping[str, str]) -> bool:
    """Return whether the operator lets tasks reach link-local and metadata addresses.

    Raises:
        BadConfiguration: MESOS_GPU_METADATA is neither allow nor deny.
    """
    value = env.get(METADATA_SETTING, "deny")
    if value not in ("allow", "deny"):
        raise BadConfiguration(
            f"{METADATA_SETTING} is {value!r}", remedy="set it to allow or deny, or leave it out: deny"
        )
    return value == "allow"


def metadata_denials(env: Mapping[str, str], resolv_conf: str = "/etc/resolv.conf") -> tuple[Denial, ...]:
    """Return the denials of link-local and metadata addresses; empty if the operator allows these addresses.

    Args:
        env: The executor's environment.
        resolv_conf: Path of a resolv.conf(5). Port 53 of its name servers is exempt, because the metadata address of
            some clouds (Google, Azure) is the name server of their hosts.

    Raises:
        BadConfiguration: MESOS_GPU_METADATA is neither allow nor deny.
    """
    if allows_metadata(env) or is_off(env):
        return ()
    by_nat64 = (f"64:ff9b::{address}" for address in METADATA if ":" not in address)
    denied = tuple(Denial(None, address) for address in (*_LINK_LOCAL, *METADATA, *by_nat64))
    servers = [each for each in _name_servers(resolv_conf) if any(denial.covers(each) for denial in denied)]
    return (*(Denial(_DNS, each, exempt=True) for each in dict.fromkeys(servers)), *denied)


def _name_servers(resolv_conf: str) -> Iterator[str]:
    """Yield the addresses of the name servers in a resolv.conf(5); none if the file does not exist."""
    with contextlib.suppress(FileNotFoundError), open(resolv_conf, errors="replace") as file:
        for line in file:
            match line.split():
                case ["nameserver", address, *_] if _family(plain := address.partition("%")[0]):
                    yield plain


def denials(
    env: Mapping[str, str], known: Iterable[ControlPort], access: Iterable[str], boot_id: str
) -> tuple[Denial, ...]:
    """Return the denials of control ports, without duplicates; empty if MESOS_GPU_CONTROL_PORTS is `off`.

    Args:
        env: Environment of the executor.
        known: Control ports that the scheduler knows.
        access: Names of ports that the task may reach nevertheless.
        boot_id: Boot id of this host.

    Raises:
        BadConfiguration: MESOS_GPU_CONTROL_PORTS is invalid.
    """
    if is_off(env):
        return ()
    given = frozenset(access)
    own = env.get("MESOS_AGENT_ENDPOINT", "").rpartition(":")[2]
    agents = [ControlPort("agent", int(own))] if own.isdigit() else []
    denied = {
        _denial(each.port, each.address)
        for each in (*agents, *known)
        if each.name not in given and each.boot_id in ("", boot_id)
    }
    denied |= set(listed(env))
    ports = {denial.port for denial in denied if denial.address is None}
    return tuple(
        sorted(
            (d for d in denied if d.address is None or d.port not in ports),
            key=lambda d: (d.port or 0, d.address or ""),
        )
    )
