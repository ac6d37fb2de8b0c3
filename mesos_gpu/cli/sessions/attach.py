"""`mesos-gpu attach`: follow a running job."""

import click

from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.types import ACTIVE_JOB


@click.command()
@click.argument("job_id", metavar="JOB", type=ACTIVE_JOB)
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="Rank of the task; default: all tasks.")
@click.option(
    "--tail",
    type=click.IntRange(min=0),
    metavar="N",
    default=10,
    show_default=True,
    help="Number of earlier lines to print first.",
)
@api_command
def attach(app: App, job_id: str, rank: int | None, tail: int) -> None:
    """Follow a running job, like run.

    Its output appears here, beginning with the last lines; with several tasks each line follows its rank. When the job
    ends, its exit code becomes that of this command. Ctrl-C detaches from the job, which continues. For a terminal in
    the job use mesos-gpu exec.

    \b
      mesos-gpu attach train-1a2b3c4d
    """
    from mesos_gpu.cli.jobs.attached import stay_with

    client = app.client()
    job = client.job(job_id)
    if rank is not None and rank >= job["tasks"]:
        raise click.UsageError(f"--rank: job {job['id']} has {job['tasks']} tasks, with ranks from 0")
    ranks = range(job["tasks"]) if rank is None else [rank]
    click.get_current_context().exit(stay_with(client, job, ranks, tail))
