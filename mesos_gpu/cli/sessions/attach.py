"""`mesos-gpu attach`: stay with a job that runs."""

import click

from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.types import ACTIVE_JOB


@click.command()
@click.argument("job_id", metavar="JOB", type=ACTIVE_JOB)
@click.option(
    "--rank", type=click.IntRange(min=0), metavar="N", help="Which of the job's tasks; default: all."
)
@click.option(
    "--tail",
    type=click.IntRange(min=0),
    metavar="N",
    default=10,
    show_default=True,
    help="Lines to begin with.",
)
@api_command
def attach(app: App, job_id: str, rank: int | None, tail: int) -> None:
    """Stay with a job that runs, as run does.

    Its output appears here, from its last lines on, of several tasks each line after its rank. When the job ends, its
    exit code becomes that of this command. Ctrl-C leaves the job, which goes on. For a terminal in it: mesos-gpu exec.

    \b
      mesos-gpu attach train-1a2b3c4d
    """
    from mesos_gpu.cli.jobs.attached import stay_with

    client = app.client()
    job = client.job(job_id)
    if rank is not None and rank >= job["tasks"]:
        raise click.UsageError(f"--rank: job {job['id']} has {job['tasks']} tasks, of ranks from 0")
    ranks = range(job["tasks"]) if rank is None else [rank]
    click.get_current_context().exit(stay_with(client, job, ranks, tail))
