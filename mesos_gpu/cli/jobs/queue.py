"""`mesos-gpu queue`: what waits, for whom something is kept, and when it may start."""

from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.model.words import counted

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import QueueUse, Reservation


_QUEUE: Final = Fit(
    cut=("BASIS", "KEPT"),
    leave=("MEM_MIB", "CPUS", "PRIO", "KEPT", "NOW", "BASIS", "QUEUE", "AGE"),
    ids=("ID",),
)


@click.command()
@click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1, 1000), help="Show so many jobs."
)
@json_option
@api_command
def queue(app: App, limit: int, as_json: bool) -> None:
    """List the jobs that wait, in the order in which they are tried."""
    waiting = app.client().queue(limit=limit)
    if as_json:
        output.document(waiting)
        return
    output.table(
        ("PLACE", "ID", "QUEUE", "PRIO", "NOW", "GPUS", "CPUS", "MEM_MIB", "AGE", "KEPT", "START", "BASIS"),
        [
            (
                job["position"] + 1,
                job["id"],
                job["queue"],
                job["priority"],
                job["effective_priority"],
                job["gpus"],
                job["cpus"],
                job["mem_mib"],
                output.age(job["submitted_at"]),
                _kept(job["reservation"]),
                output.expected(job["estimate"]["at"]),
                job["estimate"]["basis"],
            )
            for job in waiting["jobs"]
        ],
        empty="No job waits.",
        fit=_QUEUE,
    )
    limited = [use for use in waiting["queues"] if use["limit_gpus"] is not None]
    if limited:
        click.echo()
        output.table(("QUEUE", "GPUS", "LIMIT", "WAITING"), [_use(use) for use in limited], empty="")
    hidden = sum(use["waiting"] for use in waiting["queues"]) - len(waiting["jobs"])
    if hidden > 0:
        output.note(f"{hidden} more {'wait' if hidden > 1 else 'waits'}; see them with --limit")


def _kept(reservation: "Reservation | None") -> str | None:
    if reservation is None:
        return None
    if reservation["hostname"] is None:
        return "a share of its queue"
    gpus = len(reservation["gpu_ids"])
    return f"{reservation['hostname']}, {counted(gpus, 'GPU')}" if gpus else reservation["hostname"]


def _use(use: "QueueUse") -> tuple[object, ...]:
    return use["name"], use["used_gpus"], use["limit_gpus"], use["waiting"]
