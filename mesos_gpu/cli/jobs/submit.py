"""`mesos-gpu submit`: jobs from a file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.jobs.groups import GROUPS
from mesos_gpu.cli.jobs.options import dry_run_option
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.wire.job_fields import KNOWN

_HELP: Final = f"""Submit the jobs of a file.

FILE is JSON or YAML; `-` reads stdin. It contains one job or a list of jobs, with the fields of the REST interface
({", ".join(KNOWN)}). All jobs are checked before the first is sent. Prints their IDs.

The field `workdir` of a job names a directory to upload, like `run --upload`; a relative path starts in the file's
directory.

With --dry-run nothing is submitted or uploaded; the exit code is 1 if a job can never run on the current nodes, else
0.

\b
  mesos-gpu submit train.yaml
  mesos-gpu submit train.yaml --dry-run
  mesos-gpu submit train.yaml --array 0-99%8
"""


class _OfFiles(click.Command):
    """A command that points to `mesos-gpu run` when an option of jobs is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option of jobs, naming the command that has it."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if not any(error.option_name in flags for flags in GROUPS.values()):
                raise
            words = f"No such option '{error.option_name}': put it into the file as a field, or use: mesos-gpu run"
            raise click.UsageError(words, ctx) from None


@click.command(cls=_OfFiles, help=_HELP)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True))
@click.option(
    "--array",
    metavar="INDEXES",
    help="Turn the file's only job into an array, overriding the file; for example 0-99%8 for 8 tasks at once.",
)
@dry_run_option
@json_option
@api_command
def submit(app: App, file: str, array: str | None, dry_run: bool, as_json: bool) -> None:
    """Submit the jobs of a file; `_HELP` is the help text."""
    from mesos_gpu.cli.code.workdir import with_code
    from mesos_gpu.cli.interrupt import held_interrupt
    from mesos_gpu.cli.jobfile import WORKDIR, read_jobs
    from mesos_gpu.cli.waiting import warn_of_never

    with click.open_file(file, "rb") as stream:
        text = stream.read().decode("utf-8", "replace")
    read = read_jobs(text, name="stdin" if file == "-" else file)
    if array is not None:
        read = [_as_array(read, array)]
    client = app.client()
    if dry_run:
        from mesos_gpu.cli.jobs.commands import tell_plans

        unsent = [{key: value for key, value in job.items() if key != WORKDIR} for job in read]
        click.get_current_context().exit(tell_plans(client, unsent, as_json=as_json, of_options=False))
    requests = with_code(client, read, Path() if file == "-" else Path(file).parent)
    jobs = []
    for request in requests:
        try:
            with held_interrupt():
                jobs.append(client.submit(request))
        except (MesosGpuError, KeyboardInterrupt):
            if as_json:
                output.document(jobs)
            if len(requests) > 1:
                output.note(f"{len(jobs)} of {len(requests)} jobs were submitted")
            raise
        if not as_json:
            output.line(jobs[-1]["id"])
    if as_json:
        output.document(jobs)
    warn_of_never(client, jobs)


def _as_array(read: Sequence[Mapping[str, Any]], array: str) -> Mapping[str, Any]:
    """Return the only job of a file as a job array."""
    from mesos_gpu.model.arrays.indexes import Unreadable, parsed

    if len(read) != 1:
        raise click.UsageError(f"--array needs a file with one job, and this has {len(read)}")
    try:
        parsed(array)
    except Unreadable as error:
        raise click.BadParameter(f"must be {error}", param_hint="--array") from None
    return {**read[0], "array": array}
