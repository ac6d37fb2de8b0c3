"""`mesos-gpu service`: names whose requests are split over apps."""

import time
from typing import TYPE_CHECKING, ClassVar, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show as show_list
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.types import APP, DURATION, Ref
from mesos_gpu.errors import Conflict, MesosGpuError
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mesos_gpu.cli.apps.splits import Asked as SplitAsked
    from mesos_gpu.cli.apps.splits import Service, Services, Share
    from mesos_gpu.cli.client import Client

_LOOK_S: Final = 1.0


def _names(client: "Client") -> list[str]:
    from mesos_gpu.cli.apps.splits import Services

    return [service["name"] for service in Services(client).all()]


NAME: Final = Ref(
    "name",
    r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
    "the name of a service: 1 to 63 of a-z, 0-9 and -, with - inside only",
    _names,
)


class Weight(click.ParamType[tuple[str, int]]):
    """A command-line argument of the form APP=WEIGHT."""

    name = "app=weight"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Return the absolute id of the app, and its weight."""
        if isinstance(value, tuple):
            return value
        id, equals, weight = value.rpartition("=")
        if not equals or not (weight.isascii() and weight.isdigit()):
            self.fail(f"{value!r} is not APP=WEIGHT, for example /shop/web=90", param, ctx)
        return APP.convert(id, param, ctx), int(weight)


class _Service(Table):
    table: ClassVar = {
        "list": (
            "mesos_gpu.cli.apps.service:list_services",
            "List services and the apps that their requests go to.",
        ),
        "show": ("mesos_gpu.cli.apps.service", "Show a service, its apps and the tasks that serve it."),
        "split": ("mesos_gpu.cli.apps.service", "Create a service, or replace the weights of its apps."),
        "unsplit": ("mesos_gpu.cli.apps.service", "Remove a service; its apps keep running."),
        "shift": (
            "mesos_gpu.cli.apps.service",
            "Move a service's requests from one app to another, step by step.",
        ),
        "export": (
            "mesos_gpu.cli.apps.service_export",
            "Write a load balancer's configuration, and keep it up to date.",
        ),
    }


@click.group(cls=_Service)
def service() -> None:
    """Services: names whose requests are split over apps.

    HAProxy or Traefik serves them as load balancer, with the configuration of `mesos-gpu service export`.
    """


def _services(app: App) -> "Services":
    from mesos_gpu.cli.apps.splits import Services

    return Services(app.client())


_SERVICES: Final[Listing["Service", "Service"]] = Listing(
    columns=(
        Col("NAME", lambda record: record["name"]),
        Col("MODE", lambda record: record["mode"]),
        Col("PORT", lambda record: record["port"]),
        Col("HOSTS", lambda record: ",".join(record["hosts"])),
        Col("BALANCE", lambda record: record["balance"], wide=True),
        Col("SERVERS", lambda record: len(record["servers"])),
        Col("EXPORT", lambda record: "left out" if record["left_out"] else "yes"),
        Col("APPS", lambda record: " ".join(f"{share['id']}={share['weight']}" for share in record["apps"])),
    ),
    id=lambda record: record["name"],
    rows=lambda record: (record,),
    filters={
        By.NAME: lambda record: (record["name"],),
        By.APP: lambda record: [share["id"] for share in record["apps"]],
    },
    fit=Fit(cut=("APPS", "HOSTS"), leave=("MODE", "HOSTS", "PORT")),
)


@click.command("list")
@click.option(
    "--group",
    "groups",
    multiple=True,
    help="Also services from apps' labels HAPROXY_GROUP with this value; * for all.",
)
@list_options(_SERVICES)
@api_command
def list_services(app: App, groups: tuple[str, ...], asked: "Asked[Service, Service]") -> None:
    """List services and the apps that their requests go to."""
    services = _services(app)
    nothing = "No service; create one with: mesos-gpu service split NAME /app=100"
    empty = "No such service." if asked.filtered else nothing

    def load() -> "Seen[Service]":
        listed = services.all(groups)
        return Seen(listed, empty, lambda chosen: {"services": chosen}, notes=left_out(listed))

    show_list(asked, load)


def left_out(services: "Iterable[Service]", form: str = "") -> list[str]:
    """Return a note for each service that is left out of exports, or of that for the load balancer `form`, with why."""
    reasons = [
        (
            service["name"],
            service["left_out"] or (service["left_out_of_traefik"] if form == "traefik" else None),
        )
        for service in services
    ]
    return [f"service {name} is not exported: {why}" for name, why in reasons if why]


@click.command()
@click.argument("name", type=NAME)
@json_option
@api_command
def show(app: App, name: str, as_json: bool) -> None:
    """Show a service, its apps and the tasks that serve it."""
    _show(_services(app).one(name), as_json)


def _show(service: "Service", as_json: bool) -> None:
    """Print a service, its apps with their shares of requests, and the tasks that serve it."""
    if as_json:
        output.document(service)
        return
    output.pairs(
        [
            ("name", service["name"]),
            ("mode", service["mode"]),
            ("port", service["port"]),
            ("hosts", ", ".join(service["hosts"])),
            ("balance", service["balance"] + (", sticky" if service["sticky"] else "")),
            ("path", service["path"]),
            ("clients", _clients(service)),
        ]
    )
    click.echo()
    output.table(
        ("APP", "WEIGHT", "SHARE", "SERVING", "INSTANCES"),
        [_row(share) for share in service["apps"]],
        empty="",
    )
    click.echo()
    output.table(
        ("TASK", "AT", "WEIGHT"),
        [
            (server["task_id"], f"{server['host']}:{server['port']}", server["weight"])
            for server in service["servers"]
        ],
        empty="No task serves.",
    )
    for problem in (*left_out([service]), *service["problems"]):
        output.note(problem)


def _clients(service: "Service") -> str:
    """Return what the load balancer requires of clients; "" if nothing."""
    needs = ["TLS"] if service["https_only"] else []
    needs += ["a name and a password"] if service["login"] else []
    return f"need {' and '.join(needs)}" if needs else ""


def _row(share: "Share") -> tuple[object, ...]:
    id = share["id"] if share["exists"] else f"{share['id']} (does not exist)"
    return id, share["weight"], f"{share['share']:.1%}", share["serving"], share["instances"]


@click.command()
@click.argument("name", type=NAME)
@click.argument("weights", metavar="APP=WEIGHT...", nargs=-1, required=True, type=Weight())
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="N", help="Port at which the load balancer listens."
)
@click.option(
    "--port-index",
    type=click.IntRange(0, 99),
    metavar="N",
    help="Index of the apps' port that serves; the first is 0.",
)
@click.option("--host", "hosts", multiple=True, help="Virtual host of the service; may be repeated.")
@click.option("--mode", type=click.Choice(["http", "tcp"]), help="Protocol of the traffic.")
@json_option
@api_command
def split(
    app: App,
    name: str,
    weights: tuple[tuple[str, int], ...],
    port: int | None,
    port_index: int | None,
    hosts: tuple[str, ...],
    mode: str | None,
    as_json: bool,
) -> None:
    """Create a service, or replace the weights of its apps.

    Each app gets requests in proportion to its weight: /a=90 /b=10, or /a=9 /b=1. The given weights replace all former
    ones. Options that are not given stay; a new service takes them from labels of the apps.

    \b
      mesos-gpu service split chat /chat-a=90 /chat-b=10 --port 10080
    """
    services = _services(app)
    request = _asked(services, name)
    request["apps"] = dict(weights)
    request["port"] = port or request["port"]
    request["port_index"] = request["port_index"] if port_index is None else port_index
    request["hosts"] = list(hosts) or request["hosts"]
    request["mode"] = mode or request["mode"]
    _show(services.put(name, request), as_json)


def _asked(services: "Services", name: str) -> "SplitAsked":
    """Return the current request for a service; an empty request for a new service."""
    by_name = {service["name"]: service["asked"] for service in services.all()}
    return by_name.get(name) or {"apps": {}, "port_index": 0, "port": None, "hosts": [], "mode": None}


@click.command()
@click.argument("name", type=NAME)
@yes_option
@json_option
@api_command
def unsplit(app: App, name: str, yes: bool, as_json: bool) -> None:
    """Remove a service; its apps keep running."""
    output.ask(f"Remove service {name}?", yes=yes)
    service = _services(app).drop(name)
    if as_json:
        output.document(service)
        return
    output.line(f"service {name} was removed; its apps keep running")


@click.command()
@click.argument("name", type=NAME)
@click.option("--from", "old", type=APP, required=True, help="App that loses weight.")
@click.option("--to", "new", type=APP, required=True, help="App that gains the weight.")
@click.option(
    "--step",
    default=20,
    show_default=True,
    type=click.IntRange(1, 100),
    metavar="N",
    help="Percent of the weight of both apps to move in each step.",
)
@click.option("--interval", type=DURATION, default="30s", show_default=True, help="Time between two steps.")
@json_option
@api_command
def shift(app: App, name: str, old: str, new: str, step: int, interval: float, as_json: bool) -> None:
    """Move a service's requests from one app to another, step by step.

    It stops, and leaves the weights as they are, as soon as an instance of the new app does not serve.

    \b
      mesos-gpu service shift chat --from /chat-a --to /chat-b --step 10 --interval 1m
    """
    if old == new:
        raise click.UsageError("--from and --to name one app; give two")
    from mesos_gpu.cli.apps.splits import Services
    from mesos_gpu.cli.waiting import be_patient

    client = app.client()
    services = Services(client)
    service = services.one(name)
    be_patient(client)
    total = sum(_weight(service, id) for id in (old, new))
    if not _weight(service, old):
        raise Conflict(
            f"{old} has no weight in service {name}", remedy=f"look at it with: mesos-gpu service show {name}"
        )
    while _weight(service, old):
        _must_serve(service, old, new)
        service = _moved(services, service, old, new, -(-total * step // 100))
        if not as_json:
            output.line(f"{old}={_weight(service, old)} {new}={_weight(service, new)}")
        if _weight(service, old):
            service = _watched(services, service, old, new, interval)
    if as_json:
        output.document(service)


def _weight(service: "Service", app: str) -> int:
    return next((share["weight"] for share in service["apps"] if share["id"] == app), 0)


def _moved(services: "Services", service: "Service", old: str, new: str, by: int) -> "Service":
    assert service["asked"] is not None
    left = max(0, _weight(service, old) - by)
    given = _weight(service, new) + _weight(service, old) - left
    return services.put(
        service["name"], {**service["asked"], "apps": {**service["asked"]["apps"], old: left, new: given}}
    )


def _watched(services: "Services", service: "Service", old: str, new: str, interval_s: float) -> "Service":
    """Watch the service for `interval_s`, check that the new app serves, and return the service."""
    end = time.monotonic() + interval_s
    while (left_s := end - time.monotonic()) > 0:
        time.sleep(min(left_s, _LOOK_S))
        now = services.one(service["name"])
        if now["asked"] != service["asked"]:
            what = f"service {service['name']} was changed by another user or command"
            raise Conflict(what, remedy=f"look at it with: mesos-gpu service show {service['name']}")
        _must_serve(now, old, new)
    return service


def _must_serve(service: "Service", old: str, new: str) -> None:
    share = next((share_of_app for share_of_app in service["apps"] if share_of_app["id"] == new), None)
    if share is None or share["serving"] >= max(share["instances"], 1):
        return
    what = f"stopped: {share['serving']} of {share['instances']} instances of {new} serve"
    total = _weight(service, old) + _weight(service, new)
    back = f"mesos-gpu service split {service['name']} {old}={total} {new}=0"
    raise MesosGpuError(what, remedy=f"see why with: mesos-gpu app show {new}; go back with: {back}")
