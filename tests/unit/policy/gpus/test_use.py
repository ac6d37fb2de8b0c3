"""Time at work by samples: gaps are neither idle nor busy, and unknown is never 0."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.nodes.gpu_use import Span, Work, busy_pct
from mesos_gpu.policy.gpus.use import (
    MAX_SAMPLE_US,
    busy_of,
    counted,
    idle_since,
    shares_of_span,
    span_of,
)

S = 1_000_000  # microseconds


def test_use_sample_covers_the_time_since_the_one_before() -> None:
    assert span_of([(11 * S, 0), (12 * S, 100), (13 * S, 50)], 10 * S) == (Span(3000, 1500), 13 * S)


def test_use_samples_are_counted_once() -> None:
    assert span_of([(9 * S, 100), (10 * S, 100), (11 * S, 0)], 10 * S) == (Span(1000, 0), 11 * S)
    assert span_of([], 10 * S) == (Span(0, 0), 10 * S)


def test_use_in_a_gap_between_samples_is_unknown() -> None:
    """A buffer that has wrapped: what came before its first sample is forgotten."""
    assert span_of([(11 * S, 100), (60 * S, 0)], 10 * S) == (Span(1000, 1000), 60 * S)
    assert span_of([(60 * S, 100), (61 * S, 0), (62 * S, 0)], 10 * S) == (Span(3000, 1000), 62 * S)
    assert span_of([(60 * S, 100), (60 * S + MAX_SAMPLE_US + 1, 0)], 10 * S)[0] == Span(0, 0)


def test_use_sample_that_is_no_percentage_is_skipped() -> None:
    assert (
        span_of([(11 * S, 4711), (12 * S, 100)], 10 * S)[0].busy_ms == 2000
    )  # the sample of 2 s stands for both


@pytest.mark.parametrize(
    ("samples", "wanted"),
    [
        ([(1999, 100)], (Span(1, 1), 1999)),
        ([(2000, 99)], (Span(2, 1), 2000)),
        ([(2000, 0)], (Span(2, 0), 2000)),
        ([(2000, 100)], (Span(2, 2), 2000)),
        ([(2000, -1)], (Span(0, 0), 0)),
        ([(2000, 101)], (Span(0, 0), 0)),
        ([(0, 100), (1000, 100)], (Span(1, 1), 1000)),
        ([(4000, 50), (2000, 100)], (Span(4, 3), 4000)),
        ([(MAX_SAMPLE_US, 100)], (Span(2000, 2000), MAX_SAMPLE_US)),
        ([(MAX_SAMPLE_US + 1, 100)], (Span(0, 0), MAX_SAMPLE_US + 1)),
        ([(3 * S, 100), (5 * S, 0)], (Span(4000, 2000), 5 * S)),
        ([(3 * S, 100), (5 * S + 1, 0)], (Span(0, 0), 5 * S + 1)),
        ([(3 * S, 0), (4 * S, 100), (5 * S, 100)], (Span(3000, 2000), 5 * S)),
    ],
)
def test_use_span_of_samples_since_the_epoch(
    samples: list[tuple[int, int]], wanted: tuple[Span, int]
) -> None:
    assert span_of(samples, 0) == wanted


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 100))), st.integers(0, 10**9))
def test_use_span_is_bounded_by_the_time_seen_and_passed(
    samples: list[tuple[int, int]], last_us: int
) -> None:
    span, at_us = span_of(samples, last_us)
    assert 0 <= span.busy_ms <= span.seen_ms <= (at_us - last_us) / 1000


def test_processes_have_their_part_of_the_span() -> None:
    assert shares_of_span(Span(1000, 600), [(7, 40), (8, 10), (8, 30), (0, 50), (9, 200)]) == {7: 200, 8: 200}


def test_process_that_the_driver_names_once_was_not_at_work_all_the_time() -> None:
    assert shares_of_span(Span(1000, 1000), [(7, 100)] * 10 + [(8, 30)]) == {7: 1000, 8: 30}
    assert shares_of_span(Span(1000, 30), []) == {}


def test_process_share_is_of_samples_from_none_to_all() -> None:
    assert shares_of_span(Span(1000, 600), [(1, 0), (2, 100), (3, -1), (3, 101), (-1, 50)]) == {1: 0, 2: 1000}
    assert shares_of_span(Span(999, 0), [(7, 50)]) == {7: 499}


def test_process_use_is_at_most_what_was_seen() -> None:
    assert busy_of(Span(1000, 900), {7: 700, 8: 500}, [7], [8]) == Span(500, 500)
    assert busy_of(Span(1000, 900), {7: 300}, [7, 9]) == Span(1000, 300)
    assert busy_of(Span(1000, 1), {7: 300}, [7]) == Span(1000, 1)


def test_process_use_of_an_idle_card_is_nothing() -> None:
    assert busy_of(Span(1000, 0), None, [7]) == Span(1000, 0)


def test_process_use_is_unknown_without_data_of_processes() -> None:
    assert busy_of(Span(1000, 600), None, [7]) is None
    assert busy_of(Span(1000, 600), {}, [7]) is None
    assert busy_of(None, {7: 100}, [7]) is None


def test_process_use_is_nothing_if_unnamed_and_at_most_that_of_the_card() -> None:
    assert busy_of(Span(1000, 600), {7: 600}, [8]) == Span(1000, 0)
    assert busy_of(Span(1000, 900), {7: 600, 8: 600}, [7, 8]) == Span(1000, 900)


def test_process_use_of_unknown_tasks_counts_as_not_seen() -> None:
    assert busy_of(Span(1000, 900), {7: 300, 8: 500}, [7], [8]) == Span(500, 300)
    assert busy_of(Span(1000, 900), {7: 300, 8: 500}, [], [7, 8, 9]) == Span(200, 0)
    assert busy_of(Span(1000, 900), {7: 300, 8: 1000}, [7], [8]) == Span(0, 0)
    assert busy_of(Span(1000, 0), {8: 500}, [7], [8]) == Span(1000, 0)


def test_counts_grow_and_stay_what_they_are_while_nothing_is_known() -> None:
    first = counted(None, Span(1000, 500), 100.0)
    assert first == Work(99.0, 1000, 500)
    assert counted(first, None, 110.0) == first
    assert counted(first, Span(2000, 0), 112.0) == Work(99.0, 3000, 500)
    assert counted(None, None, 100.0) is None


def test_idle_time_lasts_while_every_sample_is_idle() -> None:
    since = idle_since(None, Span(1000, 0), 100.0)
    assert since == 99.0
    assert idle_since(since, Span(1000, 0), 101.0) == 99.0
    for unknown_or_busy in (None, Span(0, 0), Span(1000, 1)):
        assert idle_since(since, unknown_or_busy, 102.0) is None


def test_use_fraction_is_of_the_time_seen_between_two_counts() -> None:
    assert busy_pct(Work(1.0, 1000, 100), Work(1.0, 3000, 600)) == 25.0
    assert busy_pct(Work(1.0, 1000, 100), Work(1.0, 1000, 100)) is None  # nothing was seen
    assert busy_pct(Work(1.0, 1000, 100), Work(2.0, 3000, 600)) is None  # the count began anew
    assert busy_pct(None, Work(1.0, 3000, 600)) is None
