"""`mesos-gpu logs`: what a job has written, and writes."""

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.types import JOB


@click.command()
@click.argument("job_id", metavar="ID", type=JOB)
@click.option("-f", "--follow", is_flag=True, help="Stay until the job has ended.")
@click.option("--stderr", "stderr", is_flag=True, help="What it wrote to stderr, not to stdout.")
@click.option("-n", "--tail", type=click.IntRange(min=0), metavar="N",
              help="Begin at the last N lines, at most 1 MiB back.")  # fmt: skip
@click.option("--rank", type=click.IntRange(min=0), default=0, metavar="N",
              help="Of which of its tasks, from 0; the first, if it is not said.")  # fmt: skip
@api_command
def logs(app: App, job_id: str, follow: bool, stderr: bool, tail: int | None, rank: int) -> None:
    """Print what a job has written.

    It comes from the latest launch, also after the job has ended, for as long as its agent keeps the
    sandbox. With -f the output of further launches follows.
    """
    from mesos_gpu.cli.stream import Follower, Stream, task_of
    from mesos_gpu.cli.waiting import be_patient, status_of_waiting

    client = app.client()
    job = client.job(job_id)
    if rank >= job["tasks"]:
        raise click.BadParameter(f"job {job['id']} has {job['tasks']} of them, from 0", param_hint="--rank")
    name = "stderr" if stderr else "stdout"
    first = Stream(client, job["id"], name, to_stderr=False)
    launch = task_of(job, rank)
    if tail is not None and launch is not None:
        first.tail(launch, tail)
    if not follow:
        first.pump(launch)
        if first.failure is not None:
            raise first.failure
        return
    be_patient(client)
    follower = Follower(client, job, {name: False}, launch=launch, rank=rank)
    follower.begin_at(first.offset)
    try:
        follower.follow(status_of_waiting(client))
    finally:
        output.status_line.clear()
