"""`mesos-gpu queue`: pending jobs, their reservations and expected starts; commands of the tree of queues below it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing, aged
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.cli.table import Table
from mesos_gpu.model.words import counted
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from mesos_gpu.api.spec.cluster.line import QueueUse, Reservation, Waiting


_WAITING: Final[Listing["Waiting", "Waiting"]] = Listing(
    columns=(
        Col("PLACE", lambda job: job["position"] + 1),
        Col("ID", lambda job: job["id"]),
        Col("USER", lambda job: job["owner"], wide=True),
        Col("QUEUE", lambda job: job["queue"]),
        Col("PRIO", lambda job: job["priority"]),
        Col("NOW", lambda job: job["effective_priority"]),
        Col("GPUS", lambda job: job["gpus"]),
        Col("CPUS", lambda job: job["cpus"]),
        Col("MEM_MIB", lambda job: job["mem_mib"]),
        aged("AGE", lambda job: job["submitted_at"]),
        Col("RESERVED", lambda job: _reserved_text(job["reservation"])),
        Col(
            "START",
            lambda job: output.expected(job["estimate"]["at"]),
            lambda job: job["estimate"]["at"],
            moves=True,
        ),
        Col("REASON", lambda job: job["estimate"]["basis"]),
    ),
    id=lambda job: job["id"],
    rows=lambda job: (job,),
    filters={
        By.USER: lambda job: (job["owner"] or "",),
        By.NAME: lambda job: (job["name"],),
        By.QUEUE: lambda job: (job["queue"],),
    },
    fit=Fit(
        cut=("REASON", "RESERVED"),
        leave=("MEM_MIB", "CPUS", "PRIO", "RESERVED", "NOW", "REASON", "QUEUE", "AGE"),
        ids=("ID",),
    ),
)
_MAX: Final = 1000  # maximum number of jobs in one answer


class _Queue(Table):
    table: ClassVar = {
        "list": (
            "mesos_gpu.cli.queues.listing:list_queues",
            "List the queues: guarantee, GPUs held, borrowed and pending, and fair share of each.",
        ),
        "show": ("mesos_gpu.cli.queues.documents", "Print the tree of queues, in the format of `apply`."),
        "shares": (
            "mesos_gpu.cli.queues.shares",
            "List the fair share of each queue; for one queue, the steps of its computation.",
        ),
        "why": (
            "mesos_gpu.cli.jobs.queue_why",
            "Explain why jobs of a queue and of the queues below it wait.",
        ),
        "apply": ("mesos_gpu.cli.queues.documents", "Replace the tree of queues by a file."),
        "diff": ("mesos_gpu.cli.queues.documents", "Show what a file would change, without changing it."),
        "versions": ("mesos_gpu.cli.queues.documents", "List the latest versions of the tree."),
        "rollback": (
            "mesos_gpu.cli.queues.documents",
            "Apply an earlier version of the tree again, as a new version.",
        ),
        "hold": ("mesos_gpu.cli.queues.stops", "Stop launches of a queue; running jobs continue."),
        "resume": ("mesos_gpu.cli.queues.stops", "Resume launches of a queue after `hold` or `drain`."),
        "drain": (
            "mesos_gpu.cli.queues.stops",
            "Stop launches of a queue, and end its running jobs, with notice.",
        ),
    }


@click.group(cls=_Queue, invoke_without_command=True)
@click.option(
    "--limit",
    default=100,
    show_default=True,
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Maximum number of jobs.",
)
@list_options(_WAITING)
@api_command
@click.pass_context
def queue(ctx: click.Context, app: App, limit: int, asked: "Asked[Waiting, Waiting]") -> None:
    """List pending jobs in the order in which they are considered.

    Commands below it are about the tree of queues: guarantees, limits and fair shares.
    """
    if ctx.invoked_subcommand is not None:
        return
    from mesos_gpu.api.spec.cluster.line import Queue

    client = app.client()

    def load() -> "Seen[Waiting]":
        waiting = client.get("/v1/queue", Queue, {"limit": _MAX if asked.filtered else limit})
        hidden = sum(use["waiting"] for use in waiting["queues"]) - len(waiting["jobs"])
        more = f"{hidden} more {'wait' if hidden > 1 else 'waits'}; list them with --limit"
        return Seen(
            waiting["jobs"],
            "No such pending job." if asked.filtered else "No pending jobs.",
            lambda jobs: {**waiting, "jobs": jobs},
            lambda _jobs: _show_limits(waiting["queues"]),
            [more] if hidden > 0 else [],
        )

    show(asked, load)


def _show_limits(queues: "Sequence[QueueUse]") -> None:
    limited = [use for use in queues if use["limit_gpus"] is not None]
    if limited:
        click.echo()
        output.table(("QUEUE", "GPUS", "LIMIT", "WAITING"), [_use(use) for use in limited], empty="")


def _reserved_text(reservation: "Reservation | None") -> str | None:
    if reservation is None:
        return None
    if reservation["hostname"] is None:
        return "GPUs of its queue"
    gpus = len(reservation["gpu_ids"])
    return f"{reservation['hostname']}, {counted(gpus, 'GPU')}" if gpus else reservation["hostname"]


def _use(use: "QueueUse") -> tuple[object, ...]:
    return use["name"], use["used_gpus"], use["limit_gpus"], use["waiting"]
