"""Services as Traefik's HTTP provider reads them: its dynamic configuration, versions 2 and 3. Pure."""

from collections.abc import Iterable
from typing import Any

from mesos_gpu.model.apps.split import Backend, Mode, Server


def render(backends: Iterable[Backend]) -> dict[str, Any]:
    """The document; what would be empty is left out, as Traefik refuses it."""
    every = list(backends)
    http, tcp = ([each for each in every if each.mode is mode] for mode in (Mode.HTTP, Mode.TCP))
    routers = {each.name: _router(each) for each in http if each.hosts}
    services = {name: body for each in http for name, body in _services(each).items()}
    tcp_services = {name: body for each in tcp for name, body in _services(each).items()}
    document = {"http": _filled(routers=routers, services=services), "tcp": _filled(services=tcp_services)}
    return _filled(**document)


def _filled(**parts: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if part}


def _router(backend: Backend) -> dict[str, Any]:
    return {"rule": " || ".join(f"Host(`{host}`)" for host in backend.hosts), "service": backend.name}


def _services(backend: Backend) -> dict[str, Any]:
    """A service for each app, and the service that weighs them; without a server there is one that has none."""
    if not backend.shares:
        return {backend.name: {"loadBalancer": {"servers": []}}}
    names = {app: f"{backend.name}__{app.strip('/').replace('/', '_')}" for app in backend.shares}
    weighted: dict[str, Any] = {
        "services": [{"name": names[app], "weight": weight} for app, weight in backend.shares.items()]
    }
    sticky = backend.sticky and backend.mode is Mode.HTTP
    if sticky:
        weighted["sticky"] = {"cookie": {"httpOnly": True}}
    services: dict[str, Any] = {backend.name: {"weighted": weighted}}
    for app, name in names.items():
        servers = [
            _server(each, backend.mode) for each in backend.servers if each.app_id == app and not each.problem
        ]
        balancer: dict[str, Any] = {"servers": servers}
        if sticky:
            balancer["sticky"] = {"cookie": {"httpOnly": True}}
        services[name] = {"loadBalancer": balancer}
    return services


def _server(server: Server, mode: Mode) -> dict[str, str]:
    return {"url": f"http://{server.place}"} if mode is Mode.HTTP else {"address": server.place}
