"""Ports of the control plane of this cluster, which tasks must not reach."""

import ipaddress
import socket
from collections import Counter
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

import psutil

from mesos_gpu.adapters.proc import boot_id
from mesos_gpu.engine.effects import Effect
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.model.saves import ForgetNode, SaveNode

_DEFAULT: Final = {"agent": 5051, "master": 5050}


def of_cluster(master_url: str, agent_urls: Iterable[str]) -> tuple[ControlPort, ...]:
    """Return the ports of the master and of all agents.

    The ports are forbidden on any address: a user who controls another host's agent is root there.

    Args:
        master_url: URL of the master that the scheduler is subscribed to; "" if none.
        agent_urls: URLs of all known agents.
    """
    urls = [("master", master_url), *(("agent", url) for url in agent_urls)]
    return _controls(_ports(urls))


def _ports(urls: Iterable[tuple[str, str]]) -> set[tuple[str, int]]:
    return {(name, urlsplit(url).port or _DEFAULT[name]) for name, url in urls if url}


def _controls(ports: Iterable[tuple[str, int]]) -> tuple[ControlPort, ...]:
    return tuple(ControlPort(name, port) for name, port in sorted(ports))


class ClusterPorts:
    """The ports of `of_cluster`, updated incrementally so that a launch need not visit all agents.

    For the engine's thread only.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._urls: dict[AgentId, str] = {}
        self._agents: Counter[tuple[str, int]] = Counter()
        for node in state.cluster.nodes.values():
            self._note(node.id, node.agent_url)

    def follow(self, effects: Iterable[Effect]) -> None:
        """Apply the nodes that were added, removed or changed by saved effects."""
        for effect in effects:
            if isinstance(effect, SaveNode):
                self._note(effect.node.id, effect.node.agent_url)
            elif isinstance(effect, ForgetNode):
                self._note(effect.agent_id, "")

    def _note(self, agent_id: AgentId, url: str) -> None:
        old = self._urls.get(agent_id, "")
        if url == old:
            return
        self._agents.subtract(_ports([("agent", old)]))
        self._agents.update(_ports([("agent", url)]))
        self._urls[agent_id] = url
        if not url:
            del self._urls[agent_id]

    def now(self) -> tuple[ControlPort, ...]:
        """Return the current ports."""
        agents = {port for port, count in self._agents.items() if count > 0}
        return _controls(agents | _ports([("master", self._state.mesos.master_url)]))


def of_api(host: str, port: int) -> tuple[ControlPort, ...]:
    """Return the ports of the REST interface: on this host for any address, elsewhere only at its own addresses.

    Args:
        host: Name or address that the interface listens on.
        port: Port that it listens on.

    Raises:
        OSError: The name cannot be resolved.
    """
    addresses = {ipaddress.ip_address(text) for text in _addresses(host)}
    if any(address.is_unspecified for address in addresses):
        here = (entry for entries in psutil.net_if_addrs().values() for entry in entries)
        texts = [entry.address for entry in here if entry.family in (socket.AF_INET, socket.AF_INET6)]
        addresses = {ipaddress.ip_address(text.partition("%")[0]) for text in texts}
    remote = sorted(str(address) for address in addresses if not address.is_loopback)
    return (
        ControlPort("api", port, boot_id=boot_id()),
        *(ControlPort("api", port, address) for address in remote),
    )


def _addresses(host: str) -> set[str]:
    infos = socket.getaddrinfo(host or None, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return {str(address[0]).partition("%")[0] for *_, address in infos}
