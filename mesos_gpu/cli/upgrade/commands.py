"""`mesos-gpu upgrade`: plan of an upgrade to this program; nothing is changed."""

import hashlib
from pathlib import Path
from typing import ClassVar

import click

from mesos_gpu import __version__
from mesos_gpu.api.peers import Leadership
from mesos_gpu.api.spec.cluster.upgrade import Upgrade
from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.client import Refused
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.upgrade.plan import Plan, Program, Release, plan_of
from mesos_gpu.model.nodes.wires import OLDEST, WIRE, spoken


class _Upgrade(Table):
    table: ClassVar = {
        "plan": (
            "mesos_gpu.cli.upgrade.commands",
            "Show what an upgrade to this program would do, without changing anything.",
        ),
    }


@click.group(cls=_Upgrade)
def upgrade() -> None:
    """Upgrades: differences between the running release and this program."""


@click.command()
@click.option(
    "--executor-archive",
    "archive",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The new mesos-gpu-executor.pyz of the hosts: monitors with another one are replaced.",
)
@click.option(
    "-o", "--output", "form", type=click.Choice(("text", "json")), default="text", help="Output format."
)
@json_option
@api_command
def plan(app: App, archive: Path | None, form: str, as_json: bool) -> None:
    """Show what an upgrade to this program would do, without changing anything.

    Run the new release's command with the address of the running scheduler. It shows obstacles, the steps in order, the
    monitors to be replaced, executors that continue, and what cannot be undone. The exit code is 1 if there are
    obstacles.

    \b
      mesos-gpu upgrade plan
      mesos-gpu upgrade plan --executor-archive mesos-gpu-executor.pyz -o json
    """
    client = app.client()
    version = client.status()["version"]
    try:
        upgrade_info, leadership = client.get("/v1/upgrade", Upgrade), client.get("/v1/leader", Leadership)
    except Refused as error:
        if error.http_status != 404:
            raise
        upgrade_info, leadership = None, None
    upgrade_plan = plan_of(upgrade_info, version, leadership, _this(archive))
    output.document(upgrade_plan) if as_json or form == "json" else _shown(
        upgrade_plan, can_tell=upgrade_info is not None
    )
    if upgrade_plan["in_the_way"]:
        click.get_current_context().exit(1)


def _this(archive: Path | None) -> Program:
    from mesos_gpu.adapters.sqlite.schema import latest
    from mesos_gpu.scheduler.__main__ import scheduler
    from mesos_gpu.scheduler.options.cluster.flags import flags_of

    release: Release = {"version": __version__, "wire": WIRE, "oldest": OLDEST, "schema": latest()}
    digest = hashlib.sha256(archive.read_bytes()).hexdigest() if archive else ""
    return Program(release, tuple(flags_of(scheduler)), digest)


def _shown(plan: Plan, *, can_tell: bool) -> None:
    """Print a plan; `can_tell` is whether the running release reports its options and programs."""
    output.line(f"running: {_of(plan['running'])}")
    output.line(f"this: {_of(plan['this'])}")
    if not can_tell:
        output.line("the running release is too old to report its options and the programs on hosts")
    for obstacle in plan["in_the_way"]:
        output.folded("in the way: ", obstacle)
    if not plan["needed"]:
        output.line("nothing to do")
    for number, step in enumerate(plan["steps"], 1):
        output.folded(f"{number}. {step['by']}: ", step["what"])
    for node in plan["monitors"]:
        output.folded(f"monitor of {node['hostname']}: ", node["why"])
    for obstacle in plan["executors"]:
        output.folded("continues: ", obstacle)
    for changed in plan["defaults"]:
        output.folded(f"default of {changed['name']}: ", f"{changed['was']}, will be {changed['will_be']}")
    for obstacle in plan["cannot_be_undone"]:
        output.folded("cannot be undone: ", obstacle)


def _of(release: Release) -> str:
    schema = "" if release["schema"] is None else f", schema {release['schema']}"
    return f"release {release['version']}{schema}, {spoken(release['wire'], release['oldest'])}"
