"""`mesos-gpu logs`: output of a job or an app."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.types import JOB_OR_APP, PAST
from mesos_gpu.errors import NotFound
from mesos_gpu.model.words import counted

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Job, Task
    from mesos_gpu.api.spec.tasks.array import Array
    from mesos_gpu.cli.client import Client
    from mesos_gpu.cli.jobs.stream import Follower, Shown, Stream

EVERY: Final = -1  # --rank all
PREVIOUS: Final = -1  # --launch previous


class NumberOr(click.ParamType[int]):
    """A number, or a word that stands for -1.

    Args:
        least: Smallest number that is accepted.
        word: Word that stands for -1.
    """

    name = "n"

    def __init__(self, least: int, word: str) -> None:
        self._least, self._word = least, word

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; -1 for the word."""
        if value == self._word:
            return -1
        if value.isascii() and value.isdigit() and len(value) < 10 and int(value) >= self._least:
            return int(value)
        return self.fail(f"{value!r} is neither a number from {self._least} nor {self._word!r}", param, ctx)


RANK: Final = NumberOr(0, "all")
LAUNCH: Final = NumberOr(1, "previous")


@click.command()
@click.argument("id", metavar="ID", type=JOB_OR_APP)
@click.option(
    "-f", "--follow", is_flag=True, help="Follow the output until the job ends; for an app until Ctrl-C."
)
@click.option("--stdout", "only", flag_value="stdout", help="Print only stdout.")
@click.option("--stderr", "only", flag_value="stderr", help="Print only stderr of the job, on stdout.")
@click.option("-n", "--tail", type=click.IntRange(min=0), metavar="N",
              help="Start with the last N lines of each stream, at most 1 MiB back.")  # fmt: skip
@click.option("--rank", type=RANK, metavar="N|all",
              help="Rank of a task, from 0; all: all tasks sorted by time, each line after its rank.  "
              "[default: all]")  # fmt: skip
@click.option("--launch", type=LAUNCH, metavar="N|previous",
              help="Number of an earlier launch as listed by `show`, from 1; previous: the one before the "
              "latest.")  # fmt: skip
@click.option("--prefix", is_flag=True, help="Prefix each line with its rank or task.")
@click.option("--since", type=PAST, metavar="TIME",
              help="Only output written since this time, such as 10m (ago) or 2027-03-01T08:00; accurate to about a "
              "second.")  # fmt: skip
@click.option(
    "--timestamps",
    is_flag=True,
    help="Prefix each line with the time of writing, accurate to about a second.",
)
@api_command
def logs(
    app: App,
    id: str,
    follow: bool,
    only: str | None,
    tail: int | None,
    rank: int | None,
    launch: int | None,
    prefix: bool,
    since: float | None,
    timestamps: bool,
) -> None:
    """Print the output of a job.

    stdout of the job is printed on stdout, stderr on stderr; if both go to one place, lines such as `==> stderr <==`
    separate them. The output of a job with several tasks is sorted by time, each line after its rank. It is that of the
    latest launch, also after the job has ended, as long as the agent keeps the sandbox. With -f the output of further
    launches follows.

    ID is that of a job or of one launch, as `show` lists them and Mesos and Marathon name their tasks
    (train-1a2b3c4d.2). For an app, such as /shop/db, the output of all current tasks is printed, below headings or with
    --prefix after the task's name; without a task, that of the latest one that ended. For a job array NAME.7 is one
    task; for all tasks (NAME) or some of them (NAME.3-7), each line comes after its index.

    \b
      mesos-gpu logs -f train
      mesos-gpu logs train --rank 0 --since 10m
      mesos-gpu logs train --launch previous --stderr -n 50
      mesos-gpu logs sweep.3-7 -n 5
    """
    from mesos_gpu.cli.jobs.stream import Shown

    if since is not None and tail is not None:
        raise click.UsageError("--since and --tail exclude each other: give one of them")
    shown = Shown(only, tail, prefix, since, timestamps)
    if id.startswith("/"):
        if rank is not None or launch is not None:
            raise click.UsageError(
                "--rank and --launch need a job; for an app give the ID of one task instead"
            )
        from mesos_gpu.cli.jobs.logs_of_app import print_app

        print_app(app.marathon(), id, shown, follow=follow)
        return
    client = app.client()
    job, array = _asked(client, id)
    if array is not None:
        if follow or rank is not None or launch is not None:
            raise click.UsageError(f"-f, --rank and --launch need a single task of an array: {id}.INDEX")
        _print_array(client, array, replace(shown, prefix=True))
        return
    _print_job(client, job, id, rank, launch, shown, follow)


def _print_job(
    client: "Client",
    job: "Job",
    id: str,
    rank: int | None,
    launch: int | None,
    shown: "Shown",
    follow: bool,
) -> None:
    """Print the output of a job or of one launch; `rank` and `launch` as for `logs`."""
    from mesos_gpu.cli.channel.interactive import is_session

    if is_session(job):
        output.note(
            f"{job['id']} was run with -i or -t: its output went to the user's terminal and is not stored"
        )
    if rank == EVERY and not job["id"].startswith(id):
        raise click.UsageError(f"{id} is a single launch: --rank all needs a job's ID")
    if rank == EVERY or (rank is None and job["tasks"] > 1 and job["id"].startswith(id)):
        _print_ranks(client, job, launch, shown, follow=follow, asked=rank is not None)
        return
    follower = _follower(client, job, id, rank, launch, shown)
    if follow:
        _follow(client, [follower])
    else:
        follower.once()


