"""How many tasks of one user could have a share of a card, one after the other."""

import pytest

from mesos_gpu.model.shares.card import MigInstance
from mesos_gpu.model.shares.request import ShareRequest
from mesos_gpu.policy.sharing.methods import times
from tests.unit.policy.sharing.test_methods import ALL, MIG, SHIM, card

SMALL = MigInstance("MIG-s", "1g.10gb", 9_728, 14, 1, 0, 142, 125, 0, 1)
OTHER = MigInstance("MIG-t", "1g.10gb", 9_728, 14, 1, 0, 142, 125, 1, 2)
LARGE = MigInstance("MIG-l", "2g.20gb", 19_968, 28, 2, 0, 285, 250, 2, 3)


@pytest.mark.parametrize(
    ("instances", "memory_mib", "count"),
    [
        ((), 1000, 0),
        ((SMALL,), 1000, 1),
        ((SMALL, OTHER, LARGE), 1000, 3),
        ((SMALL, OTHER, LARGE), 12_000, 1),
        ((SMALL, OTHER), 12_000, 0),
    ],
)
def test_times_of_instances_are_as_many_as_are_large_enough(
    instances: tuple[MigInstance, ...], memory_mib: int, count: int
) -> None:
    there = card(MIG, *ALL, mig=True, instances=instances)
    assert times(ShareRequest(100, memory_mib=memory_mib), there, None, "alice") == count


@pytest.mark.parametrize(
    ("compute_milli", "memory_mib", "count"),
    [
        (250, 1000, 4),
        (251, 1000, 3),
        (100, 20_000, 4),
        (100, 20_001, 3),
        (1000, 80_000, 1),
        (1000, 80_001, 0),
    ],
)
def test_times_of_shares_are_bounded_by_compute_and_by_memory(
    compute_milli: int, memory_mib: int, count: int
) -> None:
    assert times(ShareRequest(compute_milli, memory_mib=memory_mib), card(SHIM), None, None) == count
