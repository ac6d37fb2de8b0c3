"""`mesos-gpu queue why`: how many jobs of a queue wait for what, and why the first of them does."""

from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.jobs.commands import explain

if TYPE_CHECKING:
    from mesos_gpu.api.spec.queue_shares import QueuePool, QueueWait

_POOLS: Final = Fit(leave=("DUE", "PENDING"))
_WAITS: Final = Fit(wrap=True)
_OF_ROOM: Final = {"gpus": "there is no room on nodes", "guarantee": "its guarantee is not free on nodes yet"}


@click.command()
@click.argument("path")
@json_option
@api_command
def why(app: App, path: str, as_json: bool) -> None:
    """Say why jobs of a queue wait, and those of all queues below it.

    IN_GUARANTEE is the GPUs that its jobs hold within its guarantee, LENT those of the guarantee that other queues
    hold. The second table has the reasons of waiting jobs: `gpus` is room on nodes, `guarantee` room that a guarantee
    gives them, `pace` their turn on nodes with room, `retry` their next launch; other reasons are those of
    `mesos-gpu why`. The first waiting job is explained in full.
    """
    from mesos_gpu.api.spec.queue_shares import QueueWhy
    from mesos_gpu.cli.client import path_of

    told = app.client().get(path_of("queue-why", path), QueueWhy)
    if as_json:
        output.document(told)
        return
    output.line(f"{path}: {told['summary']}.")
    if told["pools"]:
        click.echo()
        output.table(
            ("POOL", "GUARANTEE", "IN_GUARANTEE", "LENT", "HELD", "DUE", "LIMIT", "PENDING"),
            [_pool(each) for each in told["pools"]],
            empty="",
            fit=_POOLS,
        )
    if told["waits"]:
        click.echo()
        rows = [_wait(each) for each in told["waits"]]
        output.table(("REASON", "JOBS", "GPUS", "FIRST", "WHY"), rows, empty="", fit=_WAITS)
    if told["first"] is not None:
        click.echo()
        explain(told["first"], briefly=True)


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
