"""Recognition of loopback addresses and host names."""

import ipaddress


def is_loopback_address(text: str) -> bool:
    """Return whether a text is a loopback address, also an IPv4 one written as IPv6; False for every name."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def is_loopback_host(host: str) -> bool:
    """Return whether a host is a loopback address or `localhost`."""
    return host == "localhost" or is_loopback_address(host)
