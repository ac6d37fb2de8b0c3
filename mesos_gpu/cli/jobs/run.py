"""`mesos-gpu run`: a job as if its command ran here."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.jobs.groups import Grouped
from mesos_gpu.cli.jobs.options import by_options, dry_run_option, job_options, request_of, upload_option

if TYPE_CHECKING:
    from mesos_gpu.cli.client import Client


@click.command(cls=Grouped, context_settings={"allow_interspersed_args": False})
@job_options()
@click.option("--shell", is_flag=True, help="Give the words to /bin/sh -c as one line.")
@click.option("-d", "--detach", is_flag=True, help="Print the job's ID and leave it to itself.")
@upload_option
@click.option("-i", "--stdin", is_flag=True, help="Give the command this stdin; the job ends with it.")
@click.option("-t", "--tty", is_flag=True, help="Give it a terminal of this one's size; with -i for a shell.")
@dry_run_option
@json_option
@click.argument("cmd", metavar="[CMD...]", nargs=-1, type=click.UNPROCESSED)
@api_command
def run(
    app: App,
    shell: bool,
    detach: bool,
    upload: Path | None,
    stdin: bool,
    tty: bool,
    dry_run: bool,
    as_json: bool,
    cmd: tuple[str, ...],
    **options: Any,
) -> None:
    """Run a command as a job and stay with it.

    Its output appears here as it is written, and its exit code becomes that of this command. Ctrl-C and SIGTERM
    kill the job and wait for its end; a second one leaves at once. If this command itself ends by SIGKILL or
    SIGHUP, the job runs on. A job gets no stdin without -i: data that waits there is refused.

    With -i or -t the command is run in the job as `exec` does: signals and keys go to it, what it writes is written
    here and not kept, and the job ends with it, or when the connection is lost.

    With --dry-run nothing is submitted or sent along; the exit code is 1 if the job can never run on the nodes that are
    there now, else 0.

    Of a job array it waits for all, and shows how many are how far; `mesos-gpu logs` has their output.

    \b
      mesos-gpu run --upload --gpus 1 --mem 4GiB -- python3 train.py --epochs 3
      mesos-gpu run --gpus 2 --gpu-model A100 --gpu-model V100 --shell -- 'nvidia-smi -L | wc -l'
      mesos-gpu run --dry-run --tasks 4 --gpus 8 -- train.sh
      mesos-gpu run --gpus 0.25 --image pytorch/pytorch -- python3 serve.py
      mesos-gpu run --gpus 1 --image pytorch/pytorch -it -- bash
      mesos-gpu run --tasks 4 --gpus 8 --queue research -d -- torchrun train.py
      mesos-gpu run --array 0-99%8 --gpus 1 -d --shell -- 'python3 train.py --seed $MESOS_GPU_ARRAY_INDEX'
    """
    from mesos_gpu.cli.interrupt import held_interrupt
    from mesos_gpu.cli.stdin import refuse_stdin
    from mesos_gpu.cli.waiting import warn_of_never

    if as_json and not (detach or dry_run):
        raise click.UsageError("--json needs --detach or --dry-run: without them, stdout is the job's own")
    _refuse_unit(cmd)
    request = request_of(cmd, options, shell=shell)  # nosec B604 # a field of the job, no call of a shell
    if not cmd and (shell or "image" not in request):
        raise click.UsageError("Missing argument 'CMD...'.")
    if stdin or tty:
        _see_session(request, detach=detach, stdin=stdin, tty=tty)
    elif not dry_run:
        refuse_stdin()
    client = app.client()
    if dry_run:
        from mesos_gpu.cli.jobs.commands import tell_plans

        with by_options():
            code = tell_plans(client, [request], as_json=as_json, of_options=True)
        click.get_current_context().exit(code)
    _bring(client, request, upload)
    if not detach:
        click.get_current_context().exit(_stay(app, client, request, stdin=stdin, tty=tty))
    with by_options(), held_interrupt():
        job = client.submit(request)
        output.document(job) if as_json else output.line(job["id"])
        warn_of_never(client, [job])


def _refuse_unit(cmd: tuple[str, ...]) -> None:
    """Refuse a command that is the unit of an amount before it, as of `--mem 4 GB -- true`."""
    if len(cmd) > 1 and cmd[1] == "--" and cmd[0].lower() in ("mb", "mib", "gb", "gib", "tb", "tib"):
        raise click.UsageError(
            f"{cmd[0]} would be the program: write the amount and its unit in one word, as --mem 4GiB"
        )


def _stay(app: App, client: "Client", request: dict[str, Any], *, stdin: bool, tty: bool) -> int:
    """The exit code of a job that this command stays with."""
    with by_options():
        if stdin or tty:
            from mesos_gpu.cli.channel.interactive import run_interactively

            return run_interactively(app, request, stdin=stdin, tty=tty)
        from mesos_gpu.cli.jobs.attached import submit_and_stay

        return submit_and_stay(client, request)


def _see_session(request: dict[str, Any], *, detach: bool, stdin: bool, tty: bool) -> None:
    from mesos_gpu.cli.channel.commands import see_terminal

    if detach:
        raise click.UsageError(
            "-d leaves the job to itself, and -i and -t are its session: leave one of them out"
        )
    if "array" in request:
        raise click.UsageError(
            "-i and -t are for one job; in a task of an array: mesos-gpu exec NAME.INDEX -it -- CMD"
        )
    if request.get("tasks", 1) != 1:
        raise click.UsageError(
            "-i and -t are for jobs of one task; in others: mesos-gpu exec JOB --rank N -it -- CMD"
        )
    see_terminal(stdin=stdin, tty=tty)


def _bring(client: "Client", request: dict[str, Any], directory: Path | None) -> None:
    """Send a directory along; without one, say how a program of this machine comes to the job."""
    if directory is not None:
        from mesos_gpu.cli.code.send import upload

        request["upload"] = upload(client, directory)
        return
    here = next(filter(_is_here, request.get("argv", ())), None)
    if here is not None and not {"fetch", "volumes", "image"} & request.keys():
        output.note(
            f"{here} is a file of this machine, and the job's directory has none of them: send them along with "
            "--upload, or name their directory with --volume if the job's host has it, too"
        )


def _is_here(word: str) -> bool:
    """Return whether a word of a command names a file below the current directory.

    Most words are not paths. `os.path.isfile` returns False for a word that is not a valid path (too long, with NUL, or
    in a directory without access), where `Path.is_file` raises an error.
    """
    return not word.startswith(("/", "-")) and os.path.isfile(word)
