"""Series as lines of bars."""

import pytest

from mesos_gpu.cli.lists.spark import spark


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [
        ([], 8, ""),
        ([0, 1, 12.5, 13, 50, 99, 100, 250], 8, "▁▁▁▂▄███"),
        ([None, 0, None, 100], 8, "·▁·█"),
        ([None, None, None, 0, 100], 3, "··▄"),  # the oldest bar is of one, the others of two
        ([100, None, 0, 0], 2, "█▁"),  # what is not known lowers no mean
        ([1] * 100, 8, "▁" * 8),
    ],
)
def test_spark_bars_are_means_of_known_values(values: list[float | None], width: int, bars: str) -> None:
    assert spark(values, most=100, width=width) == bars
