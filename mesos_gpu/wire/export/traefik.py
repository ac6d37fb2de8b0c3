"""Services as dynamic configuration for Traefik's HTTP provider, versions 2 and 3; pure functions."""

from collections.abc import Iterable
from typing import Any, Final

from mesos_gpu.model.apps.split import Backend, Mode, Server

_HASHES: Final = ("$2a$", "$2b$", "$2y$", "$apr1$")  # forms that Traefik's middleware basicAuth supports


def render(backends: Iterable[Backend]) -> dict[str, Any]:
    """Return the document without empty parts, which Traefik refuses."""
    every = [backend for backend in backends if not backend.left_out and not why_left_out(backend)]
    http, tcp = ([backend for backend in every if backend.mode is mode] for mode in (Mode.HTTP, Mode.TCP))
    routers = {backend.name: _router(backend) for backend in http if backend.hosts}
    middlewares = {name: body for each in http for name, body in _middlewares(each).items()}
    services = {name: body for each in http for name, body in _services(each).items()}
    tcp_services = {name: body for each in tcp for name, body in _services(each).items()}
    of_http = _filled(routers=routers, services=services, middlewares=middlewares)
    document = {"http": of_http, "tcp": _filled(services=tcp_services)}
    return _filled(**document)


def _filled(**parts: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if part}


def why_left_out(backend: Backend) -> str:
    """Return why Traefik cannot restrict access to a service as requested, so that it is left out; "" if it can."""
    if backend.login is not None and not backend.login.password.startswith(_HASHES):
        return "Traefik needs the password in HAPROXY_n_AUTH as a hash of bcrypt ($2y$) or apr1"
    if (backend.path or backend.login or backend.https_only) and not backend.hosts:
        return "Traefik restricts access in routers, which need a host; set the label HAPROXY_n_VHOST"
    return ""


def _router(backend: Backend) -> dict[str, Any]:
    rule = " || ".join(f"Host(`{host}`)" for host in backend.hosts)
    if backend.path:
        rule = f"({rule}) && PathPrefix(`{backend.path}`)"
    names = list(_middlewares(backend))
    return {"rule": rule, "service": backend.name, **({"middlewares": names} if names else {})}


def _middlewares(backend: Backend) -> dict[str, Any]:
    """Return the middlewares of a service by name, in their order."""
    middlewares: dict[str, Any] = {}
    if backend.https_only:
        middlewares[f"{backend.name}__https"] = {"redirectScheme": {"scheme": "https", "permanent": True}}
    if (login := backend.login) is not None:
        users = [f"{login.user}:{login.password}"]
        middlewares[f"{backend.name}__login"] = {"basicAuth": {"realm": login.realm, "users": users}}
    return middlewares


def _services(backend: Backend) -> dict[str, Any]:
    """Return a service for each app and one that weighs them; without shares, a single service without servers."""
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
            _server(server, backend.mode)
            for server in backend.servers
            if server.app_id == app and not server.problem
        ]
        balancer: dict[str, Any] = {"servers": servers}
        if sticky:
            balancer["sticky"] = {"cookie": {"httpOnly": True}}
        services[name] = {"loadBalancer": balancer}
    return services


def _server(server: Server, mode: Mode) -> dict[str, str]:
    return {"url": f"http://{server.place}"} if mode is Mode.HTTP else {"address": server.place}
