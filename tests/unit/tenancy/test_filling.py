"""Division by weights against an exact one in small steps, by fractions."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.policy.tenancy.filling import MAX_WEIGHT, Claim, fill, scaled

CLAIMS = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.sampled_from([0, 1, 1, 2, 3, 7, 1000, MAX_WEIGHT - 1, MAX_WEIGHT]),
        st.integers(0, 2),
    ),
    max_size=7,
).map(lambda given: [Claim(f"q{i}", cap, weight, rank) for i, (cap, weight, rank) in enumerate(given)])


def exact(amount: int, claims: list[Claim]) -> dict[str, Fraction]:
    """Raise the level of all that are not full until the next one is, again and again."""
    parts = {claim.key: Fraction(0) for claim in claims}
    left, live = Fraction(amount), [claim for claim in claims if claim.weight and claim.cap]
    while left and live:
        weights = sum(claim.weight for claim in live)
        step = min(left / weights, *((claim.cap - parts[claim.key]) / claim.weight for claim in live))
        for claim in live:
            parts[claim.key] += step * claim.weight
        left -= step * weights
        live = [claim for claim in live if parts[claim.key] < claim.cap]
    return parts


@given(st.integers(0, 200), CLAIMS)
def test_filling_is_the_exact_division_but_for_rounding(amount: int, claims: list[Claim]) -> None:
    weighty = [claim for claim in claims if claim.weight]
    parts, wanted = fill(amount, claims), exact(amount, weighty)
    assert all(abs(parts[claim.key] - wanted[claim.key]) < 1 for claim in weighty)
    assert all(0 <= parts[claim.key] <= claim.cap for claim in claims)
    assert sum(parts.values()) == min(amount, sum(claim.cap for claim in claims))


@given(st.integers(0, 200), CLAIMS)
def test_filling_gives_claims_without_weight_the_rest(amount: int, claims: list[Claim]) -> None:
    parts = fill(amount, claims)
    weighty = sum(claim.cap for claim in claims if claim.weight)
    idle = sum(parts[claim.key] for claim in claims if not claim.weight)
    assert idle == max(0, min(amount - weighty, sum(claim.cap for claim in claims if not claim.weight)))


@pytest.mark.parametrize("count", [30, pytest.param(100, marks=pytest.mark.long)])
def test_filling_does_not_depend_on_the_order_of_claims(count: int) -> None:
    @settings(max_examples=count)
    @given(st.integers(0, 200), CLAIMS, st.randoms(use_true_random=False))
    def check(amount: int, claims: list[Claim], random: object) -> None:
        shuffled = sorted(claims, key=lambda _: random.random())  # type: ignore[attr-defined]
        assert fill(amount, shuffled) == fill(amount, claims)
        assert scaled(amount, shuffled) == scaled(amount, claims)

    check()


def test_filling_gives_rounding_rests_by_rest_rank_and_name() -> None:
    assert fill(10, [Claim("a", 99, 1), Claim("b", 99, 2)]) == {"a": 3, "b": 7}
    assert fill(1, [Claim("a", 9, 1, 5), Claim("b", 9, 1, 4)]) == {"a": 0, "b": 1}
    assert fill(1, [Claim("b", 9, 1), Claim("a", 9, 1)]) == {"a": 1, "b": 0}


@given(st.integers(0, 200), CLAIMS)
def test_caps_are_scaled_in_proportion_only_where_they_are_too_much(amount: int, claims: list[Claim]) -> None:
    parts, total = scaled(amount, claims), sum(claim.cap for claim in claims)
    assert sum(parts.values()) == min(amount, total)
    for claim in claims:
        assert abs(parts[claim.key] - Fraction(min(amount, total) * claim.cap, total or 1)) < 1
