"""`mesos-gpu queue list`: overview of the tree of queues."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.cli.queues import hours
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from mesos_gpu.api.spec.queue_shares import QueueShare


class _Row(NamedTuple):
    """A queue in a pool; None values are shown as `-`."""

    queue: str
    pool: str | None
    guarantee: float | None
    limit: float | None
    held: float
    borrowed: float
    pending: float | None
    share: float
    stop: str | None
    until: float | None
    next: str | None
    pools: str | None
    overflow_s: float | None


_QUEUES: Final[Listing[_Row, _Row]] = Listing(
    columns=(
        Col("QUEUE", lambda row: row.queue),
        Col("POOL", lambda row: row.pool, telling=True),
        Col("GUARANTEE", lambda row: row.guarantee),
        Col("LIMIT", lambda row: row.limit),
        Col("HELD", lambda row: row.held),
        Col("BORROWED", lambda row: row.borrowed),
        Col("PENDING", lambda row: row.pending),
        Col("FAIR_SHARE", lambda row: row.share),
        Col("UNTIL", lambda row: _moment(row.until), lambda row: row.until, rare=True, moves=True),
        Col("STOP", lambda row: row.stop),
        Col("NEXT", lambda row: row.next, wide=True),
        Col("POOLS", lambda row: row.pools, wide=True),
        Col("OVERFLOW", lambda row: output.span(row.overflow_s), lambda row: row.overflow_s, wide=True),
    ),
    id=lambda row: row.queue,
    rows=lambda row: (row,),
    filters={By.QUEUE: lambda row: (row.queue,)},
    fit=Fit(
        paths=("QUEUE",), leave=("STOP", "LIMIT", "POOL", "UNTIL", "OVERFLOW", "POOLS", "NEXT", "BORROWED")
    ),
)


@click.command(name="list")
@list_options(_QUEUES)
@api_command
def list_queues(app: App, asked: "Asked[_Row, _Row]") -> None:
    """List the queues: guarantee, GPUs held, borrowed and pending, and fair share of each.

    GPUs are weighted by the cost of their model. Values of a queue include all queues below it. BORROWED is what it
    holds beyond its guarantee. FAIR_SHARE is what it should hold now, given what all queues hold and request:
    `mesos-gpu queue shares PATH` shows the steps. UNTIL is the next time at which `hours` change its values.

    With -o wide, NEXT is that change, and POOLS are the pools that its jobs may use, in order; a job may use the next
    pool after it has waited for OVERFLOW.
    """
    from mesos_gpu.api.spec.queue_shares import QueueShareList

    client = app.client()

    def load() -> Seen[_Row]:
        tree = client.get("/v1/queues", dict)
        shares = client.get("/v1/queue-shares", QueueShareList)["shares"]
        return Seen(
            list(_rows(tree, shares)),
            "No such queue."
            if asked.filtered
            else "No queues are configured; apply a file with: mesos-gpu queue apply FILE",
            lambda rows: _document(tree, shares, {row.queue for row in rows}),
        )

    show(asked, load)


def _document(tree: dict[str, Any], shares: "Sequence[QueueShare]", paths: Collection[str]) -> dict[str, Any]:
    queues = {path: queue for path, queue in tree["queues"].items() if path in paths}
    return {**tree, "queues": queues, "shares": [share for share in shares if share["path"] in paths]}


def _moment(at: float | None) -> str | None:
    return None if at is None else output.clock(at, time.time())


def _rows(tree: Mapping[str, Any], shares: "Sequence[QueueShare]") -> Iterator[_Row]:
    """Yield a row for each queue in each pool, and one row for a queue that is in no pool."""
    queues = tree["queues"]
    shares_by_path: dict[str, list[QueueShare]] = {}
    for share in shares:
        shares_by_path.setdefault(share["path"], []).append(share)
    for path in sorted({*queues, *shares_by_path}, key=lambda path: path.split("/")):
        stop = queues.get(path, {}).get("stop", "none")
        shown = None if stop == "none" else stop
        more = (
            shown,
            hours.next_change(tree, path),
            hours.next_words(tree, path),
            hours.pools_words(tree, path),
            hours.overflow_s(tree, path),
        )
        for share in shares_by_path.get(path, ()):
            yield _Row(
                path,
                share["pool"],
                share["guarantee_gpus"],
                share["limit_gpus"],
                share["held_gpus"],
                share["over_gpus"],
                share["pending_gpus"],
                share["due_gpus"],
                *more,
            )
        if path not in shares_by_path:
            yield _Row(path, None, None, None, 0, 0, None, 0, *more)
