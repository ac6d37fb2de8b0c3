"""`mesos-gpu deployment`: changes of apps in progress."""

from typing import TYPE_CHECKING, ClassVar, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.apps.changing import ChangeOptions, change_command
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing, aged
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show as show_list
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.types import DEPLOYMENT
from mesos_gpu.errors import Conflict, NotFound
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from mesos_gpu.cli.marathon import Deployment, Marathon


class _Deployment(Table):
    table: ClassVar = {
        "list": (
            "mesos_gpu.cli.apps.deployments:list_deployments",
            "List the deployments in progress.",
        ),
        "show": ("mesos_gpu.cli.apps.deployments", "Show the steps of a deployment, and what it waits for."),
        "stop": (
            "mesos_gpu.cli.apps.deployments",
            "Undo a deployment; with --force, abort it and leave its apps half changed.",
        ),
    }


@click.group(cls=_Deployment)
def deployment() -> None:
    """Deployments: changes of apps in progress.

    An ID may be shortened to its start. A deployment that is over is no longer listed.
    """


def _does(deployment: "Deployment") -> str:
    from mesos_gpu.cli.apps.rolling import what

    return what(deployment["currentActions"])


def _began(deployment: "Deployment") -> float:
    from mesos_gpu.wire.marathon.moments import moment

    return moment(deployment["version"])


_DEPLOYMENTS: Final[Listing["Deployment", "Deployment"]] = Listing(
    columns=(
        Col("ID", lambda record: record["id"]),
        aged("AGE", _began),
        Col("STEP", lambda record: f"{record['currentStep']}/{record['totalSteps']}"),
        Col("APPS", lambda record: " ".join(record["affectedApps"]), wide=True),
        Col("DOES", _does),
        Col("WAITING", lambda record: _waiting(record)),
    ),
    id=lambda record: record["id"],
    rows=lambda record: (record,),
    filters={By.APP: lambda record: record["affectedApps"]},
    fit=Fit(cut=("WAITING", "DOES"), leave=("AGE", "WAITING", "DOES"), ids=("ID",)),
)


@click.command("list")
@list_options(_DEPLOYMENTS)
@api_command
def list_deployments(app: App, asked: "Asked[Deployment, Deployment]") -> None:
    """List the deployments in progress."""
    marathon = app.marathon()
    empty = "No such deployment is in progress." if asked.filtered else "No deployment is in progress."
    show_list(asked, lambda: Seen(marathon.deployments(), empty))


def _waiting(deployment: "Deployment") -> str:
    several = len(deployment["affectedApps"]) > 1
    return "; ".join(f"{app} {why}" if several else why for app, why in sorted(deployment["waiting"].items()))


@click.command()
@click.argument("deployment_id", metavar="ID", type=DEPLOYMENT)
@json_option
@api_command
def show(app: App, deployment_id: str, as_json: bool) -> None:
    """Show the steps of a deployment, and what it waits for."""
    from mesos_gpu.cli.apps.rolling import reason_of, what
    from mesos_gpu.wire.marathon.moments import moment

    marathon = app.marathon()
    deployment = _chosen(marathon, deployment_id)
    if as_json:
        output.document(deployment)
        return
    facts = (
        ("id", deployment["id"]),
        ("began", output.stamp(moment(deployment["version"]))),
        ("apps", " ".join(deployment["affectedApps"])),
        ("overdue", " ".join(deployment.get("overdue", ()))),
        ("undoes", deployment.get("undoes")),
        ("why", reason_of(marathon, deployment)),
    )
    output.pairs([(name, value) for name, value in facts if value])
    click.echo()
    current = deployment["currentStep"]
    rows = [
        (i, "done" if i < current else "now" if i == current else None, what(step["actions"]))
        for i, step in enumerate(deployment["steps"], 1)
    ]
    output.table(("STEP", "STATE", "DOES"), rows, empty="", fit=Fit(wrap=True))


@click.command()
@click.argument("deployment_id", metavar="ID", type=DEPLOYMENT)
@yes_option
@change_command
def stop(app: App, manner: ChangeOptions, deployment_id: str, yes: bool) -> None:
    """Undo a deployment; with --force, abort it and leave its apps half changed.

    Undoing starts another deployment that restores the apps. With --force nothing is restored: apps that are half
    changed are brought to their new definitions, without the steps of the deployment.
    """
    marathon = app.marathon()
    chosen = _chosen(marathon, deployment_id)
    id, apps = chosen["id"], ", ".join(chosen["affectedApps"])
    what = "Leave half done" if manner.force else "Undo"
    output.ask(f"{what} deployment {id} of {apps}?", yes=yes)
    change = marathon.stop(id, force=manner.force)
    if manner.as_json:
        output.document(change or {"deploymentId": None})
    else:
        output.line(f"{id}: stopped" + ("; its apps are not restored" if change is None else ""))
    if change is not None:
        manner.tell(marathon, "undoing it", change, undoes=True)


def _chosen(marathon: "Marathon", start: str) -> "Deployment":
    """Return the only deployment whose id begins with `start`."""
    matching = [deployment for deployment in marathon.deployments() if deployment["id"].startswith(start)]
    if not matching:
        raise NotFound(
            f"no deployment {start} is in progress", remedy="list deployments with: mesos-gpu deployment list"
        )
    if len(matching) > 1:
        ids = ", ".join(deployment["id"] for deployment in matching)
        raise Conflict(f"several deployments begin with {start}: {ids}", remedy="give more of the ID")
    return matching[0]
