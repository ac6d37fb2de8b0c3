"""`mesos-gpu ps`: lists of jobs."""

import shlex
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.jobs.arrays import named, progress
from mesos_gpu.cli.lists.columns import Col, Listing, aged
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.cli.share import gpus_counted, gpus_of_tasks
from mesos_gpu.model.job_state import JobState
from mesos_gpu.model.tasks.idle import IdleState
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.words import clock, counted, is_or_are
from mesos_gpu.wire.listing.filters import By, labels_of

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Job

_NONE_ACTIVE: Final = "No active jobs; --all also lists ended ones."
IDLE_S: Final = 60.0  # seconds without work after which a job is shown as idle
_TOLD: Final = tuple(state.value for state in (IdleState.WARNED, IdleState.NOTICE, IdleState.RETURNED))


def ran(started_at: float | None, ended_at: float | None) -> str | None:
    """Return how long something has run; None if it has not begun."""
    return None if started_at is None else output.span((ended_at or time.time()) - started_at)


def gpus_of(job: "Job") -> str:
    """Return the GPUs of each task, as limits count them."""
    return gpus_of_tasks(job["tasks"], gpus_counted(job["gpus"], job["gpu_compute_pct"]))


def nodes_of(job: "Job") -> list[str]:
    """Return the nodes on which a job runs or ran."""
    return [] if job["state"] == JobState.PENDING.value else job["hostnames"]


def _ran_s(job: "Job") -> float | None:
    return None if job["started_at"] is None else (job["ended_at"] or time.time()) - job["started_at"]


def used(job: "Job") -> str | None:
    """Return recent GPU utilization, or how long the GPUs were idle and the consequence; None if not known."""
    use, consequence = job["use"], _idle_word(job)
    idle_s = None if use is None else use["idle_s"]
    if idle_s is not None and idle_s >= IDLE_S:
        return f"{consequence or 'idle'} {output.span(idle_s)}"
    return consequence or (None if use is None or use["busy_pct"] is None else f"{use['busy_pct']:.0f}%")


def _idle_word(job: "Job") -> str:
    """Return the state of a job's idle GPUs in a word; "" if it has no consequence yet."""
    idle = job["idle"]
    if idle is None or (idle["state"] not in _TOLD and idle["keep_until"] is None):
        return ""
    return "kept" if idle["keep_until"] is not None else idle["state"]


def _used_order(job: "Job") -> float | None:
    """Return a sort key: the longest idle jobs first, then by utilization."""
    use = job["use"]
    if use is None:
        return None
    return -use["idle_s"] if use["idle_s"] is not None else use["busy_pct"]


def _names(job: "Job") -> tuple[str, ...]:
    """Return the name of a job; for a task of an array also the name of the array."""
    whole, dot, index = job["id"].rpartition(".")
    of_array = bool(whole and dot) and index.isdigit() and job["name"].endswith(f".{index}")
    return (job["name"], job["name"].rpartition(".")[0]) if of_array else (job["name"],)


def ends_by(job: "Job") -> str | None:
    """Return when a job ends at the latest, in UTC, and why; None if only its own time limit ends it."""
    end = job["coming_end"]
    if end is None or end["reason"] == NoticeReason.TIME_LIMIT.value:
        return None
    return f"{clock(end['at'], time.time())} {end['reason']}"


def _labels(job: "Job") -> list[str]:
    return labels_of(job["labels"])  # type: ignore[typeddict-item]


def command_line(job: "Job") -> str:
    """Return the command of a job in one line; "" for the default command of its image."""
    return job["command"] if job["command"] is not None else shlex.join(job["argv"] or job["args"] or ())


