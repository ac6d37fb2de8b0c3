"""Which ports command this cluster: what tasks are kept from."""

import ipaddress
import socket
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

import psutil

from mesos_gpu.adapters.proc import boot_id
from mesos_gpu.model.nodes.control import ControlPort

_DEFAULT: Final = {"agent": 5051, "master": 5050}


def of_cluster(master_url: str, agent_urls: Iterable[str]) -> tuple[ControlPort, ...]:
    """The ports of the master and of the agents, on any address: whoever commands another host's agent is root there.

    Args:
        master_url: Of the one that we are subscribed with; "": none.
        agent_urls: Of all agents that are known.
    """
    urls = [("master", master_url), *(("agent", url) for url in agent_urls)]
    ports = {(name, urlsplit(url).port or _DEFAULT[name]) for name, url in urls if url}
    return tuple(ControlPort(name, port) for name, port in sorted(ports))


def of_api(host: str, port: int) -> tuple[ControlPort, ...]:
    """The REST interface: on this host whatever the address; elsewhere on the addresses that lead to it.

    Args:
        host: That it listens on, a name or an address.
        port: Its port.

    Raises:
        OSError: There is no such name.
    """
    addresses = {ipaddress.ip_address(text) for text in _addresses(host)}
    if any(address.is_unspecified for address in addresses):
        here = (entry for entries in psutil.net_if_addrs().values() for entry in entries)
        texts = [entry.address for entry in here if entry.family in (socket.AF_INET, socket.AF_INET6)]
        addresses = {ipaddress.ip_address(text.partition("%")[0]) for text in texts}
    away = sorted(str(address) for address in addresses if not address.is_loopback)
    return (ControlPort("api", port, boot_id=boot_id()), *(ControlPort("api", port, each) for each in away))


def _addresses(host: str) -> set[str]:
    infos = socket.getaddrinfo(host or None, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return {str(address[0]).partition("%")[0] for *_, address in infos}
