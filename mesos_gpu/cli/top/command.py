"""The command `mesos-gpu top`."""

import sys
from typing import Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option
from mesos_gpu.cli.top.cards import CARDS
from mesos_gpu.cli.top.nodes import NODES
from mesos_gpu.cli.top.queue import QUEUE
from mesos_gpu.cli.top.tasks import TASKS
from mesos_gpu.cli.top.view import Row, View
from mesos_gpu.cli.types import DURATION

VIEWS: Final = (CARDS, NODES, TASKS, QUEUE)
_MIN_S: Final = 1.0  # minimum interval of requests
_ORDERS: Final = tuple(dict.fromkeys(order for view in VIEWS for order in view.orders))


@click.command()
@click.argument(
    "name", metavar="[VIEW]", default=CARDS.name, type=click.Choice([view.name for view in VIEWS])
)
@click.option(
    "--sort",
    type=click.Choice(_ORDERS),
    help="Sort the largest values first. cards: memory, compute, power, temperature; nodes: these, and free; "
    "tasks: memory, compute, idle, ran, gpus; queue: gpus, waits, priority.  [default: by name, or place]",
)
@click.option(
    "--node",
    "nodes",
    metavar="HOST",
    multiple=True,
    help="Only this node; the first part of its name is enough; `*` matches anything; may be repeated.",
)
@click.option("--filter", "words", metavar="WORDS", default="", help="Only rows that contain these words.")
@click.option("--interval", type=DURATION, default="2s", show_default=True, help="Time between updates.")
@click.option(
    "-1", "--once", is_flag=True, help="Print once and exit; this is the default if stdout is not a terminal."
)
@json_option
@api_command
def top(
    app: App,
    name: str,
    sort: str | None,
    nodes: tuple[str, ...],
    words: str,
    interval: float,
    once: bool,
    as_json: bool,
) -> None:
    """Watch GPUs, nodes, tasks or the queue live.

    VIEW is cards (GPUs), nodes, tasks or queue. The view of cards has a row for each GPU, and for each share of one.
    USER is the owner of the job, or its Unix user if the scheduler runs without authentication. USED_% is the
    utilization in the last minute, for a share the part of the GPU's compute that it used. SHARE_MIB and SHARE_% are
    the granted amounts, REFUSED counts allocations beyond them, and the state `over` means more memory than granted.
    Values that the driver does not report are empty. Hosts report every few seconds.

    \b
    Keys: 1 cards, 2 nodes, 3 tasks, 4 queue        arrows choose a row
          s next order; m memory, p compute         k kills the row's job (asks)
          / filters rows by words                   q or Ctrl-C quits
    """
    view = next(view for view in VIEWS if view.name == name)
    if interval < _MIN_S:
        raise click.BadParameter("must be at least 1s", param_hint="--interval")
    if sort is not None and sort not in view.orders:
        raise click.BadParameter(f"{name} can be sorted by {', '.join(view.orders)}", param_hint="--sort")
    if nodes and view is QUEUE:
        raise click.UsageError("pending jobs are on no node: remove --node")
    client, order = app.client(), sort or view.orders[0]
    if as_json:
        output.document(view.look(client, nodes).document)
    elif once or not output.is_terminal(sys.stdout):
        _print(view, view.chosen(view.look(client, nodes).rows, order, words))
    else:
        from mesos_gpu.cli.top.screen import Watch

        Watch(client, VIEWS, view, order, nodes, words, interval).run()


def _print(view: View, rows: list[Row]) -> None:
    kept = view.columns(people=output.is_terminal(sys.stdout))
    output.table(
        [view.headers[i] for i in kept],
        [[row.cells[i] for i in kept] for row in rows],
        empty=view.empty,
        fit=view.fit,
    )
