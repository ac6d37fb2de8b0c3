"""Models that a booking asks for and that no node of its pool has: they are named when it is made."""

import pytest

from mesos_gpu.model.bookings.booking import BookingSpec
from mesos_gpu.policy.calendar.book import Ground, NodeGpus, unknown_models

BINS = [
    NodeGpus("n1", "A100", "default", 4),
    NodeGpus("n2", "T4", "default", 4),
    NodeGpus("n3", "H100", "fast", 8),
]


@pytest.mark.parametrize(
    ("models", "pool", "known"),
    [
        ((), "default", True),
        (("A100",), "default", True),
        (("H100", "T4"), "default", True),
        (("H100",), "default", False),
        (("H100",), "fast", True),
        (("A100", "T4"), "fast", False),
        (("a100", "H100"), "default", True),
        (("NVIDIA T4",), "default", True),
        (("A10",), "default", False),
        (("A100",), "empty", True),  # its nodes may come up yet
    ],
)
def test_unknown_models_are_those_of_no_node_of_the_pool(
    models: tuple[str, ...], pool: str, known: bool
) -> None:
    spec = BookingSpec("exam", "q", 2, "2026-12-01T09:00", 3600, models=models, pool=pool)
    why = unknown_models(Ground(BINS, models=frozenset(each.model for each in BINS)), spec)
    assert (why == "") is known
    assert known or f"of pool {pool}" in why
