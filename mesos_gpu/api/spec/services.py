"""What /v1 answers about services, as types."""

from typing import Annotated, TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.model.apps.split import Mode


class ServiceApp(TypedDict):
    """An app of a service: what share of the requests it gets, and how many of its instances serve."""

    id: str
    weight: Count
    share: float
    exists: bool
    instances: Count
    serving: Count


class ServiceServer(TypedDict):
    """A task that serves; `weight` is among all servers of its service."""

    task_id: str
    app: str
    host: str
    port: int
    weight: Count


class ServiceAsked(TypedDict):
    """A service as it was asked for."""

    apps: dict[str, int]
    port_index: int
    port: int | None
    hosts: list[str]
    mode: Annotated[str, one_of(*Mode)] | None


class Service(TypedDict):
    """A name whose requests are split over apps, as a load balancer shall serve it now."""

    name: str
    mode: Annotated[str, one_of(*Mode)]
    port: int | None
    hosts: list[str]
    balance: str
    sticky: bool
    apps: list[ServiceApp]
    servers: list[ServiceServer]
    asked: Annotated[ServiceAsked | None, says(description="null: only labels of apps ask for it")]
    problems: list[str]
    path: Annotated[str | None, says(description="What paths of requests begin with; null: any")]
    login: Annotated[bool, says(description="Whether clients need a name and a password")]
    https_only: Annotated[bool, says(description="Whether a request without TLS is redirected")]
    left_out: Annotated[str | None, says(description="Why no export has it; null: each has it")]
    left_out_of_traefik: Annotated[
        str | None, says(description="Why the export for Traefik lacks it; null: it has it")
    ]


class Services(TypedDict):
    """Services."""

    services: list[Service]
