"""Counts of work on cards that a job's window is made of."""

import pytest

from mesos_gpu.engine.indexes.work import Count, begun, counted
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu_use import TaskUse, Work

KNOWN = Count(100.0, Work(50.0, 40_000, 10_000), 7_000, 5_000, 3_000)


def use(at: float, work: Work | None) -> TaskUse:
    return TaskUse(TaskId("t"), GpuId("g0"), at, work=work)


@pytest.mark.parametrize(
    ("before", "now", "then"),
    [
        (None, use(100.0, None), Count(100.0, None)),
        (None, use(100.0, Work(50.0, 9, 5)), Count(100.0, Work(50.0, 9, 5))),
        (KNOWN, use(99.9, Work(50.0, 41_000, 10_000)), Count(99.9, Work(50.0, 41_000, 10_000))),
        (KNOWN, use(100.0, KNOWN.work), KNOWN),
        (
            KNOWN,
            use(110.5, Work(50.0, 50_000, 14_000)),
            Count(110.5, Work(50.0, 50_000, 14_000), 17_500, 15_000, 7_000),
        ),
        (
            KNOWN,
            use(110.0, Work(105.0, 5_000, 4_000)),
            Count(110.0, Work(105.0, 5_000, 4_000), 17_000, 5_000, 3_000),
        ),
        (KNOWN, use(110.0, None), Count(110.0, None, 17_000, 5_000, 3_000)),
    ],
    ids=["first, unknown", "first", "clock set back", "same", "goes on", "monitor began again", "unknown"],
)
def test_count_grows_by_what_lies_between_two_reports(
    before: Count | None, now: TaskUse, then: Count
) -> None:
    assert counted(before, now) == then


def test_count_of_a_new_window_has_nothing_yet() -> None:
    assert begun(KNOWN) == Count(KNOWN.at, KNOWN.work)
