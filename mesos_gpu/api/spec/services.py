"""Types of answers about services."""

from typing import Annotated, TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.model.apps.split import Mode


class ServiceApp(TypedDict):
    """An app of a service: its share of the requests, and the number of its serving instances."""

    id: str
    weight: Count
    share: float
    exists: bool
    instances: Count
    serving: Count


class ServiceServer(TypedDict):
    """A serving task; `weight` is relative to all servers of its service."""

    task_id: str
    app: str
    host: str
    port: int
    weight: Count


class ServiceAsked(TypedDict):
    """A service as requested."""

    apps: dict[str, int]
    port_index: int
    port: int | None
    hosts: list[str]
    mode: Annotated[str, one_of(*Mode)] | None


class Service(TypedDict):
    """A service: a name whose requests are split over apps, in the form that a load balancer should serve now."""

    name: str
    mode: Annotated[str, one_of(*Mode)]
    port: int | None
    hosts: list[str]
    balance: str
    sticky: bool
    apps: list[ServiceApp]
    servers: list[ServiceServer]
    asked: Annotated[ServiceAsked | None, says(description="null: defined by labels of apps only")]
    problems: list[str]
    path: Annotated[str | None, says(description="prefix of the paths of requests; null: any path")]
    login: Annotated[bool, says(description="whether clients need a name and a password")]
    https_only: Annotated[bool, says(description="whether a request without TLS is redirected")]
    left_out: Annotated[str | None, says(description="why no export contains it; null: all exports do")]
    left_out_of_traefik: Annotated[
        str | None, says(description="why the export for Traefik does not contain it; null: it does")
    ]


class Services(TypedDict):
    """A list of services."""

    services: list[Service]
