"""`mesos-gpu logs`: what a job or an app has written, and writes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.types import JOB_OR_APP
from mesos_gpu.errors import NotFound

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Job, Task
    from mesos_gpu.cli.client import Client
    from mesos_gpu.cli.jobs.stream import Stream


@click.command()
@click.argument("id", metavar="ID", type=JOB_OR_APP)
@click.option("-f", "--follow", is_flag=True, help="Stay until the job has ended; of an app: until Ctrl-C.")
@click.option("--stdout", "only", flag_value="stdout", help="Only what it wrote to stdout.")
@click.option(
    "--stderr", "only", flag_value="stderr", help="Only what it wrote to stderr; it comes on stdout."
)
@click.option("-n", "--tail", type=click.IntRange(min=0), metavar="N",
              help="Begin at the last N lines of each stream, at most 1 MiB back.")  # fmt: skip
@click.option("--rank", type=click.IntRange(min=0), metavar="N",
              help="Of which of its tasks, from 0; the first, if it is not said.")  # fmt: skip
@click.option("--attempt", type=click.IntRange(min=1), metavar="N",
              help="Of an earlier attempt, as `show` counts them; else of the latest launch.")  # fmt: skip
@api_command
def logs(
    app: App, id: str, follow: bool, only: str | None, tail: int | None, rank: int | None, attempt: int | None
) -> None:
    """Print what a job has written.

    What it wrote to stdout comes on stdout, what it wrote to stderr on stderr; where both go to one place a line
    as `==> stderr <==` stands between them. It comes from the latest launch, also after the job has ended, for as
    long as its agent keeps the sandbox. With -f the output of further launches follows.

    ID is a job's, or that of one launch, as `show` lists them and Mesos and Marathon call their tasks
    (train-1a2b3c4d.2). Of an app, as /shop/db, all tasks that it has now are printed, each below its name.
    """
    if id.startswith("/"):
        if rank is not None or attempt is not None:
            raise click.UsageError("--rank and --attempt go with a job; name one task of the app instead")
        from mesos_gpu.cli.jobs.logs_of_app import print_app

        print_app(app.marathon(), id, only=only, tail=tail, follow=follow)
        return
    client = app.client()
    job = client.job(id)
    launch, rank = _launch(client, job, id, rank, attempt)
    streams = _streams(client, job["id"], only)
    if tail is not None and launch is not None:
        for stream in streams:
            stream.tail(launch, tail)
    if follow:
        _follow(client, job, streams, launch, rank)
        return
    for stream in streams:
        stream.pump(launch)
        if stream.failure is not None:
            raise stream.failure


def _streams(client: "Client", job_id: str, only: str | None) -> "list[Stream]":
    from mesos_gpu.cli.jobs.stream import STREAMS, Marks, Stream

    if only:
        return [Stream(client, job_id, only, to_stderr=False)]
    marks = Marks(to_stderr=False) if output.one_place() else None
    return [Stream(client, job_id, name, to_stderr=name == "stderr", marks=marks) for name in STREAMS]


def _launch(
    client: "Client", job: "Job", id: str, rank: int | None, attempt: int | None
) -> tuple[str | None, int]:
    """The task id to begin with (None: there is none yet), and its rank."""
    from mesos_gpu.cli.jobs.stream import task_of

    if not job["id"].startswith(id):  # the id of a launch, which the scheduler knows
        if attempt is not None:
            raise click.UsageError(f"{id} is one launch already: --attempt goes with a job's ID")
        return _named(client.tasks(job["id"]), id, rank)
    rank = rank or 0
    if rank >= job["tasks"]:
        raise click.BadParameter(f"job {job['id']} has {job['tasks']} of them, from 0", param_hint="--rank")
    if attempt is None:
        return task_of(job, rank), rank
    tasks = [task for task in client.tasks(job["id"]) if task["rank"] == rank]
    task_ids = [task["id"] for task in tasks if task["attempt"] == attempt]
    if not task_ids:
        had = ", ".join(sorted({str(task["attempt"]) for task in tasks})) or "none yet"
        raise NotFound(
            f"job {job['id']} has no attempt {attempt}; there are: {had}",
            remedy=f"see them with: mesos-gpu show {job['id']}",
        )
    return task_ids[-1], rank


def _named(tasks: "Sequence[Task]", id: str, rank: int | None) -> tuple[str, int]:
    """Choose a launch by its task id, or by what all tasks of a launch have in common."""
    wanted = id if rank is None else f"{id}.{rank}"
    for task in tasks:
        if task["id"] in (wanted, f"{wanted}.0"):
            return task["id"], task["rank"]
    raise click.BadParameter(f"there is no {wanted}", param_hint="--rank")


def _follow(client: "Client", job: "Job", streams: "Sequence[Stream]", launch: str | None, rank: int) -> None:
    from mesos_gpu.cli.jobs.stream import Follower
    from mesos_gpu.cli.waiting import be_patient, status_of_waiting

    be_patient(client)
    follower = Follower(client, job, streams, launch=launch, rank=rank)
    try:
        follower.follow(status_of_waiting(client))
    finally:
        output.status_line.clear()
