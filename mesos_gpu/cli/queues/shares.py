"""`mesos-gpu queue shares`: what queues are due, and what that follows from."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing
from mesos_gpu.cli.lists.options import Asked, list_options, refuse_of_one
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.cli.queues.hours import remarks_on
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from mesos_gpu.api.spec.queue_shares import PathShare, QueueShare, UserShare

_SHARES: Final[Listing["QueueShare", "QueueShare"]] = Listing(
    columns=(
        Col("QUEUE", lambda share: share["path"]),
        Col("POOL", lambda share: share["pool"]),
        Col("DUE", lambda share: share["due_gpus"]),
        Col("HELD", lambda share: share["held_gpus"]),
        Col("PENDING", lambda share: share["pending_gpus"]),
        Col("GUARANTEE", lambda share: share["guarantee_gpus"]),
        Col("OVER", lambda share: share["over_gpus"]),
        Col("LIMIT", lambda share: share["limit_gpus"]),
        Col("USED_H", lambda share: share["used_gpu_hours"]),
    ),
    id=lambda share: f"{share['path']} {share['pool']}",
    rows=lambda share: (share,),
    filters={By.QUEUE: lambda share: (share["path"],)},
    fit=Fit(paths=("QUEUE",), leave=("USED_H", "LIMIT", "OVER", "POOL")),
)
_STEPS: Final = Fit(paths=("QUEUE",), leave=("LIMIT", "RESERVED", "PENDING"))


@click.command()
@click.argument("path", required=False)
@list_options(_SHARES)
@api_command
def shares(app: App, path: str | None, asked: "Asked[QueueShare, QueueShare]") -> None:
    """List what each queue is due, holds and waits for; of one queue, what that follows from.

    GPUs count by the cost of their model. Of a queue, GIVEN is what the queue above divides, FLOOR what it gets of its
    guarantee, RESERVED what is kept idle for it. REST is left over when its turn comes, of which it is due LENT by its
    WEIGHT among its siblings. What hours have made of it, and of those above it, follows; then its users, the first in
    line first.
    """
    from mesos_gpu.api.spec.queue_shares import PathShare, QueueShareList
    from mesos_gpu.cli.client import path_of

    client = app.client()
    if path is not None:
        as_json = refuse_of_one(asked, "PATH")
        share = client.get(path_of("queue-shares", path), PathShare)
        output.document(share) if as_json else _explain(share, client.get("/v1/queues", dict))
        return
    empty = "No such queue." if asked.filtered else "There is no tree of queues, or there are no GPUs."

    def look() -> Seen["QueueShare"]:
        listed = client.get("/v1/queue-shares", QueueShareList)["shares"]
        return Seen(listed, empty, lambda chosen: {"shares": chosen})

    show(asked, look)


def _explain(share: "PathShare", tree: Mapping[str, Any]) -> None:
    pools = dict.fromkeys(step["pool"] for step in share["steps"])
    for pool in pools:
        output.line(f"Pool {pool}:")
        output.table(
            ("QUEUE", "GIVEN", "FLOOR", "RESERVED", "REST", "WEIGHT", "LENT", "DUE", "HELD", "PENDING"),
            [_step(step) for step in share["steps"] if step["pool"] == pool],
            empty="",
            fit=_STEPS,
        )
    if not pools:
        output.line("There are no GPUs.")
    for line in remarks_on(tree, share["path"]):
        output.line(line)
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
