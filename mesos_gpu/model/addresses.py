"""Which hosts are this machine alone."""

import ipaddress


def is_loopback_address(text: str) -> bool:
    """Whether it is an address of loopback, also one of IPv4 that is written as one of IPv6; no name is."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def is_loopback_host(host: str) -> bool:
    """Whether it is an address of loopback, or the name that every host has for itself."""
    return host == "localhost" or is_loopback_address(host)
