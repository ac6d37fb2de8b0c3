"""Names of virtual hosts and ports of load balancers: whoever has them first keeps them from others."""

from collections.abc import Iterable, Iterator, Mapping

from mesos_gpu.access.rights import SERVICE_WRITE
from mesos_gpu.api.sight.apps import AppSight
from mesos_gpu.model.apps.app import App
from mesos_gpu.model.apps.split import TrafficSplit


def hosts_of(app: App) -> frozenset[str]:
    """The virtual hosts that an app's labels ask for, as HAPROXY_0_VHOST of marathon-lb."""
    return frozenset(
        host.strip().lower()
        for label, value in app.labels.items()
        if label.startswith("HAPROXY_") and label.endswith("_VHOST")
        for host in value.split(",")
        if host.strip()
    )


def taken(
    sight: AppSight,
    hosts: Iterable[str],
    apps: Mapping[str, App],
    splits: Iterable[TrafficSplit],
    *,
    but: str = "",
) -> Iterator[str]:
    """The names of `hosts` that lead to apps whose services somebody else commands.

    Args:
        sight: Of who asks for the hosts.
        hosts: Names of virtual hosts.
        apps: All apps, by id.
        splits: All services.
        but: The app or the service that asks.
    """
    if sight.rights.is_open:
        return
    others: dict[str, list[App]] = {}
    for app in apps.values():
        if app.id != but:
            for host in hosts_of(app):
                others.setdefault(host, []).append(app)
    for split in splits:
        if split.name != but:
            for host in split.hosts:
                others.setdefault(host.lower(), []).extend(apps[id] for id in split.weights if id in apps)
    for host in sorted({host.lower() for host in hosts}):
        if any(not sight.may(SERVICE_WRITE, app) for app in others.get(host, ())):
            yield host
