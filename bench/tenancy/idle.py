"""`python -m bench idle`: processor time for reports of monitors and for the check of idle GPUs."""

import statistics
from dataclasses import replace
from time import thread_time
from typing import TYPE_CHECKING, Final

import click

from bench.queues import quick_world
from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.step import step
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.gpu_use import TaskUse, Work
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tenancy import Idle, QueueDocument, QueueSpec
from mesos_gpu.wire.mesos import report

if TYPE_CHECKING:
    from tests.doubles.builders import World

_REPORT_S: Final = 10  # seconds between two reports of a monitor
_GPUS: Final = 8  # of each node; a job has each
_WARM: Final = 3  # rounds before those that count
_DOCUMENT: Final = QueueDocument(queues={"ml": QueueSpec(idle=Idle(start_grace_s=0.0))})
#: Rows by whether there is a document of queues, and the part of the time at work.
_ROWS: Final = {
    "no_document_busy": (False, 0.5),
    "no_document_idle": (False, 0.0),
    "document_busy": (True, 0.5),
    "document_idle": (True, 0.0),
}


@click.command()
@click.option(
    "--nodes", default=100, show_default=True, type=click.IntRange(1, 10_000), help="Nodes of 8 GPUs each."
)
@click.option("--rounds", default=60, show_default=True, type=click.IntRange(1), help="Reports of each node.")
@json_option
def idle(nodes: int, rounds: int, as_json: bool) -> None:
    """Measure the engine's processor time for a report of a node and the check of idle GPUs, in µs.

    Each node has eight jobs of one GPU; its monitor reports other work every ten seconds. Without a document of queues
    idle GPUs are not checked. With one, all jobs are busy or all are idle, and the default rules, which check a job
    once a minute, take no action.
    """
    output.note(f"{nodes:,} nodes, {rounds} reports of each")
    result = {f"{name}_us": round(us, 1) for name, us in _measured(nodes, rounds).items()}
    if as_json:
        output.document(result)
    else:
        output.table(("FIGURE", "US"), list(result.items()), empty="")


def _measured(nodes: int, rounds: int) -> dict[str, float]:
    """Return the processor time of a report in µs, by row; rows take turns, as the speed of the machine may vary."""
    worlds = {name: _filled(nodes, has_document=has_document) for name, (has_document, _) in _ROWS.items()}
    took_us: dict[str, list[float]] = {name: [] for name in _ROWS}
    for number in range(_WARM + rounds):
        for name, (_, share) in _ROWS.items():
            took_us[name].append(_round(worlds[name], number, share))
    return {name: statistics.fmean(each[_WARM:]) / nodes for name, each in took_us.items()}


def _filled(nodes: int, *, has_document: bool) -> "World":
    """Return an engine with a job on each GPU."""
    from tests.doubles.builders import gpu, offer

    world = quick_world()
    if has_document:
        world.feed(ev.QueuesChanged(_DOCUMENT, 0))
    for i in range(nodes):
        world.node(f"n{i}", *(gpu(f"n{i}-{k}") for k in range(_GPUS)), cpus=100)
    for i in range(nodes * _GPUS):
        job = JobSpec("job", command="true", gpus=1, cpus=0.1, queue="ml")
        step(world.state, ev.JobSubmitted(JobId(f"j{i}"), job), world.now, world.settings)
    world.now += _REPORT_S
    offers = [offer(f"o{i}", f"n{i}", cpus=90, gpus=_GPUS) for i in range(nodes)]
    world.feed(ev.OffersArrived(tuple(replace(each, received_at=world.now) for each in offers)))
    for task in [world.state.work.tasks[task_id] for task_id in world.state.work.live]:
        if task.job_id is not None:
            world.status(task.id, "TASK_RUNNING", agent=task.agent_id)
    assert len(world.state.gpus.holders) == nodes * _GPUS, "a job runs on each GPU"
    return world


def _round(world: "World", number: int, share: float) -> float:
    """Let every node report once; return the processor time in µs."""
    world.now += _REPORT_S
    updates = [_said(world, node, number, share) for node in world.state.cluster.nodes.values()]
    began = thread_time()
    for update in updates:
        step(world.state, ev.StatusArrived(update), world.now, world.settings)
    step(world.state, ev.Tick(), world.now, world.settings)
    return (thread_time() - began) * 1e6


def _said(world: "World", node: Node, number: int, share: float) -> Status:
    """Return the status update with a report of a node's monitor."""
    seen_ms = (number + 1) * _REPORT_S * 1000
    work = Work(0.0, seen_ms, round(seen_ms * share))
    uses = [
        TaskUse(world.state.gpus.holders[card.id], card.id, world.now, 1, 100, work) for card in node.gpus
    ]
    assert node.monitor is not None
    data = report.encode(Inventory(node.gpus, "simulated", task_uses=tuple(uses)))
    return Status(node.monitor, "TASK_RUNNING", node.id, uuid="dXVpZA==", data=data)
