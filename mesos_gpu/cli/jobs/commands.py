"""`mesos-gpu show`, `why` and `wait` for existing jobs; `--dry-run` for new ones."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.fit import Fit, short_gpus
from mesos_gpu.cli.jobs.listing import ran
from mesos_gpu.cli.jobs.show import HEALTHY, facts, past
from mesos_gpu.cli.records.changed import changes_of, lines
from mesos_gpu.cli.types import ACTIVE_JOB, DURATION, JOB, JOB_OR_APP
from mesos_gpu.model.jobs.job import FIELDS
from mesos_gpu.model.jobs.why import OF_LIMITS, Verdict
from mesos_gpu.model.words import counted

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Gpu, Job, JobPlan, Relief, Task, Why
    from mesos_gpu.cli.client import Client

_TIMED_OUT = 124
_MAX_NAMED: Final = 5  # nodes
_OF_LIMITS: Final = tuple(stage.value for stage in OF_LIMITS)
_LAUNCHES: Final = Fit(leave=("AGE", "HEALTHY", "GPUS", "RAN", "NODE"), hosts=("NODE",))


@click.command()
@click.argument("job_id", metavar="ID", type=JOB)
@click.option(
    "--show-env", is_flag=True, help="Also show values of its environment; only on the scheduler's host."
)
@json_option
@api_command
def show(app: App, job_id: str, show_env: bool, as_json: bool) -> None:
    """Show all details of a job.

    --json prints the job, its launches as `runs`, and its latest recorded `changes`.
    """
    from mesos_gpu.api.spec.gpus.use import UseOverTime
    from mesos_gpu.cli.client import path_of
    from mesos_gpu.cli.jobs.arrays import lines_of

    client = app.client()
    job = client.job(job_id, show_env=show_env)
    tasks = client.tasks(job["id"])
    changes = changes_of(client, "jobs", job["id"])
    if as_json:
        output.document({**job, "runs": tasks, "changes": changes})
        return
    used: list[tuple[str, object]] = []
    if job["gpus"] and job["started_at"]:
        used = past(client.get(path_of("jobs", job["id"], "use"), UseOverTime))
    output.pairs([*facts(job, _gpus_of(client, job)), *lines_of(client, job), *used, *lines(changes)])
    if tasks:
        click.echo()
        _show_launches(tasks)


def _gpus_of(client: "Client", job: "Job") -> "dict[str, Gpu]":
    """Return the GPUs on a job's nodes by UUID; none if the user may not see GPUs."""
    from mesos_gpu.cli.client import Refused

    if not job["gpu_ids"]:
        return {}
    try:
        return {gpu["uuid"]: gpu for gpu in client.gpus(job["hostnames"])}
    except Refused as error:
        if error.http_status != HTTPStatus.FORBIDDEN:
            raise
        return {}


