"""`mesos-gpu node`: nodes for operators: drains, CDI devices and the share library."""

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
        "undrain": ("mesos_gpu.cli.cluster.node", "End the drain of nodes, so that new work may use them."),
        "cdi": (
            "mesos_gpu.cli.host.node_cdi",
            "Describe this host's GPUs for podman, Docker and containerd (CDI).",
        ),
        "shim": ("mesos_gpu.cli.host.node_shim", "Libraries of this host that enforce shares of GPUs."),
    }


@click.group(cls=_Node)
def node() -> None:
    """Nodes: drains, devices for container engines, and the library that enforces shares.

    NODE is a host name, its first part if that is unique, or the ID of an agent there. A drain belongs to the host: it
    outlives a new registration of its agent and restarts of the scheduler.
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

    Jobs and the node monitor continue; with --deadline, jobs that still run then are ended and restarted elsewhere,
    which uses up no attempt. Draining a node again sets a new reason and deadline.

    \b
      mesos-gpu node drain node7 node8 --reason "new driver" --deadline 30m
    """
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    if deadline is not None:
        output.ask(ends_question(nodes, deadline), yes=yes)
    calls, drained = OperatorCalls(app.client()), []
    for name in nodes:
        for drained_node in told(name, calls.drain_node(name, reason, by=user(), deadline_s=deadline)):
            drained.append(drained_node)
            if not as_json:
                words = sentence(drained_node["drain"], of_gpu=False)
                output.line(
                    f"{drained_node['hostname']} {words}, {counted(drained_node['tasks'], 'task')} on it"
                )
    if as_json:
        output.document(drained)


@click.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True, type=NODE)
@json_option
@api_command
def undrain(app: App, nodes: tuple[str, ...], as_json: bool) -> None:
    """End the drain of nodes, so that new work may use them."""
    from mesos_gpu.cli.cluster.calls import OperatorCalls

    calls, returned = OperatorCalls(app.client()), []
    for name in nodes:
        for returned_node in told(name, calls.undrain_node(name, by=user())):
            returned.append(returned_node)
            if not as_json:
                output.line(f"{returned_node['hostname']} {given_back(returned_node['drain'], of_gpu=False)}")
    if as_json:
        output.document(returned)
