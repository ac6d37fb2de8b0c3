"""`mesos-gpu ps`, `show`, `why`, `kill` and `wait`: jobs that are there already."""

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.fit import Fit, short_gpus
from mesos_gpu.cli.jobs.show import HEALTHY, command_line, facts
from mesos_gpu.cli.records.changed import changes_of, lines
from mesos_gpu.cli.share import gpus_counted
from mesos_gpu.cli.types import ACTIVE_JOB, DURATION, JOB, JOB_OR_APP
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.words import counted

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Job, Task, Why

_TIMED_OUT = 124
_PS: Final = Fit(
    leave=("MEM_MIB", "CPUS", "PRIO", "QUEUE", "AGE", "COMMAND", "RAN", "EXIT", "NODE"),
    ids=("ID",),
    hosts=("NODE",),
)
_LAUNCHES: Final = Fit(leave=("AGE", "HEALTHY", "GPUS", "ATTEMPT", "RAN", "NODE"), hosts=("NODE",))
_NONE_ACTIVE: Final = "No active job; --all shows the ended ones."


@click.command()
@click.option("-a", "--all", "every", is_flag=True, help="Those that have ended too.")
@click.option("--state", "states", multiple=True, type=click.Choice([s.value for s in JobState]),
              help="Only jobs in that state; may be repeated.")  # fmt: skip
@click.option(
    "--limit", default=1000, show_default=True, type=click.IntRange(1, 1_000_000), help="Show so many."
)
@json_option
@api_command
def ps(app: App, every: bool, states: tuple[str, ...], limit: int, as_json: bool) -> None:
    """List jobs: what runs before what waits.

    Of each the newest first. Without --all and --state only those that have not ended. On a terminal that is too
    narrow for all columns the IDs of apps' instances are shortened, which every command takes, and the less
    important columns are left out: `mesos-gpu ps | cat` has them all.
    """
    chosen = states or (() if every else ("active",))
    listed = app.client().listed(states=chosen, limit=limit, order="activity")
    jobs, hidden = listed["jobs"], listed["total"] - len(listed["jobs"])
    if as_json:
        output.document(jobs)
    else:
        _show_jobs(jobs, empty="No such job." if states else "No job." if every else _NONE_ACTIVE)
    if hidden > 0:
        total = listed["total"]
        verb = "is" if hidden == 1 else "are"
        output.note(f"{hidden} of {counted(total, 'job')} {verb} not shown; see them with --limit {total}")


def _show_jobs(jobs: "Sequence[Job]", *, empty: str) -> None:
    output.table(
        ("ID", "STATE", "EXIT", "QUEUE", "PRIO", "GPUS", "CPUS", "MEM_MIB", "NODE", "AGE", "RAN", "COMMAND"),
        [
            (
                job["id"],
                job["state"],
                job["exit_code"],
                job["queue"],
                job["priority"],
                _count(job),
                job["cpus"],
                job["mem_mib"],
                None if job["state"] == "pending" else " ".join(job["hostnames"]),
                output.age(job["submitted_at"]),
                _ran(job["started_at"], job["ended_at"]),
                command_line(job),
            )
            for job in jobs
        ],
        empty=empty,
        fit=_PS,
    )


@click.command()
@click.argument("job_id", metavar="ID", type=JOB)
@click.option(
    "--show-env", is_flag=True, help="The values of its environment too; on the scheduler's own host only."
)
@json_option
@api_command
def show(app: App, job_id: str, show_env: bool, as_json: bool) -> None:
    """Show all there is to know about one job.

    With --json: the job, its launches as `runs`, and the last `changes` on record.
    """
    client = app.client()
    job = client.job(job_id, show_env=show_env)
    tasks = client.tasks(job["id"])
    changes = changes_of(client, "jobs", job["id"])
    if as_json:
        output.document({**job, "runs": tasks, "changes": changes})
        return
    output.pairs([*facts(job), *lines(changes)])
    if tasks:
        click.echo()
        _show_launches(tasks)


def _count(job: "Job") -> str:
    """GPUs of each task, as limits count them."""
    gpus = gpus_counted(job["gpus"], job["gpu_compute_pct"])
    return str(gpus) if job["tasks"] == 1 else f"{job['tasks']}x{gpus}"


def _show_launches(tasks: Sequence["Task"]) -> None:
    output.table(
        ("LAUNCH", "STATE", "HEALTHY", "NODE", "ATTEMPT", "AGE", "RAN", "GPUS", "MESSAGE"),
        [
            (
                task["id"],
                task["state"],
                HEALTHY[task["healthy"]],
                task["hostname"],
                task["attempt"],
                output.age(task["launched_at"]),
                _ran(task["started_at"], task["ended_at"]),
                len(task["gpu_ids"]),
                task["message"],
            )
            for task in tasks
        ],
        empty="",
        fit=_LAUNCHES,
    )


