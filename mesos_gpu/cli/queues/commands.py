"""`mesos-gpu queue`: what waits, for whom something is kept, and when it may start; and the tree of queues."""

from typing import TYPE_CHECKING, ClassVar, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.table import Table
from mesos_gpu.model.words import counted

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import QueueUse, Reservation


_QUEUE: Final = Fit(
    cut=("BASIS", "KEPT"),
    leave=("MEM_MIB", "CPUS", "PRIO", "KEPT", "NOW", "BASIS", "QUEUE", "AGE"),
    ids=("ID",),
)


class _Queue(Table):
    table: ClassVar = {
        "list": (
            "mesos_gpu.cli.queues.listing:list_queues",
            "List the queues: what each is guaranteed, holds, borrows, waits for and is due.",
        ),
        "show": ("mesos_gpu.cli.queues.documents", "Print the tree of queues: a file that `apply` takes."),
        "shares": (
            "mesos_gpu.cli.queues.shares",
            "List what each queue is due, holds and waits for; of one queue, what that follows from.",
        ),
        "why": (
            "mesos_gpu.cli.jobs.queue_why",
            "Say why jobs of a queue wait, and the first of them in full.",
        ),
        "apply": ("mesos_gpu.cli.queues.documents", "Let the tree of queues be what a file says."),
        "diff": ("mesos_gpu.cli.queues.documents", "Say what a file would change; nothing is changed."),
        "versions": ("mesos_gpu.cli.queues.documents", "List the latest versions of the tree."),
        "rollback": ("mesos_gpu.cli.queues.documents", "Let the tree be what an earlier version said."),
        "hold": ("mesos_gpu.cli.queues.stops", "Let nothing of a queue start; what runs goes on."),
        "resume": ("mesos_gpu.cli.queues.stops", "Serve a queue again after `hold` or `drain`."),
        "drain": (
            "mesos_gpu.cli.queues.stops",
            "Let nothing of a queue start, and end what runs, with notice.",
        ),
    }


@click.group(cls=_Queue, invoke_without_command=True)
@click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1, 1000), help="Show so many jobs."
)
@json_option
@api_command
@click.pass_context
def queue(ctx: click.Context, app: App, limit: int, as_json: bool) -> None:
    """List the jobs that wait, in the order in which they are tried.

    The commands below it are about the tree of queues: who is guaranteed what, and who may have more.
    """
    if ctx.invoked_subcommand is not None:
        return
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
