"""Requests of `mesos-gpu service` to the scheduler."""

from collections.abc import Sequence
from typing import TypedDict
from urllib.parse import quote

from mesos_gpu.cli.client import Client


class Asked(TypedDict):
    """A requested service; null values are taken from labels of its apps."""

    apps: dict[str, int]
    port_index: int
    port: int | None
    hosts: list[str]
    mode: str | None


class Share(TypedDict):
    """An app of a service: its weight, and the share of requests that it gets now, 0 to 1."""

    id: str
    weight: int
    share: float
    exists: bool
    instances: int
    serving: int


class Server(TypedDict):
    """A task that serves requests."""

    task_id: str
    app: str
    host: str
    port: int
    weight: int


class Service(TypedDict):
    """A service in the form for load balancers; `asked` is null if only labels define it."""

    name: str
    mode: str
    port: int | None
    hosts: list[str]
    balance: str
    sticky: bool
    apps: list[Share]
    servers: list[Server]
    asked: Asked | None
    problems: list[str]
    path: str | None
    login: bool
    https_only: bool
    left_out: str | None
    left_out_of_traefik: str | None


class _Listing(TypedDict):
    """Answer of /v1/services."""

    services: list[Service]


class Services:
    """Requests for the scheduler's services, with an open client; they raise what `Client` raises."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def all(self, groups: Sequence[str] = ()) -> list[Service]:
        """Return the services that were created by name, and those that labels of apps in any of `groups` define."""
        return self._client.call("GET", "/v1/services", _Listing, {"group": list(groups)})["services"]

    def one(self, name: str) -> Service:
        """Return a service by its name."""
        return self._client.call("GET", _path(name), Service)

    def put(self, name: str, asked: Asked) -> Service:
        """Create a service, or replace it as a whole."""
        return self._client.call("PUT", _path(name), Service, body=asked)

    def drop(self, name: str) -> Service:
        """Remove a service; its apps stay."""
        return self._client.call("DELETE", _path(name), Service)

    def text(self, form: str, name: str | None, groups: Sequence[str], http_port: int) -> bytes:
        """Return all services, or one, in the format `form` (json, haproxy, traefik)."""
        query = {"format": form, "group": list(groups), "http_port": http_port}
        return self._client.call("GET", _path(name) if name else "/v1/services", bytes, query)


def _path(name: str) -> str:
    return f"/v1/services/{quote(name, safe='')}"
