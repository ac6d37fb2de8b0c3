"""`mesos-gpu plan`: plans that free capacity; nothing is changed."""

from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.jobs.options import job_options, request_of
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.types import ACTIVE_JOB
from mesos_gpu.model.jobs.job import FIELDS

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Place, Plan


class _Plan(Table):
    table: ClassVar = {
        "defrag": ("mesos_gpu.cli.cluster.plan", "Show which jobs to move so that a request fits."),
    }


@click.group(cls=_Plan)
def plan() -> None:
    """Plans that free capacity, without changing anything."""


@click.command()
@job_options(field for field in FIELDS if field.places)
@click.option(
    "--job", type=ACTIVE_JOB, help="Pending job to plan for, instead of the options of a new request."
)
@json_option
@api_command
def defrag(app: App, job: str | None, as_json: bool, **options: Any) -> None:
    """Show which jobs to move so that a request fits.

    Only preemptible jobs with one task are moved; the plan has as few moves as possible, and among such plans it loses
    the least work. Make the moves in order, one after the other: kill a job, and start it where the plan shows. The
    exit code is 1 if there is no plan.

    \b
      mesos-gpu plan defrag --gpus 4
      mesos-gpu plan defrag --gpus 8 --gpu-model A100 --tasks 2
      mesos-gpu plan defrag --job 3f2a
    """
    from mesos_gpu.api.spec.shapes import Plan

    given = [name for name, value in options.items() if value]
    if job is not None and given:
        raise click.UsageError("--job and options of a new request exclude each other: give one of them")
    request = request_of(("true",), options)
    client, path = app.client(), "/v1/plan/defrag"
    plan = (
        client.call("POST", path, Plan, body=request, may_repeat=True)
        if job is None
        else client.get(f"{path}/{quote(job, safe='')}", Plan)
    )
    output.document(plan) if as_json else _shown(plan)
    if not plan["feasible"]:
        click.get_current_context().exit(1)


def _shown(plan: "Plan") -> None:
    """Print a plan: its reason, its moves, and the capacity that they free."""
    output.line(plan["reason"])
    if plan["moves"]:
        output.table(
            ("MOVE", "JOB", "NAME", "FROM", "TO", "GPUS", "LOST_GPU_S"),
            [
                (
                    i,
                    move["job_id"],
                    move["name"],
                    move["from"],
                    move["to"],
                    ",".join(move["gpu_ids"]),
                    move["lost_gpu_s"],
                )
                for i, move in enumerate(plan["moves"], 1)
            ],
            empty="",
        )
    for target in _targets(plan):
        output.line(f"room on {target['hostname']}: {', '.join(target['gpu_ids']) or 'no GPU requested'}")


def _targets(plan: "Plan") -> "list[Place]":
    target = plan["target"]
    if target is None:
        return []
    return target if isinstance(target, list) else [target]
