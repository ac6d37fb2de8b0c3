"""`mesos-gpu queue list`: the tree of queues at a glance."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.fit import Fit

if TYPE_CHECKING:
    from mesos_gpu.api.spec.queue_shares import QueueShare

_LEAVE: Final = ("STOP", "LIMIT", "POOL")
_ONE_POOL: Final = ("QUEUE", "GUARANTEE", "LIMIT", "HELD", "BORROWED", "PENDING", "SHARE", "STOP")
_POOLS: Final = (*_ONE_POOL[:1], "POOL", *_ONE_POOL[1:])


@click.command(name="list")
@json_option
@api_command
def list_queues(app: App, as_json: bool) -> None:
    """List the queues: what each is guaranteed, holds, borrows, waits for and is due.

    GPUs count by the cost of their model. A queue has what those below it have, too. SHARE is what it is due now, by
    what everybody holds and waits for; `shares` says what that follows from.
    """
    client = app.client()
    tree, shares = client.call("GET", "/v1/queues", dict), client.queue_shares()
    if as_json:
        output.document({**tree, "shares": shares})
        return
    pools = {share["pool"] for share in shares}
    rows = list(_rows(tree["queues"], shares))
    headers = _POOLS if len(pools) > 1 else _ONE_POOL
    output.table(
        headers,
        [row if len(pools) > 1 else (row[0], *row[2:]) for row in rows],
        empty="There is no tree of queues; write one: mesos-gpu queue apply",
        fit=Fit(paths=("QUEUE",), leave=[each for each in _LEAVE if each in headers]),
    )


def _rows(queues: Mapping[str, Any], shares: "Sequence[QueueShare]") -> Iterator[tuple[object, ...]]:
    """A row of each queue in each pool; of one of which no pool has anything, what it is guaranteed."""
    known: dict[str, list[QueueShare]] = {}
    for share in shares:
        known.setdefault(share["path"], []).append(share)
    for path in sorted({*queues, *known}, key=lambda path: path.split("/")):
        stop = queues.get(path, {}).get("stop", "none")
        shown = None if stop == "none" else stop
        for share in known.get(path, ()):
            yield (
                path,
                share["pool"],
                share["guarantee_gpus"],
                share["limit_gpus"],
                share["held_gpus"],
                share["over_gpus"],
                share["pending_gpus"],
                share["due_gpus"],
                shown,
            )
        if path not in known:
            yield path, None, None, None, 0, 0, None, 0, shown
