"""`mesos-gpu queue shares`: what queues are due, and what that follows from."""

from typing import TYPE_CHECKING, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.fit import Fit

if TYPE_CHECKING:
    from mesos_gpu.api.spec.queue_shares import PathShare, QueueShare, UserShare

_ALL: Final = Fit(paths=("QUEUE",), leave=("USED_H", "LIMIT", "OVER", "POOL"))
_STEPS: Final = Fit(paths=("QUEUE",), leave=("LIMIT", "KEPT", "PENDING"))


@click.command()
@click.argument("path", required=False)
@json_option
@api_command
def shares(app: App, path: str | None, as_json: bool) -> None:
    """List what each queue is due, holds and waits for; of one queue, what that follows from.

    GPUs count by the cost of their model. Of a queue, GIVEN is what the queue above divides, FLOOR what it gets of its
    guarantee, KEPT what is kept idle for it. REST is left over when its turn comes, of which it is due LENT by its
    WEIGHT among its siblings. Its users follow, the first in line first.
    """
    if path is None:
        listed = app.client().queue_shares()
        if as_json:
            output.document({"shares": listed})
            return
        _list(listed)
        return
    share = app.client().queue_share(path)
    if as_json:
        output.document(share)
        return
    _explain(share)


def _list(listed: "list[QueueShare]") -> None:
    output.table(
        ("QUEUE", "POOL", "DUE", "HELD", "PENDING", "GUARANTEE", "OVER", "LIMIT", "USED_H"),
        [
            (
                share["path"],
                share["pool"],
                share["due_gpus"],
                share["held_gpus"],
                share["pending_gpus"],
                share["guarantee_gpus"],
                share["over_gpus"],
                share["limit_gpus"],
                share["used_gpu_hours"],
            )
            for share in listed
        ],
        empty="There is no tree of queues, or there are no GPUs.",
        fit=_ALL,
    )


def _explain(share: "PathShare") -> None:
    pools = dict.fromkeys(step["pool"] for step in share["steps"])
    for pool in pools:
        output.line(f"Pool {pool}:")
        output.table(
            ("QUEUE", "GIVEN", "FLOOR", "KEPT", "REST", "WEIGHT", "LENT", "DUE", "HELD", "PENDING"),
            [_step(step) for step in share["steps"] if step["pool"] == pool],
            empty="",
            fit=_STEPS,
        )
    if not pools:
        output.line("There are no GPUs.")
    if share["users"]:
        click.echo()
        output.table(
            ("RANK", "USER", "SHARES", "USED_H", "HELD"), [_user(user) for user in share["users"]], empty=""
        )


def _step(step: "QueueShare") -> tuple[object, ...]:
    return (
        step["path"],
        step["given_gpus"],
        step["floor_gpus"],
        step["kept_gpus"],
        step["rest_gpus"],
        _percent(step),
        step["borrowed_gpus"],
        step["due_gpus"],
        step["held_gpus"],
        step["pending_gpus"],
    )


def _percent(share: "QueueShare") -> str:
    return f"{100 * share['weight'] / share['weights']:.0f} %" if share["weights"] else "0 %"


def _user(user: "UserShare") -> tuple[object, ...]:
    return user["rank"] + 1, user["user"] or None, user["shares"], user["used_gpu_hours"], user["held_gpus"]
