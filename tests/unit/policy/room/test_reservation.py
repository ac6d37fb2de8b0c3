"""Growth of a share beside a reservation on its card."""

import pytest

from mesos_gpu.model.ids import GpuId, JobId
from mesos_gpu.model.resources import Resources
from mesos_gpu.policy.capacity.node import Reservation
from mesos_gpu.policy.room.reservation import beyond
from mesos_gpu.policy.sharing.parts import GpuPart

CARD = GpuId("g0")


def beside(milli: int, memory_mib: int) -> Reservation:
    """A reservation that leaves so much of the card to others."""
    part = GpuPart(CARD, milli, memory_mib)
    return Reservation(JobId("kept"), "default", Resources(), 1000.0, beside=(part,))


@pytest.mark.parametrize(
    ("more_mib", "more_milli", "lacks"),
    [
        (0, 0, ""),
        (1000, 250, ""),  # exactly what is left
        (1001, 0, "g0 has 1000 MiB free beside its share, and 1001 MiB more are asked for"),
        (0, 251, "g0 has 25 % of its compute free beside its share, and 25.1 % more are asked for"),
        (1001, 251, "g0 has 1000 MiB free beside its share, and 1001 MiB more are asked for"),
        (-500, -50, ""),
    ],
)
def test_reservation_lets_a_share_grow_by_what_is_left_and_no_more(
    more_mib: int, more_milli: int, lacks: str
) -> None:
    assert beyond(beside(250, 1000), CARD, more_mib, more_milli) == lacks


def test_reservation_that_keeps_more_than_is_free_lets_a_share_shrink_alone() -> None:
    over = beside(-10, -10)
    assert beyond(over, CARD, 0, 0) == beyond(over, CARD, -1, -1) == ""
    assert "0 MiB free" in beyond(over, CARD, 1, 0)
    assert "0 % of its compute" in beyond(over, CARD, 0, 1)


def test_reservation_on_another_card_holds_no_share_back() -> None:
    assert beyond(beside(0, 0), GpuId("g1"), 1000, 1000) == ""
