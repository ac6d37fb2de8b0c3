"""`mesos-gpu queue shares`: fair shares of queues, and the steps to them."""

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
        Col("FAIR_SHARE", lambda share: share["due_gpus"]),
        Col("HELD", lambda share: share["held_gpus"]),
        Col("PENDING", lambda share: share["pending_gpus"]),
        Col("GUARANTEE", lambda share: share["guarantee_gpus"]),
        Col("BORROWED", lambda share: share["over_gpus"]),
        Col("LIMIT", lambda share: share["limit_gpus"]),
        Col("USED_H", lambda share: share["used_gpu_hours"]),
    ),
    id=lambda share: f"{share['path']} {share['pool']}",
    rows=lambda share: (share,),
    filters={By.QUEUE: lambda share: (share["path"],)},
    fit=Fit(paths=("QUEUE",), leave=("USED_H", "LIMIT", "BORROWED", "POOL")),
)
_STEPS: Final = Fit(paths=("QUEUE",), leave=("RESERVED", "PENDING", "REST", "HELD"))


@click.command()
@click.argument("path", required=False)
@list_options(_SHARES)
@api_command
def shares(app: App, path: str | None, asked: "Asked[QueueShare, QueueShare]") -> None:
    """List the fair share of each queue; for one queue, the steps of its computation.

    GPUs are weighted by the cost of their model. FAIR_SHARE is the number of GPUs that a queue should hold now.

    With PATH, there is a line for each queue from the top down to PATH. TO_DIVIDE is the fair share of the parent,
    which the queue and its siblings divide. GUARANTEED is the requested part of its guarantee, RESERVED the part that
    stays idle for it. REST is left over after all guarantees; the queue gets BORROWED of it, by its WEIGHT among its
    siblings. Values set by hours for these queues follow, and then the users of PATH by rank.
    """
    from mesos_gpu.api.spec.queue_shares import PathShare, QueueShareList
    from mesos_gpu.cli.client import path_of

    client = app.client()
    if path is not None:
        as_json = refuse_of_one(asked, "PATH")
        share = client.get(path_of("queue-shares", path), PathShare)
        output.document(share) if as_json else _explain(share, client.get("/v1/queues", dict))
        return
    empty = "No such queue." if asked.filtered else "No queues are configured, or there are no GPUs."

    def load() -> Seen["QueueShare"]:
        listed = client.get("/v1/queue-shares", QueueShareList)["shares"]
        return Seen(listed, empty, lambda chosen: {"shares": chosen})

    show(asked, load)


def _explain(share: "PathShare", tree: Mapping[str, Any]) -> None:
    """Print the steps of a fair share in each pool, the hours in force, and the users by rank."""
    pools = dict.fromkeys(step["pool"] for step in share["steps"])
    for pool in pools:
        output.line(f"Pool {pool}:")
        output.table(
            (
                "QUEUE", "TO_DIVIDE", "GUARANTEED", "RESERVED", "REST", "WEIGHT", "BORROWED", "FAIR_SHARE", "HELD",
                "PENDING",
            ),
            [_step(step) for step in share["steps"] if step["pool"] == pool],
            empty="",
            fit=_STEPS,
        )  # fmt: skip
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
