"""`mesos-gpu queue why`: waiting jobs of a queue by reason, and an explanation of the first."""

from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.jobs.commands import explain

if TYPE_CHECKING:
    from mesos_gpu.api.spec.queue_shares import QueuePool, QueueWait

_POOLS: Final = Fit(leave=("FAIR_SHARE", "PENDING"))
_WAITS: Final = Fit(wrap=True)
_OF_ROOM: Final = {"gpus": "no node has free capacity", "guarantee": "its guarantee is still in use on nodes"}


@click.command()
@click.argument("path")
@json_option
@api_command
def why(app: App, path: str, as_json: bool) -> None:
    """Explain why jobs of a queue and of the queues below it wait.

    IN_GUARANTEE is what its jobs hold within guarantees, LENT the part of its guarantee that other queues hold. The
    second table counts waiting jobs by reason: `gpus` (no node has free capacity), `guarantee` (the guarantee is still
    in use), `pace` (waiting for their turn), `retry` (waiting to be retried); for other reasons see `mesos-gpu why`.
    The first job in queue order is then explained in full.
    """
    from mesos_gpu.api.spec.queue_shares import QueueWhy
    from mesos_gpu.cli.client import path_of

    answer = app.client().get(path_of("queue-why", path), QueueWhy)
    if as_json:
        output.document(answer)
        return
    output.line(f"{path}: {answer['summary']}.")
    if answer["pools"]:
        click.echo()
        output.table(
            ("POOL", "GUARANTEE", "IN_GUARANTEE", "LENT", "HELD", "FAIR_SHARE", "LIMIT", "PENDING"),
            [_pool(pool) for pool in answer["pools"]],
            empty="",
            fit=_POOLS,
        )
    if answer["waits"]:
        click.echo()
        rows = [_wait(wait) for wait in answer["waits"]]
        output.table(("REASON", "JOBS", "GPUS", "FIRST", "WHY"), rows, empty="", fit=_WAITS)
    if answer["first"] is not None:
        click.echo()
        explain(answer["first"], briefly=True)


def _pool(pool: "QueuePool") -> tuple[object, ...]:
    return (
        pool["pool"],
        pool["guarantee_gpus"],
        pool["seated_gpus"],
        pool["lent_gpus"],
        pool["held_gpus"],
        pool["due_gpus"],
        pool["limit_gpus"],
        pool["pending_gpus"],
    )


def _wait(wait: "QueueWait") -> tuple[object, ...]:
    words = wait["words"] or _OF_ROOM.get(wait["reason"])
    return wait["reason"], wait["jobs"], wait["gpus"], wait["first"], words