def _print_ranks(
    client: "Client", job: "Job", launch: int | None, shown: "Shown", *, follow: bool, asked: bool
) -> None:
    """Print the output of all tasks of a job by time of writing; `asked` is whether `--rank all` was given.

    If the hosts have not noted times, ranks are printed one after the other if that was requested, else only rank 0.
    """
    from mesos_gpu.cli.jobs.stream import print_once

    labelled, ranks = replace(shown, prefix=True), range(job["tasks"])
    followers = [_follower(client, job, job["id"], rank, launch, labelled) for rank in ranks]
    if follow:
        _follow(client, followers, merged=True)
    elif all(follower.is_timed() for follower in followers):
        print_once(followers)
    elif asked:
        output.note("printing rank by rank, because times of writing are not known for all ranks")
        for follower in followers:
            follower.once()
    else:
        output.note(
            f"printing only rank 0 of {job['tasks']}, because times of writing are not known; "
            f"for all ranks, one after the other: mesos-gpu logs {job['id']} --rank all"
        )
        _follower(client, job, job["id"], 0, launch, shown).once()


def _asked(client: "Client", id: str) -> "tuple[Job, Array | None]":
    """Return the job with this ID, and for a job array or some of its tasks also the array."""
    from mesos_gpu.cli.jobs.arrays import Awaited, array_of

    named = Awaited(client, id)
    if named.some is None and named.job["array"] is not None:
        return named.job, array_of(client, named.job["id"])
    return named.job, named.some


def _print_array(client: "Client", array: "Array", shown: "Shown") -> None:
    """Print the output of tasks of an array, one after the other, each line after its index."""
    from mesos_gpu.cli.jobs.stream import Follower, task_of

    for job in array["jobs"]:
        launch = task_of(job, 0)
        if launch is None:
            continue
        streams = _streams(client, job["id"], shown, str(job["array_index"]))
        if shown.tail is not None:
            for stream in streams:
                stream.tail(launch, shown.tail)
        Follower(client, job, streams, launch=launch, rank=0).once()


def _follower(
    client: "Client",
    job: "Job",
    id: str,
    rank: int | None,
    launch: int | None,
    shown: "Shown",
) -> "Follower":
    """Return the follower of one of a job's tasks, positioned at its last lines if they were requested."""
    from mesos_gpu.cli.jobs.stream import Follower

    task_id, number = _launch(client, job, id, rank, launch)
    streams = _streams(client, job["id"], shown, str(number) if shown.prefix else "")
    if shown.tail is not None and task_id is not None:
        for stream in streams:
            stream.tail(task_id, shown.tail)
    return Follower(client, job, streams, launch=task_id, rank=number)


def _streams(client: "Client", job_id: str, shown: "Shown", label: str) -> "list[Stream]":
    """Return the streams to print, with headings or line prefixes as needed."""
    from mesos_gpu.cli.jobs.stream import Label, Marks, Stream

    marks = Marks(to_stderr=False) if output.one_place() and not shown.only and not label else None
    return [
        Stream(
            client,
            job_id,
            name,
            to_stderr=name == "stderr" and not shown.only,
            marks=marks,
            label=Label(label, name, stamped=shown.stamped) if label or shown.stamped else None,
            since=shown.since,
        )
        for name in shown.names
    ]


def _launch(
    client: "Client", job: "Job", id: str, rank: int | None, launch: int | None
) -> tuple[str | None, int]:
    """Return the task id to begin with (None before the first launch), and its rank."""
    from mesos_gpu.cli.jobs.stream import task_of

    if not job["id"].startswith(id):  # `id` is that of a launch
        if launch is not None:
            raise click.UsageError(f"{id} is a single launch: --launch needs a job's ID")
        return _named(client.tasks(job["id"]), id, rank)
    rank = rank or 0
    if rank >= job["tasks"]:
        raise click.BadParameter(
            f"job {job['id']} has {job['tasks']} tasks, numbered from 0", param_hint="--rank"
        )
    if launch is None:
        return task_of(job, rank), rank
    tasks = [task for task in client.tasks(job["id"]) if task["rank"] == rank]
    return (_previous(job, tasks) if launch == PREVIOUS else _numbered(job, tasks, launch)), rank


def _previous(job: "Job", tasks: "Sequence[Task]") -> str:
    if len(tasks) < 2:
        raise NotFound(
            f"job {job['id']} was launched {counted(len(tasks), 'time')}: no launch precedes the latest",
            remedy=f"list launches with: mesos-gpu show {job['id']}",
        )
    return tasks[-2]["id"]


def _numbered(job: "Job", tasks: "Sequence[Task]", launch: int) -> str:
    if launch > len(tasks):
        raise NotFound(
            f"job {job['id']} has no launch {launch}: it was launched {counted(len(tasks), 'time')}",
            remedy=f"list launches with: mesos-gpu show {job['id']}",
        )
    return tasks[launch - 1]["id"]


def _named(tasks: "Sequence[Task]", id: str, rank: int | None) -> tuple[str, int]:
    """Return the task id and rank of a launch given by its task id, or by the common part of its tasks' ids."""
    wanted = id if rank is None else f"{id}.{rank}"
    for task in tasks:
        if task["id"] in (wanted, f"{wanted}.0"):
            return task["id"], task["rank"]
    raise click.BadParameter(f"no task is called {wanted}", param_hint="--rank")


def _follow(client: "Client", followers: "Sequence[Follower]", *, merged: bool = False) -> None:
    from mesos_gpu.cli.jobs.stream import follow
    from mesos_gpu.cli.waiting import be_patient, show_waiting

    be_patient(client)
    try:
        follow(client, followers, show_waiting(client), merged=merged)
    finally:
        output.status_line.clear()
