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
    "--rank", type=click.IntRange(min=0), metavar="N", default=0, help="Which of the job's tasks; default: 0."
)
@click.option("-i", "--stdin", is_flag=True, help="Give the command this stdin; without it, it has none.")
@click.option("-t", "--tty", is_flag=True, help="Give it a terminal of this one's size; with -i for a shell.")
@click.argument("cmd", metavar="CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@api_command
def exec_(app: App, job_id: str, rank: int, stdin: bool, tty: bool, cmd: tuple[str, ...]) -> None:
    """Run a command in a running job, as the job runs.

    It has the user, the environment, the files, the GPUs and the limits of the job's own command, and is ended with it,
    or when this command ends. Its exit code becomes that of this command: 127 if there is no such program, 126 if it
    may not be executed. JOB may be the ID of a launch. SIGINT, SIGTERM, SIGQUIT and SIGUSR1/2 go to it; with a
    terminal, every key does.

    \b
      mesos-gpu exec train-1a2b3c4d -- nvidia-smi
      mesos-gpu exec train-1a2b3c4d --rank 1 -it -- bash
      mesos-gpu exec train-1a2b3c4d -i -- sh -c 'cat > data.bin' < data.bin
    """
    see_terminal(stdin=stdin, tty=tty)
    click.get_current_context().exit(in_task(app, job_id, cmd, rank=rank, stdin=stdin, tty=tty))


def see_terminal(*, stdin: bool, tty: bool) -> None:
    """See that what is to be a terminal is one.

    Raises:
        UsageError: It is none.
    """
    if tty and stdin and not os.isatty(0):
        raise click.UsageError("-t needs a terminal as stdin; leave it out")


def in_task(app: App, job_id: str, argv: Sequence[str], *, rank: int, stdin: bool, tty: bool) -> int:
    """Run a command in a task with this process' files and signals; its exit code.

    Raises:
        Conflict, Unreachable, BadAnswer, BrokenPipeError: As of `Session.run`.
    """
    from mesos_gpu.cli.channel.opened import open_channel
    from mesos_gpu.cli.channel.terminal import raw, size_of

    rows, columns = size_of(1)
    order = {"argv": list(argv), "rank": rank, "stdin": stdin, "tty": tty, "rows": rows, "columns": columns}
    if tty and (term := os.environ.get("TERM")):
        order["term"] = term
    channel = open_channel(app, f"/v1/jobs/{quote(job_id, safe='')}/exec", order)
    from mesos_gpu.cli.channel.line import open_line  # while the task's host is called
    from mesos_gpu.cli.channel.session import Session

    with contextlib.ExitStack() as held:
        line = open_line(app.reach(), channel)
        if tty and stdin:
            held.enter_context(raw(0))
        return Session(line, stdin=0 if stdin else None, tty=tty).run()