JOBS: Final[Listing["Job", "Job"]] = Listing(
    columns=(
        Col("ID", named),
        Col("NAME", lambda job: job["name"], wide=True),
        Col("STATE", progress),
        Col("EXIT", lambda job: job["exit_code"]),
        Col("USER", lambda job: job["owner"], wide=True),
        Col("RUNS_AS", lambda job: job["runs_as"], wide=True),
        Col("QUEUE", lambda job: job["queue"]),
        Col("PRIO", lambda job: job["priority"]),
        Col("GPUS", gpus_of, lambda job: gpus_counted(job["gpus"], job["gpu_compute_pct"]) * job["tasks"]),
        Col("USE", used, _used_order, telling=True, moves=True),
        Col("CPUS", lambda job: job["cpus"]),
        Col("MEM_MIB", lambda job: job["mem_mib"]),
        Col("APP", lambda job: job["app"], wide=True),
        Col("TRIES", lambda job: job["attempts"], wide=True),
        Col("NODE", lambda job: " ".join(nodes_of(job))),
        Col("ENDS_BY", ends_by, lambda job: job["coming_end"] and job["coming_end"]["at"], rare=True),
        aged("AGE", lambda job: job["submitted_at"]),
        Col("RAN", lambda job: ran(job["started_at"], job["ended_at"]), _ran_s, moves=True),
        Col("LABELS", lambda job: ",".join(_labels(job)), wide=True),
        Col("MESSAGE", lambda job: job["message"], wide=True),
        Col("COMMAND", command_line),
    ),
    id=lambda job: job["id"],
    rows=lambda job: (job,),
    filters={
        By.STATE: lambda job: (job["state"],),
        By.USER: lambda job: (job["owner"] or "",),
        By.NAME: _names,
        By.LABEL: _labels,
        By.QUEUE: lambda job: (job["queue"],),
        By.APP: lambda job: (job["app"] or "",),
        By.NODE: nodes_of,
    },
    fit=Fit(
        leave=("MEM_MIB", "CPUS", "PRIO", "QUEUE", "AGE", "COMMAND", "USE", "RAN", "EXIT", "NODE"),
        ids=("ID",),
        hosts=("NODE",),
    ),
    states=tuple(state.value for state in JobState),
)


def query_of(filters: Mapping[By, Sequence[str]]) -> dict[str, list[str]]:
    """Return filters of jobs, except by state, as query parameters of the scheduler's interface."""
    return {by.field: list(given) for by, given in filters.items() if given and by != By.STATE}


@click.command()
@click.option("-a", "--all", "every", is_flag=True, help="Also jobs that have ended.")
@list_options(JOBS)
@click.option(
    "--limit",
    default=1000,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="Maximum number of jobs.",
)
@click.option("--expand", is_flag=True, help="List tasks of job arrays that have begun one by one.")
@api_command
def ps(app: App, every: bool, limit: int, expand: bool, asked: "Asked[Job, Job]") -> None:
    """List jobs, running ones first.

    Within each state the newest job comes first. Without --all and --state only jobs that have not ended are listed. If
    the terminal is too narrow, IDs of apps' instances are shortened (commands accept the start of an ID) and less
    important columns are omitted: -o wide shows all columns, and --columns those that you choose.

    \b
      mesos-gpu ps --user ann --queue research --sort -gpus,age
      mesos-gpu ps --label team=vision --columns id,state,node -w
      mesos-gpu ps --sort use

    A job array is one line, such as sweep-1a2b3c4d[0-99%8]; its state is followed by the number of ended tasks.

    USE is the utilization of a job's GPUs in the last minute, or how long they have been idle: `warned` and `notice`
    instead of `idle` mean a warning or notice that the job will be ended for that, `kept` that a user has postponed it.
    """
    client = app.client()
    states = asked.filters[By.STATE] or (() if every else ("active",))
    empty = "No such job." if asked.filtered else "No jobs." if every else _NONE_ACTIVE

    def load() -> "Seen[Job]":
        filters = {**query_of(asked.filters), **({} if expand else {"fold_arrays": ["true"]})}
        listed = client.listed(states=states, limit=limit, order="activity", filters=filters)
        return Seen(listed["jobs"], empty, notes=not_shown(len(listed["jobs"]), listed["total"]))

    show(asked, load)


def not_shown(shown: int, total: int) -> list[str]:
    """Return a note if not all jobs are shown."""
    hidden = total - shown
    verb = is_or_are(hidden)
    more = f"{hidden} of {counted(total, 'job')} {verb} not shown; list all with --limit {total}"
    return [more] if hidden > 0 else []
