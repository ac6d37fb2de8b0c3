"""What a load balancer gives to one service only: whoever has it first keeps others from it."""

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
    """What an app asks for, in words: virtual hosts, ports where a load balancer listens, and the group of apps that
    share their service, whose newest member gets what comes for the others."""
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
    """What a service asks for itself, in the same words."""
    return frozenset({*map(_host, split.hosts), *([_port(split.port)] if split.port else [])})


class Others:
    """What apps have whose services somebody else commands than who asks."""

    def __init__(self, sight: AppSight, apps: Mapping[str, App], splits: Iterable[TrafficSplit]) -> None:
        """Look through all apps, by id, and all services."""
        self._by: dict[str, set[str]] = {}  # by word, who has it: ids of apps, names of services
        if sight.rights.is_open:
            return
        foreign = {id for id, app in apps.items() if not sight.may(SERVICE_WRITE, app)}
        for id in foreign:
            self._note(id, wanted_by(apps[id]))
        for split in splits:
            if not foreign.isdisjoint(split.weights):
                self._note(split.name, wanted_by_service(split))

    def _note(self, who: str, words: Iterable[str]) -> None:
        for word in words:
            self._by.setdefault(word, set()).add(who)

    def have(self, wanted: Iterable[str], *, but: str = "") -> list[str]:
        """Which words of `wanted` are taken. `but`: the app or the service that asks."""
        return sorted(word for word in wanted if self._by.get(word, set()) - {but})


def _host(name: str) -> str:
    return f"the virtual host {name.strip().lower()}"


def _port(number: int) -> str:
    return f"{PORT} {number}"
