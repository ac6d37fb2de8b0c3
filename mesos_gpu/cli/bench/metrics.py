"""`mesos-gpu bench metrics`: the page that Prometheus reads, of clusters of several sizes."""

import statistics
import time
from dataclasses import fields
from typing import Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.model.ids import AgentId, GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory
from mesos_gpu.model.nodes.gpu_use import GpuUse, Meters, TaskUse, Work
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.task import Task, TaskState

SIZES: Final = ((1000, 1000), (10_000, 1000))  # cards, and tasks of one card each
_NODE_CARDS: Final = 8
_QUEUES: Final = 20
_ROUNDS: Final = 5
_METERS: Final = Meters(**{field.name: 7 for field in fields(Meters)})
_WORK: Final = Work(1.0, 100, 50)


@click.command()
@json_option
def metrics(as_json: bool) -> None:
    """Make the page of metrics of 1,000 and 10,000 cards that tell everything, with 1,000 tasks; the time in ms, and
    how much of it the engine's thread has."""
    results = []
    for cards, tasks in SIZES:
        output.note(f"{cards:,} cards, {tasks:,} tasks")
        results.append(measured(cards, tasks))
    if as_json:
        output.document(results)
    else:
        output.table(tuple(results[0]), [tuple(each.values()) for each in results], empty="")


def measured(cards: int, tasks: int) -> dict[str, Any]:
    """Make the page some times: medians in ms, lines and KiB."""
    from mesos_gpu.api.metrics.families import metrics as families
    from mesos_gpu.api.metrics.families import snapshot
    from mesos_gpu.engine.settings import Settings
    from mesos_gpu.scheduler.view import StateView
    from mesos_gpu.wire.export import prometheus

    state, engine_ms, page_ms, page = _state(cards, tasks), list[float](), list[float](), b""
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        seen = snapshot(StateView(state, Settings("executor", "monitor"), 10.0))
        engine_ms.append((time.perf_counter() - began) * 1000)
        page = prometheus.render(families(seen)).encode()
        page_ms.append((time.perf_counter() - began) * 1000)
    return {
        "CARDS": cards,
        "TASKS": tasks,
        "LINES": page.count(b"\n"),
        "KIB": len(page) >> 10,
        "PAGE_MS": round(statistics.median(page_ms), 1),
        "ENGINE_MS": round(statistics.median(engine_ms), 1),
    }


def _state(cards: int, tasks: int) -> Any:
    from mesos_gpu.engine.state import State

    state = State(started_at=0.0)
    for number in range(-(-cards // _NODE_CARDS)):
        first = number * _NODE_CARDS
        gpus = [_gpu(i) for i in range(first, min(first + _NODE_CARDS, cards))]
        held = [_launched(state, number, i, gpu) for i, gpu in enumerate(gpus, first) if i < tasks]
        uses = tuple(GpuUse(gpu.id, 9.0, _METERS, _WORK, 2, 31) for gpu in gpus)
        said = Inventory(tuple(gpus), "nvml", "535.104.05", gpu_uses=uses, task_uses=tuple(held))
        state.put(Node(AgentId(f"a{number}"), f"node-{number}", inventory=said, reported_at=10.0))
    return state


def _gpu(number: int) -> Gpu:
    minor = number % _NODE_CARDS
    uuid = GpuId(f"GPU-{number:08x}-f8f8-5919-8128-7782099d4f97")
    return Gpu(uuid, "NVIDIA A100-SXM4-80GB", 81920, minor, f"0000:{minor:02x}:00.0", health=Health.OK)


def _launched(state: Any, node: int, number: int, gpu: Gpu) -> TaskUse:
    """Put a job and its task in, and say what that uses."""
    queue = f"queue-{number % _QUEUES}"
    spec = JobSpec(name="train", command="true", gpus=1, queue=queue)
    job = Job(JobId(f"train-{number:08x}"), spec, 0.0, number + 1, state=JobState.RUNNING)
    task = Task(
        TaskId(f"{job.id}.1"), AgentId(f"a{node}"), "executor", job.id, TaskState.RUNNING, 1.0, gpus=(gpu.id,),
        hostname=f"node-{node}",
    )  # fmt: skip
    state.put(job)
    state.put(task)
    return TaskUse(task.id, gpu.id, 9.0, 2, 4096, _WORK, 5.0)
