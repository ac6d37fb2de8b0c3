"""`mesos-gpu run`: run a command as a job."""

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
@click.option("--shell", is_flag=True, help="Run the words as one line of /bin/sh -c.")
@click.option("-d", "--detach", is_flag=True, help="Print the job's ID, and do not follow the job.")
@upload_option
@click.option(
    "-i", "--stdin", is_flag=True, help="Pass stdin to the command; the job ends with this session."
)
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal; use -it for a shell.")
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
    """Run a command as a job, and follow it until it ends.

    Its output appears here, and its exit code becomes that of this command. Ctrl-C and SIGTERM kill the job and wait
    for its end; pressed twice, the command leaves at once. If this command itself is ended by SIGKILL or SIGHUP, the
    job continues. Without -i a job has no stdin: if data waits on stdin, the command is refused.

    With -i or -t the command runs in the job like with `exec`: signals and keys are passed to it, its output is shown
    here and not stored, and the job ends with it, or when the connection is lost.

    With --dry-run nothing is submitted or uploaded; the exit code is 1 if the job can never run on the current nodes,
    else 0.

    For a job array it waits for all tasks and shows their progress; `mesos-gpu logs` prints their output.

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
        raise click.UsageError("--json needs --detach or --dry-run: otherwise stdout is the job's output")
    _refuse_unit(cmd)
    request = request_of(cmd, options, shell=shell)  # nosec B604 # a field of the job, not a call of a shell
    if not cmd and (shell or "image" not in request):
        raise click.UsageError("Missing argument 'CMD...'.")
    if stdin or tty:
        _check_session(request, detach=detach, stdin=stdin, tty=tty)
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
    """Refuse a command that is the unit of the amount before it, as in `--mem 4 GB -- true`."""
    if len(cmd) > 1 and cmd[1] == "--" and cmd[0].lower() in ("mb", "mib", "gb", "gib", "tb", "tib"):
        raise click.UsageError(
            f"{cmd[0]} would be taken as the program: write amount and unit in one word, such as --mem 4GiB"
        )


def _stay(app: App, client: "Client", request: dict[str, Any], *, stdin: bool, tty: bool) -> int:
    """Follow a job and return its exit code."""
    with by_options():
        if stdin or tty:
            from mesos_gpu.cli.channel.interactive import run_interactively

            return run_interactively(app, request, stdin=stdin, tty=tty)
        from mesos_gpu.cli.jobs.attached import submit_and_stay

        return submit_and_stay(client, request)


def _check_session(request: dict[str, Any], *, detach: bool, stdin: bool, tty: bool) -> None:
    from mesos_gpu.cli.channel.commands import see_terminal

    if detach:
        raise click.UsageError("-d excludes -i and -t, which need a session with the job")
    if "array" in request:
        raise click.UsageError(
            "-i and -t do not work for arrays; for one task use: mesos-gpu exec NAME.INDEX -it -- CMD"
        )
    if request.get("tasks", 1) != 1:
        raise click.UsageError(
            "-i and -t need a job with one task; for others use: mesos-gpu exec JOB --rank N -it -- CMD"
        )
    see_terminal(stdin=stdin, tty=tty)


def _bring(client: "Client", request: dict[str, Any], directory: Path | None) -> None:
    """Upload a directory; without one, warn if the command names a local file that the job will not have."""
    if directory is not None:
        from mesos_gpu.cli.code.send import upload

        request["upload"] = upload(client, directory)
        return
    here = next(filter(_is_here, request.get("argv", ())), None)
    if here is not None and not {"fetch", "volumes", "image"} & request.keys():
        output.note(
            f"{here} is a local file, which the job will not have: upload it with --upload, "
            "or mount its directory with --volume if the job's host has it, too"
        )


def _is_here(word: str) -> bool:
    """Return whether a word of a command names a file below the current directory.

    Most words are not paths. `os.path.isfile` returns False for a word that is not a valid path (too long, with NUL, or
    in a directory without access), where `Path.is_file` raises an error.
    """
    return not word.startswith(("/", "-")) and os.path.isfile(word)
