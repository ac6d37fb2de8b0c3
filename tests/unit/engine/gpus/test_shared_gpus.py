"""Shared GPUs as they are shown."""

from dataclasses import replace

import pytest

from mesos_gpu.engine.gpus.shared_gpus import shared_gpu
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.shares.card import Sharing
from mesos_gpu.model.shares.share import Method, Share
from mesos_gpu.model.tasks.shared_gpu import SharedGpu
from mesos_gpu.model.tasks.task import Task, TaskState
from tests.doubles.builders import gpu

G0 = GpuId("g0")
CARD = replace(gpu("g0"), sharing=Sharing(5000))


def task(name: str, share: tuple[int, int] | None) -> Task:
    """Return a task with so much compute and memory of the card; one without a share covers the card."""
    known = Task(TaskId(name), AgentId("a1"), name, None, TaskState.RUNNING, 1.0)
    if share is None:
        return replace(known, covers=G0)
    return replace(known, gpus=(G0,), share=Share(*share, share[1], Method.TURNS))


@pytest.mark.parametrize(
    ("shares", "is_covered", "free"),
    [
        ([], True, (1500, 5000)),
        ([(500, 2000)], False, (1000, 3000)),
        ([(500, 2000), (900, 2999)], True, (100, 1)),
        ([(500, 2000), (1100, 4000)], True, (0, 0)),
    ],
)
def test_shared_gpu_is_shown_with_what_is_free_of_it(
    shares: list[tuple[int, int]], is_covered: bool, free: tuple[int, int]
) -> None:
    settings = Settings.of("executor", "monitor").changed(gpu_compute_overcommit=1.5)
    tasks = tuple(task(f"s{number}", share) for number, share in enumerate(shares))
    state, cover = State(0.0), task("c", None) if is_covered else None
    for each in (*tasks, *([cover] if cover else [])):
        state.put(each)
    shown = SharedGpu(G0, cover, tasks, 5000, *free)
    assert shared_gpu(state, settings, CARD) == shown
    unreported = replace(shown, capacity_mib=None, memory_mib=None)
    assert shared_gpu(state, settings, gpu("g0")) == unreported
    assert shared_gpu(state, settings, gpu("g1")) is None
