"""`mesos-gpu history`: ended jobs, including old ones that are no longer in the scheduler's state."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing, aged
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.cli.share import gpus_of_tasks
from mesos_gpu.cli.types import PAST
from mesos_gpu.model.job_state import JobState
from mesos_gpu.model.shares.units import WHOLE, number_of
from mesos_gpu.wire.listing.filters import By, labels_of

if TYPE_CHECKING:
    from mesos_gpu.api.spec.tasks.past import PastJob
    from mesos_gpu.cli.client import Client

_PAGE: Final = 1000


def _ran_s(job: "PastJob") -> float | None:
    return None if job["started_at"] is None else job["ended_at"] - job["started_at"]


def _gpus(job: "PastJob") -> str:
    return gpus_of_tasks(job["tasks"], number_of(round(job["gpus"] * WHOLE)))


def _labels(job: "PastJob") -> list[str]:
    return labels_of(job["labels"])


PAST_JOBS: Final[Listing["PastJob", "PastJob"]] = Listing(
    columns=(
        Col("ID", lambda job: job["id"]),
        Col("NAME", lambda job: job["name"], wide=True),
        Col("STATE", lambda job: job["state"]),
        Col("EXIT", lambda job: job["exit_code"]),
        Col("USER", lambda job: job["user"]),
        Col("QUEUE", lambda job: job["queue"]),
        Col("GPUS", _gpus, lambda job: job["gpus"] * job["tasks"]),
        Col("MODEL", lambda job: " ".join(job["gpu_models"])),
        Col("GPU_H", lambda job: output.hours(job["gpu_hours"]), lambda job: job["gpu_hours"]),
        Col(
            "LOST_H",
            lambda job: output.hours(job["lost_gpu_hours"]),
            lambda job: job["lost_gpu_hours"],
            wide=True,
        ),
        Col(
            "IDLE_H",
            lambda job: output.hours(job["idle_gpu_hours"]),
            lambda job: job["idle_gpu_hours"],
            wide=True,
        ),
        Col("CLASS", lambda job: job["job_class"], wide=True),
        Col("APP", lambda job: job["app"], wide=True),
        Col("TRIES", lambda job: job["attempts"], wide=True),
        Col("NODE", lambda job: " ".join(job["hostnames"])),
        Col(
            "SUBMITTED",
            lambda job: output.stamp(job["submitted_at"]),
            lambda job: job["submitted_at"],
            wide=True,
        ),
        Col("ENDED_AT", lambda job: output.stamp(job["ended_at"]), lambda job: job["ended_at"], wide=True),
        aged("ENDED", lambda job: job["ended_at"]),
        Col("RAN", lambda job: output.span(_ran_s(job)), _ran_s),
        Col("LABELS", lambda job: ",".join(_labels(job)), wide=True),
        Col("MESSAGE", lambda job: job["message"], wide=True),
    ),
    id=lambda job: job["id"],
    rows=lambda job: (job,),
    filters={
        By.STATE: lambda job: (job["state"],),
        By.USER: lambda job: (job["user"] or "",),
        By.NAME: lambda job: (job["name"],),
        By.LABEL: _labels,
        By.QUEUE: lambda job: (job["queue"],),
        By.APP: lambda job: (job["app"] or "",),
        By.NODE: lambda job: job["hostnames"],
    },
    fit=Fit(leave=("NODE", "QUEUE", "MODEL", "EXIT", "USER", "RAN", "GPUS"), ids=("ID",), hosts=("NODE",)),
    states=tuple(state.value for state in JobState if state.ended),
)


@click.command()
@list_options(PAST_JOBS)
@click.option("--since", type=PAST, help="Only jobs that ended since: 30d (ago), or 2027-03-01.")
@click.option("--until", type=PAST, help="Only jobs that ended before.")
@click.option(
    "--limit",
    default=100,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="Maximum number of jobs.",
)
@api_command
def history(
    app: App, since: float | None, until: float | None, limit: int, asked: "Asked[PastJob, PastJob]"
) -> None:
    """List ended jobs, also old ones, newest first.

    GPU_H is the GPU hours held by all attempts of a job. Records are kept for 400 days; they do not contain a job's
    command.

    \b
      mesos-gpu history --user ann --since 30d --sort -gpu_h
      mesos-gpu history --state failed --queue research -o json
    """
    query: dict[str, object] = {by.field: list(given) for by, given in asked.filters.items() if given}
    query |= {name: value for name, value in (("since", since), ("until", until)) if value is not None}
    client = app.client()

    def load() -> "Seen[PastJob]":
        jobs, more = _listed(client, query, limit)
        notes = [f"there are more than {limit} jobs: list them with --limit or --until"] if more else []
        return Seen(jobs, "No such job." if query else "No job has ended yet.", notes=notes)

    show(asked, load)


def _listed(client: "Client", query: dict[str, object], limit: int) -> "tuple[Sequence[PastJob], bool]":
    """Return the latest `limit` matching jobs, and whether there are more."""
    from mesos_gpu.api.spec.tasks.past import History

    jobs: list[PastJob] = []
    cursor: str | None = ""
    while cursor is not None and len(jobs) < limit:
        asked = {**query, "limit": min(limit - len(jobs), _PAGE), **({"cursor": cursor} if cursor else {})}
        page: History = client.call("GET", "/v1/history", History, asked)
        jobs += page["jobs"]
        cursor = page["cursor"]
    return jobs, cursor is not None
