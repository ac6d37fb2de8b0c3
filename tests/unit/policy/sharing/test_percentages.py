"""Percentages of MPS by architecture: never more than was asked for, never one with which results were wrong."""

import itertools

import pytest

from mesos_gpu.policy.sharing.percentages import ALL, HOPPER, allowed, cap_of

#: Of 132 SMs, those with which parts of half-precision products were left unwritten.
WRONG_SMS = (*range(18, 29), *range(36, 61), *range(68, 117))
WRONG_PERCENTAGES = (*range(14, 23), *range(28, 47), *range(52, 90))


def test_mps_percentage_of_hopper_is_the_next_below() -> None:
    percents = {
        10: 1, 130: 13, 140: 13, 229: 13, 230: 23, 250: 25, 300: 27, 470: 47, 500: 50, 519: 51, 520: 51, 899: 51,
        900: 90, 1000: 100,
    }  # fmt: skip
    for asked, given in percents.items():
        cap = cap_of(asked, "9.0")
        assert cap is not None, asked
        assert cap.percent == given, asked
        assert bool(cap.note) == (given != asked // 10), asked


def test_mps_percentage_note_names_both_values_and_the_reason() -> None:
    cap = cap_of(300, "9.0")
    assert cap is not None
    assert (
        cap.note == "27 % instead of 30 %: half-precision results are right there on compute capability 9.0"
    )


@pytest.mark.parametrize("capability", ["9.0", None])
def test_mps_percentage_of_hopper_is_never_a_wrong_one(capability: str | None) -> None:
    for milli in range(10, 1001):
        cap = cap_of(milli, capability)
        assert cap is not None
        assert cap.percent not in WRONG_PERCENTAGES
        assert cap.percent * 132 // 100 not in WRONG_SMS
        assert cap.percent * 10 <= milli


@pytest.mark.parametrize("capability", ["7.0", "8.0", "8.9", "10.0", "12.0"])
def test_mps_percentage_of_other_cards_is_as_asked_for(capability: str) -> None:
    assert [cap.percent for milli in range(10, 1001, 10) if (cap := cap_of(milli, capability))] == list(
        range(1, 101)
    )


def test_mps_percentages_may_all_be_allowed_by_the_operator() -> None:
    assert allowed("9.0") == HOPPER
    assert allowed("9.0", any_percentage=True) == ALL
    cap = cap_of(700, "9.0", any_percentage=True)
    assert cap is not None
    assert (cap.percent, cap.note) == (70, "")


def test_mps_percentage_below_one_is_none() -> None:
    assert cap_of(9, "8.0") is None


def test_ranges_ascend_and_do_not_meet() -> None:
    for (_, before), (first, last) in itertools.pairwise(HOPPER):
        assert before + 1 < first <= last
