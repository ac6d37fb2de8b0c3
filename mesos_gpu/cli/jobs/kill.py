"""`mesos-gpu kill`: end jobs given by ID or by filters."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.jobs.arrays import named
from mesos_gpu.cli.jobs.listing import JOBS, gpus_of, query_of
from mesos_gpu.cli.lists.options import filter_options, filters_of
from mesos_gpu.cli.types import ACTIVE_JOB
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.job_state import JobState
from mesos_gpu.model.words import counted
from mesos_gpu.wire.listing.filters import By, passes

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Job
    from mesos_gpu.cli.client import Client

_MAX: Final = 1_000_000  # maximum number of jobs listed at once
_SHOWN: Final = 20  # jobs shown before the confirmation


@click.command()
@click.argument("job_ids", metavar="[ID...]", nargs=-1, type=ACTIVE_JOB)
@click.option("--all", "every", is_flag=True, help="Kill all jobs that have not ended, of all users.")
@filter_options(JOBS)
@yes_option
@json_option
@api_command
def kill(app: App, job_ids: tuple[str, ...], every: bool, yes: bool, as_json: bool, **options: Any) -> None:
    """Kill jobs.

    The command does not wait for their end, see `mesos-gpu wait`. If one ID is refused, the others are killed all the
    same.

    On a terminal it asks for confirmation. Instead of IDs, --all or filters select jobs that have not ended; these are
    shown before you confirm. Instances of apps are selected only with --app, because the app would start another one.

    For a job array, NAME is the whole array, NAME.7 one task, NAME.3-7 and NAME.0-20:5 some of its tasks.

    \b
      mesos-gpu kill train-1a2b
      mesos-gpu kill sweep.3-7
      mesos-gpu kill --name 'sweep-*' --state pending
      mesos-gpu kill --queue research --user ann --yes
    """
    filters = filters_of(options)
    chooses = every or any(filters.values())
    if bool(job_ids) == chooses:
        raise click.UsageError(
            "IDs exclude --all and filters"
            if job_ids
            else "give IDs, or select jobs with --all, --name, --label or --queue; list them with: mesos-gpu ps"
        )
    client = app.client()
    if chooses:
        jobs = _chosen(client, filters)
        if not jobs:
            output.note("no active job matches the filters")
        elif not yes:
            _show(jobs)
            output.ask(f"Kill {counted(len(jobs), 'job')}?", yes=yes, shown=True)
        job_ids = tuple(job["id"] for job in jobs)
    else:
        output.ask(f"Kill {', '.join(job_ids)}?", yes=yes)
    _kill(client, job_ids, as_json)


def _chosen(client: "Client", filters: dict[By, Sequence[str]]) -> "list[Job]":
    """Return active jobs that pass; also filtered here, because an older scheduler may not know all filters."""
    query = {**query_of(filters), "fold_arrays": ["true"]}
    listed = client.listed(states=["active"], limit=_MAX, order="activity", filters=query)
    asked = {by: given for by, given in filters.items() if given}
    return [
        job
        for job in listed["jobs"]
        if not JobState(job["state"]).ended
        and (By.APP in asked or not (job["app"] or "").startswith("/"))
        and passes(asked, {by: JOBS.filters[by](job) for by in asked})
    ]


def _show(jobs: "Sequence[Job]") -> None:
    """Print the jobs to kill on stderr."""
    for job in jobs[:_SHOWN]:
        owner = f", {job['owner']}" if job["owner"] else ""
        click.echo(
            f"  {output.clean(job['id'])}  {job['state']}, {gpus_of(job)} GPUs, queue {job['queue']}"
            f"{output.clean(owner)}",
            err=True,
        )
    if len(jobs) > _SHOWN:
        click.echo(f"  … and {len(jobs) - _SHOWN} more", err=True)


def _kill(client: "Client", job_ids: Sequence[str], as_json: bool) -> None:
    jobs, failures = _each(client.kill, job_ids, (lambda _job, _which: None) if as_json else _tell)
    if as_json:
        output.document(jobs)
    for failure in failures[:-1]:
        output.error(failure)
    if failures:
        raise failures[-1]


def _each(
    kill: "Callable[[str], Job]", job_ids: Sequence[str], tell: "Callable[[Job, str], None]"
) -> "tuple[list[Job], list[MesosGpuError]]":
    """Kill jobs one by one; return the killed jobs and the errors of refused ones."""
    jobs: list[Job] = []
    failures: list[MesosGpuError] = []
    for job_id in job_ids:
        try:
            jobs.append(kill(job_id))
            which = job_id if jobs[-1]["array"] is not None else ""
        except MesosGpuError as err:
            failures.append(err)
            if err.exit_code == 69:
                break  # the scheduler cannot be reached for the others either
        else:
            tell(jobs[-1], which)
    return jobs, failures


def _tell(job: "Job", which: str) -> None:
    """Print what happens to a job; `which` names tasks of an array as the user gave them, else ""."""
    if which:
        output.line(f"{named(job)} killing {which}: {job['message']}")
        return
    state = JobState(job["state"])
    words = f"had already ended: {state.value}" if state.ended else "killing"
    if state is JobState.KILLED and not job["launches"]:
        words = "killed: it had not started"
    output.line(f"{job['id']} {words}")
