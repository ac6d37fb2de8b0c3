"""Waits before a next try: after failures, and for an answer that does not come."""

import pytest

from mesos_gpu.policy.queueing.backoff import MAX_PATIENCE, delay_s, patience_s


@pytest.mark.parametrize(
    ("failures", "first_s", "most_s", "factor", "wait_s"),
    [
        (0, 2.0, 60.0, 2.0, 0.0),
        (-1, 2.0, 60.0, 2.0, 0.0),
        (1, 2.0, 60.0, 2.0, 2.0),
        (2, 2.0, 60.0, 2.0, 4.0),
        (3, 2.0, 60.0, 3.0, 18.0),
        (5, 2.0, 60.0, 2.0, 32.0),
        (6, 2.0, 60.0, 2.0, 60.0),  # and not 64
        (6, 2.0, 64.0, 2.0, 64.0),
        (10_000, 2.0, 60.0, 2.0, 60.0),  # the power would overflow
        (10_000, 2.0, 60.0, 1.0, 2.0),
        (3, 0.0, 60.0, 2.0, 0.0),
        (1, 90.0, 60.0, 2.0, 60.0),
        (1, 60.0, 60.0, 1.0, 60.0),
    ],
)
def test_delay_grows_by_its_factor_up_to_its_bound(
    failures: int, first_s: float, most_s: float, factor: float, wait_s: float
) -> None:
    assert delay_s(failures, first_s=first_s, most_s=most_s, factor=factor) == pytest.approx(wait_s)


def test_delay_doubles_where_no_factor_is_named() -> None:
    assert [delay_s(n, first_s=1.0, most_s=99.0) for n in range(5)] == [0, 1, 2, 4, 8]


@pytest.mark.parametrize(
    ("silent_s", "wait_s"), [(0, 10), (40, 10), (44, 11), (400, 100), (600, 150), (604, 150), (1e9, 150)]
)
def test_patience_is_a_quarter_of_the_silence_within_its_bounds(silent_s: float, wait_s: float) -> None:
    assert MAX_PATIENCE * 10 == 150
    assert patience_s(silent_s, 10.0) == wait_s
