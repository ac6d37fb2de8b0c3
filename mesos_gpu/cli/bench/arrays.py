"""`mesos-gpu bench arrays`: what job arrays that wait cost a match, beside the same tasks as jobs."""

import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter, thread_time
from typing import Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import json_option
from mesos_gpu.cli.bench.queues import Cluster, document_of, leaves_in
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.saves import Save

_NODES, _GPUS = 100, 4
_ARRAYS: Final = 10
_ROUNDS: Final = 9
_RUNNING: Final = JobSpec("runs", command="true", cpus=0.1, timeout_s=36_000.0, preemptible=True)


@click.command()
@click.option("--tasks", default=10_000, show_default=True, type=click.IntRange(1), help="Of each array.")
@json_option
def arrays(tasks: int, as_json: bool) -> None:
    """Match 10 arrays of 10,000 tasks on a full cluster of 400 GPUs, with a tree of queues and without, beside 10 jobs
    and beside as many jobs as the arrays have tasks; processor time in ms.

    Then the time to take in and save an array of so many tasks, 200 at once.
    """
    result: dict[str, float] = {}
    for tree in (False, True):
        place = "tree" if tree else "line"
        for name, array, count in (
            (f"{_ARRAYS}_jobs", "", 1),
            (f"{_ARRAYS}_arrays_of_{tasks}", f"0-{tasks - 1}", 1),
            (f"{_ARRAYS * tasks}_jobs", "", tasks),
        ):
            output.note(f"{name} wait, in one {place}")
            result[f"{place}_{name}_match_ms"] = round(_match_ms(array, count, tree=tree), 2)
    result["submit_ms"] = round(_submit_ms(tasks), 2)
    if as_json:
        output.document(result)
    else:
        output.table(("FIGURE", "MS"), list(result.items()), empty="")


def _full(*, tree: bool) -> tuple[Cluster, list[str]]:
    cluster, document = Cluster(), document_of(_NODES * _GPUS)
    if tree:
        cluster.step(ev.QueuesChanged(document, 0))
    leaves = list(leaves_in(document))
    cluster.fill(_NODES, _GPUS, [replace(_RUNNING, queue=leaf) for leaf in leaves])
    return cluster, leaves


def _spec(name: str, queue: str, array: str = "") -> JobSpec:
    return JobSpec(name, command="true", gpus=1, cpus=0.1, queue=queue, array=array or None)


def _match_ms(array: str, count: int, *, tree: bool) -> float:
    """The median time of a match, with something that waits in each of ten queues."""
    cluster, leaves = _full(tree=tree)
    for i in range(_ARRAYS):
        for j in range(count):
            spec = _spec(f"w{i}", leaves[i * 7 % len(leaves)], array)
            cluster.step(ev.JobSubmitted(JobId(f"w{i}x{j}-0a1b2c3d"), spec))
    cluster.match()  # the first one makes what later ones keep
    times: list[float] = []
    for _ in range(_ROUNDS):
        before = thread_time()
        cluster.match()
        times.append((thread_time() - before) * 1000)
    return statistics.median(times)


def _submit_ms(tasks: int) -> float:
    """Take in an array, and write what is saved of it to a disk: from the request's event to its answer."""
    from mesos_gpu.adapters.sqlite_store import SqliteStore

    cluster, leaves = _full(tree=False)
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-bench-") as directory:
        store = SqliteStore(Path(directory) / "state.sqlite")
        try:
            before = perf_counter()
            spec = _spec("sweep", leaves[0], f"0-{tasks - 1}%200")
            effects = cluster.step(ev.JobSubmitted(JobId("sweep-0a1b2c3d"), spec))
            store.save([effect for effect in effects if isinstance(effect, Save)])
            return (perf_counter() - before) * 1000
        finally:
            store.close()
