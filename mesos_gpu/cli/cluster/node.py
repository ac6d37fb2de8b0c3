"""`mesos-gpu node`: nodes as operators treat them."""

from typing import ClassVar

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.cluster.operator import (
    deadline_option,
    ends_question,
    given_back,
    reason_option,
    sentence,
    told,
    user,
)
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.types import NODE
from mesos_gpu.model.words import counted


class _Node(Table):
    table: ClassVar = {
        "list": ("mesos_gpu.cli.cluster.overview:list_nodes", "List the agents of the cluster."),
        "drain": ("mesos_gpu.cli.cluster.node", "Keep new work off nodes."),
        "undrain": ("mesos_gpu.cli.cluster.node", "Give drained nodes back."),
        "cdi": (
            "mesos_gpu.cli.host.node_cdi",
            "Describe this host's GPUs for podman, Docker and containerd (CDI).",
        ),
        "shim": ("mesos_gpu.cli.host.node_shim", "Libraries of this host that keep shares of GPUs."),
    }


@click.group(cls=_Node)
def node() -> None:
    """Nodes: drains, their devices for container engines, and what keeps shares on them.

    NODE is a host name, its first part where that is unique, or the ID of an agent there. A drain is the host's: it
    holds when its agent registers anew, and over restarts of the scheduler.
    """


@click.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True, type=NODE)
@reason_option
@deadline_option
@yes_option
@json_option
@api_command
def drain(
    app: App, nodes: tuple[str, ...], reason: str, deadline: float | None, yes: bool, as_json: bool
) -> None:
    """Keep new work off nodes.

    What runs there runs on, also its node monitor; with --deadline, jobs that still run then are ended and
    start elsewhere, and no attempt of theirs is used up. Drained again, a node gets the new reason and
    deadline.

    \b
      mesos-gpu node drain node7 node8 --reason "new driver" --deadline 30m
    """
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    if deadline is not None:
        output.ask(ends_question(nodes, deadline), yes=yes)
    calls, drained = OperatorCalls(app.client()), []
    for name in nodes:
        for each in told(name, calls.drain_node(name, reason, by=user(), deadline_s=deadline)):
            drained.append(each)
            if not as_json:
                words = sentence(each["drain"], of_gpu=False)
                output.line(f"{each['hostname']} {words}, {counted(each['tasks'], 'task')} on it")
    if as_json:
        output.document(drained)


@click.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True, type=NODE)
@json_option
@api_command
def undrain(app: App, nodes: tuple[str, ...], as_json: bool) -> None:
    """Give drained nodes back."""
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    calls, returned = OperatorCalls(app.client()), []
    for name in nodes:
        for each in told(name, calls.undrain_node(name, by=user())):
            returned.append(each)
            if not as_json:
                output.line(f"{each['hostname']} {given_back(each['drain'], of_gpu=False)}")
    if as_json:
        output.document(returned)
