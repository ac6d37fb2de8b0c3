"""Virtual hosts and ports that a load balancer gives to one service only: the first one keeps others from it."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from mesos_gpu.access.rights import SERVICE_WRITE
from mesos_gpu.api.sight.apps import AppSight
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.apps.split import TrafficSplit
from mesos_gpu.model.words import whole_of
from mesos_gpu.policy.apps.backends import DEPLOYMENT_GROUP

_HOSTS: Final = re.compile(r"HAPROXY_.*_VHOST")
PORT: Final = "the service port"
_PORT: Final = re.compile(r"HAPROXY_.*_PORT")


def wanted_by(app: App) -> frozenset[str]:
    """Return what an app claims, in words.

    That is virtual hosts, ports where a load balancer listens, and the deployment group, whose newest app gets the
    requests for the others.
    """
    hosts = (value for label, value in app.labels.items() if _HOSTS.fullmatch(label))
    numbers = [whole_of(value.strip()) for label, value in app.labels.items() if _PORT.fullmatch(label)]
    group = app.labels.get(DEPLOYMENT_GROUP, "").strip().strip("/")
    return frozenset(
        {
            *(_host(host) for value in hosts for host in value.split(",") if host.strip()),
            *(_port(port) for port in numbers if port is not None),
            *(_port(port) for port in app.service_ports if port),
            *([f"the deployment group {group}"] if group else []),
        }
    )


def wanted_by_service(split: TrafficSplit) -> frozenset[str]:
    """Return what a service itself claims, in the words of `wanted_by`."""
    return frozenset({*map(_host, split.hosts), *([_port(split.port)] if split.port else [])})


class Others:
    """Claims of apps and services that the caller may not change.

    Args:
        sight: Visibility of apps for the caller.
        apps: Apps of the whole tree, by id.
        splits: Services that split requests over apps.
    """

    def __init__(self, sight: AppSight, apps: Mapping[str, App], splits: Iterable[TrafficSplit]) -> None:
        self._by: dict[str, set[str]] = {}  # ids of apps and names of services by claim
        if sight.rights.is_open:
            return
        foreign = {id for id, app in apps.items() if not sight.may(SERVICE_WRITE, app)}
        for id in foreign:
            self._note(id, wanted_by(apps[id]))
        for split in splits:
            if not foreign.isdisjoint(split.weights):
                self._note(split.name, wanted_by_service(split))

    def _note(self, who: str, words: Iterable[str]) -> None:
        """Store claims of an app or a service."""
        for word in words:
            self._by.setdefault(word, set()).add(who)

    def have(self, wanted: Iterable[str], *, but: str = "") -> list[str]:
        """Return which of the claims `wanted` are taken. `but`: the app or service that makes them."""
        return sorted(word for word in wanted if self._by.get(word, set()) - {but})


def _host(name: str) -> str:
    return f"the virtual host {name.strip().lower()}"


def _port(number: int) -> str:
    return f"{PORT} {number}"