def _show_launches(tasks: Sequence["Task"]) -> None:
    """Print a table of the launches of a job."""
    output.table(
        ("LAUNCH", "STATE", "HEALTHY", "NODE", "AGE", "RAN", "GPUS", "MESSAGE"),
        [
            (
                task["id"],
                task.get("ended_as") or task["state"],
                HEALTHY[task["healthy"]],
                task["hostname"],
                output.age(task["launched_at"]),
                ran(task["started_at"], task["ended_at"]),
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
    """Explain why a job waits, and which node comes closest.

    For an app, such as /shop/db, it explains what its deployment waits for, and why the first of its instances without
    a task waits.

    \b
      mesos-gpu why train
      mesos-gpu why /shop/db
    """
    if not id.startswith("/"):
        reasons = app.client().why(id)
        output.document(reasons) if as_json else explain(reasons)
        return
    from mesos_gpu.cli.apps.crashing import crashing, last_words
    from mesos_gpu.cli.apps.listing import why_of

    marathon = app.marathon()
    summary, instance = why_of(marathon, id)
    definition = marathon.app(id)
    words = last_words(marathon, definition) if crashing(definition) else []
    if as_json:
        output.document({"app": id, "summary": summary, "instance": instance, "stderr": words})
        return
    output.line(f"{id}: {summary}.")
    for line in words:
        output.line(f"  stderr: {line}")
    if instance is not None:
        explain(instance)


def explain(full: "Why", *, briefly: bool = False) -> None:
    """Print why a job waits; `briefly` leaves out its nodes."""
    why: Why = json.loads(short_gpus(json.dumps(full)))
    output.line(f"{why['job_id']}: {why['summary']}.")
    if not why["can_ever_run"] and any(stage["reason"] in _OF_LIMITS for stage in why["funnel"]):
        return  # its queue position and the nodes do not matter
    if why["queue_position"] is not None:
        ahead = why["queue_position"]
        output.line(
            f"Place in the queue: {ahead + 1}, {counted(ahead, 'job') if ahead else 'no job'} ahead of it."
        )
    if why["estimate"]:
        output.line(f"Estimated start: {output.expected(why['estimate']['at'])}: {why['estimate']['basis']}.")
    if not why["can_ever_run"]:
        output.line("It can never run on the current nodes.")
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
@click.option(
    "--timeout", type=DURATION, help="Give up after this time, such as 90s or 2h, with exit code 124."
)
@json_option
@api_command
def wait(app: App, job_ids: tuple[str, ...], timeout: float | None, as_json: bool) -> None:
    """Wait until jobs have ended.

    The exit code is the first nonzero one of the jobs in the given order; for an array or some of its tasks, 1 if one
    has failed.

    \b
      mesos-gpu wait train-1a2b3c4d --timeout 2h
      mesos-gpu wait $(mesos-gpu submit sweep.yaml)
      mesos-gpu wait sweep.0-9
    """
    from mesos_gpu.cli.jobs.arrays import Awaited
    from mesos_gpu.cli.waiting import be_patient

    client = app.client()
    deadline = None if timeout is None else time.monotonic() + timeout
    named = [Awaited(client, job_id) for job_id in job_ids]  # reports a wrong ID now, not after hours
    be_patient(client)
    for target in named:
        target.wait(deadline)
        if not as_json and (end := target.end) is not None:
            output.line(f"{target.id} {end[0]} {end[1]}")
    if as_json:
        output.document([target.document for target in named])
    late = [target.id for target in named if target.end is None]
    if late:
        output.note(f"not ended yet: {', '.join(late)}")
        click.get_current_context().exit(_TIMED_OUT)
    codes = (end[1] for target in named if (end := target.end) is not None)
    click.get_current_context().exit(next((code for code in codes if code), 0))


def tell_plans(
    client: "Client", requests: Sequence[Mapping[str, Any]], *, as_json: bool, of_options: bool
) -> int:
    """Print what would happen to jobs if they were submitted; return 1 if one of them can never run, else 0.

    Args:
        client: Client of the scheduler.
        requests: Bodies of POST /v1/jobs.
        as_json: Whether to print a JSON list instead of text.
        of_options: Whether to name fields by the options of `run`.

    Raises:
        Refused: The submission of a job would be refused.
    """
    from mesos_gpu.api.spec.shapes import JobPlan

    plans = [
        client.call("POST", "/v1/plan/jobs", JobPlan, body=request, may_repeat=True) for request in requests
    ]
    if as_json:
        output.document(plans)
    else:
        for plan in plans:
            _tell(plan, _flag if of_options else str)
    return int(any(plan["verdict"] == Verdict.NEVER.value for plan in plans))


def _flag(key: str) -> str:
    return next((field.option.flag for field in FIELDS if field.key == key and field.option), key)


def _tell(plan: "JobPlan", named: Callable[[str], str]) -> None:
    why = plan["why"]
    name = why["job_id"].rpartition("-")[0]
    if plan["verdict"] == Verdict.FITS.value:
        tasks = "" if why["tasks_fit"] is None else "with all its tasks, "
        output.line(f"{name}: fits now, {tasks}on {_nodes(plan['hostnames'])}.")
        return
    explain({**why, "job_id": name})
    if plan["verdict"] == Verdict.NEVER.value:
        changes = ", or ".join(_change(relief, named) for relief in plan["reliefs"])
        output.line(f"To fix: {changes or 'changing a single field is not enough'}.")


def _change(relief: "Relief", named: Callable[[str], str]) -> str:
    name, value = named(relief["field"]), relief["value"]
    return f"leave out {name}" if value is None else f"{name} {value} at most"


def _nodes(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
