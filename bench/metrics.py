"""`python -m bench metrics`: the page that Prometheus reads, for clusters of several sizes."""

import contextlib
import http.client
import statistics
import time
from dataclasses import fields
from http.client import OK
from multiprocessing.connection import Connection
from typing import Any, Final
from urllib.parse import urlsplit

import click

from bench.api import serving
from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.errors import MesosGpuError
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
_PIECE: Final = 1 << 20  # bytes
_FRESH_S: Final = 600.0  # seconds for which reports stay fresh
_METERS: Final = Meters(**{field.name: 7 for field in fields(Meters)})
_WORK: Final = Work(1.0, 100, 50)


@click.command()
@json_option
def metrics(as_json: bool) -> None:
    """Measure the page of metrics for 1,000 and 10,000 cards that report all meters, with 1,000 tasks.

    PAGE_MS is the processor time of the page, ENGINE_MS the part of it on the engine's thread, and WHOLE_MS the time
    from a request to the last byte of the answer, on loopback.
    """
    results = []
    for cards, tasks in SIZES:
        output.note(f"{cards:,} cards, {tasks:,} tasks")
        results.append({**measured(cards, tasks), "WHOLE_MS": served_ms(cards, tasks)})
    if as_json:
        output.document(results)
    else:
        output.table(tuple(results[0]), [tuple(each.values()) for each in results], empty="")


def measured(cards: int, tasks: int) -> dict[str, Any]:
    """Render the page several times; return medians of processor time in ms, and its lines and KiB."""
    from mesos_gpu.api.metrics.families import metrics as families
    from mesos_gpu.api.metrics.families import snapshot
    from mesos_gpu.engine.reading.view import View
    from mesos_gpu.engine.settings import Settings
    from mesos_gpu.wire.export import prometheus

    state, engine_ms, page_ms, page = _state(cards, tasks), list[float](), list[float](), list[bytes]()
    texts = prometheus.Texts()
    for _ in range(_ROUNDS):
        began = time.process_time()
        seen = snapshot(View(state, Settings.of("executor", "monitor"), 10.0))
        engine_ms.append((time.process_time() - began) * 1000)
        page = [each.encode() for each in prometheus.rendered(families(seen), texts)]
        page_ms.append((time.process_time() - began) * 1000)
    return {
        "CARDS": cards,
        "TASKS": tasks,
        "LINES": sum(each.count(b"\n") for each in page),
        "KIB": sum(map(len, page)) >> 10,
        "PAGE_MS": round(statistics.median(page_ms), 1),
        "ENGINE_MS": round(statistics.median(engine_ms), 1),
    }


def served_ms(cards: int, tasks: int) -> float:
    """Request the page from a scheduler in its own process; return the median of ms until its last byte.

    Raises:
        MesosGpuError: The answer has an error or is too short.
    """
    took_ms = []
    with serving(_serve, cards, tasks) as pipe:
        url = urlsplit(pipe.recv())
        for _ in range(_ROUNDS):
            asked = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
            with contextlib.closing(asked):
                began = time.perf_counter()
                asked.request("GET", "/metrics/prometheus")
                answer, size = asked.getresponse(), 0
                while piece := answer.read(_PIECE):
                    size += len(piece)
                took_ms.append((time.perf_counter() - began) * 1000)
    if answer.status != OK or size < cards:
        raise MesosGpuError(f"the answer was {answer.status}", remedy="report it: the scheduler is not well")
    return round(statistics.median(took_ms), 1)


def _serve(cards: int, tasks: int, pipe: Connection) -> None:
    """Serve a cluster whose nodes have just reported, until the pipe has a message."""
    from mesos_gpu import __version__
    from mesos_gpu.adapters.clock import SystemClock
    from mesos_gpu.api.app import create_app
    from mesos_gpu.api.http.server import serve
    from mesos_gpu.api.settings import ApiSettings
    from mesos_gpu.engine.settings import Settings
    from mesos_gpu.scheduler.daemon import Daemon
    from tests.doubles.builders import saved_of
    from tests.doubles.fake_driver import FakeDriver
    from tests.doubles.memory_store import MemoryStore

    store = MemoryStore(saved_of(_state(cards, tasks, time.time() + _FRESH_S)))
    daemon = Daemon(store, store.load(), FakeDriver(), SystemClock(), Settings.of("executor", "monitor"))
    server = serve(create_app(daemon, ApiSettings("http://127.0.0.1", __version__)), "127.0.0.1", 0)
    daemon.start()
    pipe.send(server.url)
    pipe.recv()
    server.stop()
    daemon.stop()


def _state(cards: int, tasks: int, reported_at: float = 10.0) -> Any:
    from mesos_gpu.engine.state import State

    state = State(started_at=0.0)
    for number in range(-(-cards // _NODE_CARDS)):
        first = number * _NODE_CARDS
        gpus = [_gpu(i) for i in range(first, min(first + _NODE_CARDS, cards))]
        held = [_launched(state, number, i, gpu) for i, gpu in enumerate(gpus, first) if i < tasks]
        uses = tuple(GpuUse(gpu.id, 9.0, _METERS, _WORK, 2, 31) for gpu in gpus)
        said = Inventory(tuple(gpus), "nvml", "535.104.05", gpu_uses=uses, task_uses=tuple(held))
        state.put(Node(AgentId(f"a{number}"), f"node-{number}", inventory=said, reported_at=reported_at))
    return state


def _gpu(number: int) -> Gpu:
    minor = number % _NODE_CARDS
    uuid = GpuId(f"GPU-{number:08x}-f8f8-5919-8128-7782099d4f97")
    return Gpu(
        uuid, "NVIDIA A100-SXM4-80GB", 81920, minor, f"0000:{minor:02x}:00.0", health=Health.OK, index=minor
    )


def _launched(state: Any, node: int, number: int, gpu: Gpu) -> TaskUse:
    """Add a job with a running task to the state; return the use of the task."""
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
