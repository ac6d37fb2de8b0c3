"""`mesos-gpu exec`: a command in a running job."""

import contextlib
import os
from collections.abc import Sequence
from urllib.parse import quote

import click

from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.types import ACTIVE_JOB


@click.command("exec")
@click.argument("job_id", metavar="JOB", type=ACTIVE_JOB)
@click.option(
    "--rank", type=click.IntRange(min=0), metavar="N", default=0, help="Rank of the task; default: 0."
)
@click.option("-i", "--stdin", is_flag=True, help="Pass stdin to the command; otherwise it has none.")
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal; use -it for a shell.")
@click.argument("cmd", metavar="CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@api_command
def exec_(app: App, job_id: str, rank: int, stdin: bool, tty: bool, cmd: tuple[str, ...]) -> None:
    """Run a command inside a running job.

    It has the user, environment, files, GPUs and limits of the job's own command. It is ended with the job, or when
    this program ends. Its exit code becomes this program's: 127 if the command does not exist, 126 if it cannot be
    executed. JOB may also be the ID of a launch. SIGINT, SIGTERM, SIGQUIT and SIGUSR1/2 are passed to it; with a
    terminal, every key is.

    \b
      mesos-gpu exec train-1a2b3c4d -- nvidia-smi
      mesos-gpu exec train-1a2b3c4d --rank 1 -it -- bash
      mesos-gpu exec train-1a2b3c4d -i -- sh -c 'cat > data.bin' < data.bin
    """
    see_terminal(stdin=stdin, tty=tty)
    click.get_current_context().exit(in_task(app, job_id, cmd, rank=rank, stdin=stdin, tty=tty))


def see_terminal(*, stdin: bool, tty: bool) -> None:
    """Check that stdin is a terminal if one is requested.

    Raises:
        UsageError: stdin is not a terminal.
    """
    if tty and stdin and not os.isatty(0):
        raise click.UsageError("-t needs a terminal as stdin; run without -t")


def in_task(app: App, job_id: str, argv: Sequence[str], *, rank: int, stdin: bool, tty: bool) -> int:
    """Run a command in a task with this process's files and signals; return its exit code.

    Raises:
        Conflict, Unreachable, BadAnswer, BrokenPipeError: Raised by `Session.run`.
    """
    from mesos_gpu.cli.channel.opened import open_channel
    from mesos_gpu.cli.channel.terminal import raw, size_of

    rows, columns = size_of(1)
    order = {"argv": list(argv), "rank": rank, "stdin": stdin, "tty": tty, "rows": rows, "columns": columns}
    if tty and (term := os.environ.get("TERM")):
        order["term"] = term
    channel = open_channel(app, f"/v1/jobs/{quote(job_id, safe='')}/exec", order)
    from mesos_gpu.cli.channel.line import open_line  # imported while the task's host is being contacted
    from mesos_gpu.cli.channel.session import Session

    with contextlib.ExitStack() as resources:
        line = open_line(app.reach(), channel)
        if tty and stdin:
            resources.enter_context(raw(0))
        return Session(line, stdin=0 if stdin else None, tty=tty).run()
