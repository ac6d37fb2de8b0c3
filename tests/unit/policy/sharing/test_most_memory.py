"""The most memory that a share may use while nobody else needs it: only where something takes it back."""

import pytest

from mesos_gpu.model.shares.request import Isolation, ShareRequest
from mesos_gpu.model.shares.share import Method
from mesos_gpu.policy.sharing.methods import most_mib

SOFT = [method for method in Method if method.memory_by in ("dmem", "misc")]
HARD = [method for method in Method if method not in SOFT]


def most(max_mib: int | None, method: Method, isolation: Isolation = Isolation.SHARED) -> int:
    return most_mib(
        ShareRequest(250, memory_mib=1000, memory_max_mib=max_mib, isolation=isolation), 1000, 4000, method
    )


@pytest.mark.parametrize("method", SOFT)
@pytest.mark.parametrize(
    ("max_mib", "wanted"), [(None, 1000), (1000, 1000), (3000, 3000), (9000, 4000), (500, 1000)]
)
def test_most_memory_is_between_the_share_and_the_card(
    max_mib: int | None, wanted: int, method: Method
) -> None:
    assert most(max_mib, method) == wanted


@pytest.mark.parametrize("method", HARD)
def test_most_memory_is_the_share_where_nothing_takes_more_back(method: Method) -> None:
    assert most(3000, method) == 1000


@pytest.mark.parametrize("method", SOFT)
@pytest.mark.parametrize(
    ("isolation", "wanted"), [(Isolation.STRICT, 1000), (Isolation.SHARED, 3000), (Isolation.ANY, 3000)]
)
def test_most_memory_is_the_share_of_who_asks_for_strict_limits(
    isolation: Isolation, wanted: int, method: Method
) -> None:
    assert most(3000, method, isolation) == wanted
