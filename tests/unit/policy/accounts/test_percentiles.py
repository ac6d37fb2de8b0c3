"""Percentiles of waits that are counted by steps, and how evenly amounts are served."""

import pytest

from mesos_gpu.model.usage import Account
from mesos_gpu.policy.accounts.sums import jain_percent, percentile_ms, shortened, step_of, wait_of


@pytest.mark.parametrize(
    ("percent", "wait"), [(0, 1), (1, 1), (50, 1), (51, 2), (75, 2), (76, 3), (99, 3), (100, 3)]
)
def test_percentile_is_the_wait_that_so_many_did_not_exceed(percent: int, wait: int) -> None:
    assert percentile_ms({1: 2, 2: 1, 3: 1}, percent) == wait


def test_percentile_of_one_wait_is_that_wait_and_of_none_unknown() -> None:
    assert [percentile_ms({7: 1}, percent) for percent in (1, 50, 100)] == [7, 7, 7]
    assert percentile_ms({}, 50) is None


@pytest.mark.parametrize("wait_ms", [0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 1000, 59_999, 86_400_000, 10**12])
def test_step_holds_its_wait_and_no_longer_one(wait_ms: int) -> None:
    step = step_of(wait_ms)
    assert wait_of(step) <= wait_ms < wait_of(step + 1)
    assert wait_of(step + 1) - wait_of(step) <= max(wait_ms // 4, 1)


def test_percentile_of_a_long_wait_is_the_middle_of_its_step() -> None:
    step = step_of(100_000)
    assert percentile_ms({step: 3}, 50) == (wait_of(step) + wait_of(step + 1)) // 2


@pytest.mark.parametrize(
    ("served", "owed", "percent"),
    [
        ([5, 5], [5, 5], 100),
        ([2, 4], [1, 2], 100),
        ([4, 0], [1, 1], 50),
        ([3, 0, 0], [1, 1, 1], 33),
        ([4, 9], [1, 0], 100),  # who is owed nothing is left out
        ([0, 0], [1, 1], None),
        ([1], [0], None),
        ([], [], None),
    ],
)
def test_evenness_is_jains_index_of_what_is_served_by_what_is_owed(
    served: list[int], owed: list[int], percent: int | None
) -> None:
    assert jain_percent(served, owed) == percent


@pytest.mark.parametrize(("depth", "queue"), [(0, "a/b/c"), (1, "a"), (2, "a/b"), (3, "a/b/c"), (4, "a/b/c")])
def test_account_is_shortened_to_the_queue_of_a_depth(depth: int, queue: str) -> None:
    assert shortened(Account("ann", "a/b/c", "", "", "", ""), depth).queue == queue
