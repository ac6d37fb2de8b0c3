"""`mesos-gpu upgrade`: what an upgrade to this program would do; nothing is changed."""

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
        "plan": ("mesos_gpu.cli.upgrade.commands", "Say what an upgrade to this program would do."),
    }


@click.group(cls=_Upgrade)
def upgrade() -> None:
    """Upgrades: what runs now, and what this program would do in its place."""


@click.command()
@click.option(
    "--executor-archive",
    "archive",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The mesos-gpu-executor.pyz that hosts are to have: monitors that run another one are replaced.",
)
@click.option(
    "-o", "--output", "form", type=click.Choice(("text", "json")), default="text", help="Form of the output."
)
@json_option
@api_command
def plan(app: App, archive: Path | None, form: str, as_json: bool) -> None:
    """Say what an upgrade to this program would do.

    Run the new release's command, with the address of the scheduler that runs. Nothing is changed: it says what is in
    the way, what to do in which order, which monitors are replaced, which executors run on, and what cannot be undone.
    The exit code is 1 if something is in the way.

    \b
      mesos-gpu upgrade plan
      mesos-gpu upgrade plan --executor-archive mesos-gpu-executor.pyz -o json
    """
    client = app.client()
    version = client.status()["version"]
    try:
        told, leadership = client.get("/v1/upgrade", Upgrade), client.get("/v1/leader", Leadership)
    except Refused as error:
        if error.http_status != 404:
            raise
        told, leadership = None, None
    made = plan_of(told, version, leadership, _this(archive))
    output.document(made) if as_json or form == "json" else _shown(made, can_tell=told is not None)
    if made["in_the_way"]:
        click.get_current_context().exit(1)


def _this(archive: Path | None) -> Program:
    from mesos_gpu.adapters.sqlite.schema import latest
    from mesos_gpu.scheduler.__main__ import scheduler
    from mesos_gpu.scheduler.options.cluster.flags import flags_of

    release: Release = {"version": __version__, "wire": WIRE, "oldest": OLDEST, "schema": latest()}
    digest = hashlib.sha256(archive.read_bytes()).hexdigest() if archive else ""
    return Program(release, tuple(flags_of(scheduler)), digest)


def _shown(plan: Plan, *, can_tell: bool) -> None:
    output.line(f"runs: {_of(plan['running'])}")
    output.line(f"this: {_of(plan['this'])}")
    if not can_tell:
        output.line("what runs does not say what is on hosts, nor its options: it is older than that")
    for each in plan["in_the_way"]:
        output.folded("in the way: ", each)
    if not plan["needed"]:
        output.line("nothing is to be done")
    for number, step in enumerate(plan["steps"], 1):
        output.folded(f"{number}. {step['by']}: ", step["what"])
    for node in plan["monitors"]:
        output.folded(f"monitor of {node['hostname']}: ", node["why"])
    for each in plan["executors"]:
        output.folded("runs on: ", each)
    for changed in plan["defaults"]:
        output.folded(f"default of {changed['name']}: ", f"{changed['was']}, will be {changed['will_be']}")
    for each in plan["cannot_be_undone"]:
        output.folded("cannot be undone: ", each)


def _of(release: Release) -> str:
    schema = "" if release["schema"] is None else f", schema {release['schema']}"
    return f"release {release['version']}{schema}, {spoken(release['wire'], release['oldest'])}"