@click.command()
@click.argument("id", metavar="ID", type=JOB_OR_APP)
@json_option
@api_command
def why(app: App, id: str, as_json: bool) -> None:
    """Say why a job waits, and what comes nearest.

    The ID may be an app's, as /shop/db: then it says what its deployment waits for, and why the first of its
    instances waits.
    """
    if not id.startswith("/"):
        reasons = app.client().why(id)
        output.document(reasons) if as_json else explain(reasons)
        return
    from mesos_gpu.cli.apps.crashing import last_words
    from mesos_gpu.cli.apps.listing import why_of

    marathon = app.marathon()
    said, instance = why_of(marathon, id)
    words = last_words(marathon, marathon.app(id))
    if as_json:
        output.document({"app": id, "summary": said, "instance": instance, "stderr": words})
        return
    output.line(f"{id}: {said}.")
    for line in words:
        output.line(f"  stderr: {line}")
    if instance is not None:
        explain(instance)


def explain(full: "Why", *, briefly: bool = False) -> None:
    """Print why a job waits; `briefly`: without its nodes."""
    why: Why = json.loads(short_gpus(json.dumps(full)))
    output.line(f"{why['job_id']}: {why['summary']}.")
    if why["queue_position"] is not None:
        ahead = why["queue_position"]
        output.line(
            f"Place in the queue: {ahead + 1}, {counted(ahead, 'job') if ahead else 'no job'} before it."
        )
    if why["estimate"]:
        output.line(f"Estimated start: {output.expected(why['estimate']['at'])}: {why['estimate']['basis']}.")
    if not why["can_ever_run"]:
        output.line("It can never run on the nodes that are there now.")
    if briefly:
        return
    nearest = why["nearest"]
    if nearest and nearest["missing"] not in why["summary"]:
        output.line(f"Nearest is {nearest['hostname']}, which {nearest['missing']}.")
    _funnel(why)
    if why["nodes"]:
        click.echo()
        rows = [(n["hostname"], "; ".join(n["reasons"]) or "it would fit") for n in why["nodes"]]
        output.table(("NODE", "WHY NOT"), rows, empty="", fit=Fit(wrap=True))


def _funnel(why: "Why") -> None:
    if not why["funnel"]:
        return
    click.echo()
    first = ("-", None, why["agents"], None)
    rows = [(r["reason"], r["removed"], r["left"], r["example"]) for r in why["funnel"]]
    output.table(
        ("REASON", "REMOVED", "AGENTS LEFT", "FOR EXAMPLE"),
        [first, *rows],
        empty="",
        fit=Fit(leave=(), wrap=True),
    )


@click.command()
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True, type=ACTIVE_JOB)
@json_option
@api_command
def kill(app: App, job_ids: tuple[str, ...], as_json: bool) -> None:
    """Kill jobs.

    It does not wait for their end: `mesos-gpu wait` does. An ID that is refused does not save the others.
    """
    client = app.client()
    jobs: list[Job] = []
    failures: list[MesosGpuError] = []
    for job_id in job_ids:
        try:
            jobs.append(client.kill(job_id))
        except MesosGpuError as err:
            failures.append(err)
            if err.exit_code == 69:
                break  # nothing is there to answer for the next one
            continue
        if not as_json:
            job = jobs[-1]
            output.line(f"{job['id']} {'had ended: ' + job['state'] if _has_ended(job) else 'killing'}")
    if as_json:
        output.document(jobs)
    for failure in failures[:-1]:
        output.error(failure)
    if failures:
        raise failures[-1]


@click.command()
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True, type=ACTIVE_JOB)
@click.option("--timeout", type=DURATION, help="Give up after that time, as 90s or 2h, with exit code 124.")
@json_option
@api_command
def wait(app: App, job_ids: tuple[str, ...], timeout: float | None, as_json: bool) -> None:
    """Wait until jobs have ended.

    The exit code is that of the first job, in the order given, whose exit code is not 0.
    """
    from mesos_gpu.cli.waiting import be_patient, exit_code_of

    client = app.client()
    deadline = None if timeout is None else time.monotonic() + timeout
    jobs = [client.job(job_id) for job_id in job_ids]  # a wrong ID is told before, not after hours
    be_patient(client)
    for i, job in enumerate(jobs):
        for newer in client.follow(job, deadline=deadline):
            jobs[i] = newer
        if not as_json and _has_ended(jobs[i]):
            code = exit_code_of(jobs[i])
            output.line(f"{jobs[i]['id']} {jobs[i]['state']} {code}")
    if as_json:
        output.document(jobs)
    late = [job["id"] for job in jobs if not _has_ended(job)]
    if late:
        output.note(f"still not ended: {', '.join(late)}")
        click.get_current_context().exit(_TIMED_OUT)
    click.get_current_context().exit(next((code for job in jobs if (code := exit_code_of(job))), 0))


def _has_ended(job: "Job") -> bool:
    return JobState(job["state"]).ended


def _ran(started_at: float | None, ended_at: float | None) -> str | None:
    return None if started_at is None else output.span((ended_at or time.time()) - started_at)
