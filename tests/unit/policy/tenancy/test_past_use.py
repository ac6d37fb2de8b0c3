"""Past use that is taken back, and with what a new user begins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.policy.tenancy.fair_tree import Account, compare, ranks, start_of
from mesos_gpu.policy.tenancy.usage import MICRO, Usage, halved

HALF_LIFE_S = 3600
MOMENTS = st.integers(0, 10 * HALF_LIFE_S * MICRO)


def test_use_that_is_halved_many_times_is_nothing() -> None:
    assert [halved(halves * 10, 10) for halves in (0, 1, 2, 63, 64, 65, 1000)] == [
        1 << 64, 1 << 63, 1 << 62, 2, 1, 0, 0,
    ]  # fmt: skip


def test_change_of_use_keeps_the_later_time_and_sums_the_rates() -> None:
    use = Usage(1000, 50 * MICRO, 7)
    assert use.changed(20 * MICRO, 5, HALF_LIFE_S) == Usage(1000, 50 * MICRO, 12)
    later = use.changed(50 * MICRO + HALF_LIFE_S * MICRO, -7, HALF_LIFE_S)
    assert (later.since, later.rate) == ((50 + HALF_LIFE_S) * MICRO, 0)
    assert later.value == 500 + 7 * HALF_LIFE_S * (1 << 63) // 0xB17217F7D1CF79AB


def test_use_gives_back_all_that_is_held_and_no_more() -> None:
    assert Usage(0, 0, 5).changed(0, -5, HALF_LIFE_S) == Usage()
    with pytest.raises(ValueError, match="5 thousandths are held, and 6 cannot be given back"):
        Usage(0, 0, 5).changed(0, -6, HALF_LIFE_S)
    with pytest.raises(ValueError, match="cannot be given back"):
        Usage(0, 0, 5).returned(0, 0, 6, HALF_LIFE_S)


@given(st.integers(0, 10**9), st.integers(1, 10**6), MOMENTS, MOMENTS)
def test_use_that_ended_in_the_past_is_as_if_it_had_been_taken_back_then(
    value: int, rate: int, span: int, late: int
) -> None:
    use = Usage(value, 0, rate)
    returned = use.returned(span + late, span, rate, HALF_LIFE_S)
    then = use.changed(span, -rate, HALF_LIFE_S)
    assert (returned.since, returned.rate) == (span + late, 0)
    assert abs(returned.value - then.at(span + late, HALF_LIFE_S)) <= 3


def test_use_that_ends_in_the_future_ends_now() -> None:
    use = Usage(100, 0, 9)
    assert use.returned(MICRO, 5 * MICRO, 4, HALF_LIFE_S) == use.changed(MICRO, -4, HALF_LIFE_S)


def test_use_is_never_less_than_nothing_though_more_is_taken_back() -> None:
    assert Usage(0, 100 * MICRO, 9).returned(200 * MICRO, 0, 9, HALF_LIFE_S) == Usage(0, 200 * MICRO, 0)


COMPARED = {
    "less use for the shares": (Account("a", 2, 3), Account("b", 3, 5), -1),
    "more use for the shares": (Account("a", 3, 5), Account("b", 2, 3), 1),
    "the same": (Account("a", 2, 4), Account("b", 3, 6), 0),
    "no shares": (Account("a", 0, 0), Account("b", 1, 9), 1),
    "no shares of the other": (Account("a", 1, 9), Account("b", 0, 0), -1),
    "no shares of both": (Account("a", 0, 9), Account("b", 0, 1), 0),
    "no use": (Account("a", 1, 0), Account("b", 9, 1), -1),
    "no use of the other": (Account("a", 9, 1), Account("b", 1, 0), 1),
    "no use of both": (Account("a", 1, 0), Account("b", 9, 0), 0),
}


@pytest.mark.parametrize(("left", "right", "sign"), COMPARED.values(), ids=COMPARED)
def test_siblings_are_compared_by_use_for_their_shares(left: Account, right: Account, sign: int) -> None:
    assert compare(left, right) == sign


def test_places_of_users_beside_queues_of_the_same_standing() -> None:
    queue = Account("q", 1, 2, (Account("y", 1, 1), Account("z", 1, 1)))
    root = Account("", children=(Account("w", 1, 9), queue, Account("x", 1, 2), Account("v", 2, 4)))
    assert ranks(root) == {"x": 0, "v": 0, "y": 2, "z": 2, "w": 4}
    assert ranks(Account("")) == {}


STARTS = {
    "no other user": ([], 0),
    "no user with shares": ([(0, 50)], 0),
    "beside the first": ([(2, 11), (1, 5), (0, 0)], 15),
    "beside one who has used nothing": ([(5, 0), (1, 4)], 0),
    "rounded down": ([(2, 7), (1, 9)], 10),
}


@pytest.mark.parametrize(("others", "use"), STARTS.values(), ids=STARTS)
def test_new_user_begins_with_the_use_of_the_first_for_his_shares(
    others: list[tuple[int, int]], use: int
) -> None:
    assert start_of(3, others) == use
