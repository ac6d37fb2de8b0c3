"""Terms of deployments, and progress against them."""

import pytest

from mesos_gpu.model.apps.app import GpuOptions
from mesos_gpu.model.apps.rollout import Progress
from mesos_gpu.policy.apps.rollout.deadline import Terms, overdue, overdue_words, progress_after, terms_of

TERMS = Terms(30, reverts=False)


@pytest.mark.parametrize(
    ("options", "terms"),
    [
        (GpuOptions(), None),
        (GpuOptions(in_place=True), None),
        (GpuOptions(progress_deadline_s=5), Terms(5, reverts=False)),
        (GpuOptions(auto_revert=True), Terms(600, reverts=True)),
        (GpuOptions(progress_deadline_s=5, auto_revert=True), Terms(5, reverts=True)),
    ],
)
def test_terms_are_those_of_the_options(options: GpuOptions, terms: Terms | None) -> None:
    assert terms_of(options) == terms


@pytest.mark.parametrize(
    ("before", "count", "now", "after"),
    [
        (None, -3, 100.0, Progress(-3, 100.0)),
        (Progress(1, 100.0), 1, 129.9, Progress(1, 100.0)),
        (Progress(1, 100.0), 0, 130.0, Progress(1, 100.0, overdue=True)),
        (Progress(1, 100.0), 2, 130.0, Progress(2, 130.0)),
        (Progress(1, 100.0, overdue=True), 1, 101.0, Progress(1, 100.0, overdue=True)),
        (Progress(1, 100.0, overdue=True), 2, 140.0, Progress(2, 140.0)),
    ],
)
def test_progress_is_overdue_until_there_is_more(
    before: Progress | None, count: int, now: float, after: Progress
) -> None:
    assert progress_after(before, count, TERMS, now=now, from_s=0.0) == after


def test_progress_is_counted_from_the_connection_to_the_master() -> None:
    before = Progress(1, 100.0)
    assert progress_after(before, 1, TERMS, now=149.9, from_s=120.0) == before
    assert progress_after(before, 1, TERMS, now=150.0, from_s=120.0).overdue


def test_overdue_apps_are_named_with_the_way_out() -> None:
    assert overdue({"/b": Progress(0, 0.0, True), "/c": Progress(0, 0.0), "/a": Progress(0, 0.0, True)}) == (
        "/a",
        "/b",
    )
    said = "overdue: no progress for 30 s (progress_deadline_s), to undo it: mesos-gpu deployment stop d; it waits"
    assert overdue_words(TERMS, "d", "it waits") == said
    assert overdue_words(Terms(5, reverts=True), "d", "").endswith(
        "for 5 s (progress_deadline_s), it is undone"
    )
