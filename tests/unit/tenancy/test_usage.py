"""Decay in closed form against decimals, and against small steps."""

from decimal import Decimal, localcontext

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.policy.tenancy.usage import MICRO, Usage, halved

DAY_S = 86_400
HALF_LIFE_S = 7 * DAY_S
SPANS = st.integers(0, 400 * DAY_S * MICRO)


@given(SPANS, st.integers(1, 100 * DAY_S * MICRO))
def test_usage_is_halved_after_each_half_life(span: int, half_life: int) -> None:
    with localcontext() as context:
        context.prec = 60
        wanted = Decimal(2) ** (-Decimal(span) / Decimal(half_life))
        assert abs(Decimal(halved(span, half_life)) / 2**64 - wanted) < Decimal(2) ** -46


@given(st.integers(0, 10**15), st.integers(0, 10**9), SPANS)
def test_usage_equals_its_integral(value: int, rate: int, span: int) -> None:
    with localcontext() as context:
        context.prec = 60
        left = Decimal(2) ** (-Decimal(span) / (HALF_LIFE_S * MICRO))
        wanted = value * left + rate * HALF_LIFE_S / Decimal(2).ln() * (1 - left)
        got = Usage(value, 0, rate).at(span, HALF_LIFE_S)
        # The exponent has 48 bits after the point.
        assert abs(got - wanted) <= 2 + Decimal(value + rate * HALF_LIFE_S) / 2**46


@given(st.lists(st.tuples(st.integers(0, 30 * DAY_S * MICRO), st.integers(0, 64_000)), max_size=20))
def test_usage_is_unchanged_by_looks_in_between(changes: list[tuple[int, int]]) -> None:
    usage, now = Usage(), 0
    for span, rate in changes:
        usage.at(now + span // 3, HALF_LIFE_S)
        now += span
        usage = usage.changed(now, rate - usage.rate, HALF_LIFE_S)
    again, now = Usage(), 0
    for span, rate in changes:
        now += span
        again = again.changed(now, rate - again.rate, HALF_LIFE_S)
    assert usage == again


def test_usage_of_a_constant_rate_is_bounded() -> None:
    usage = Usage().changed(0, 1000, HALF_LIFE_S)
    years = [usage.at(year * 365 * DAY_S * MICRO, HALF_LIFE_S) for year in (1, 2, 10)]
    assert years == sorted(years)
    assert years[-1] - years[0] <= 1
    assert years[-1] == 1000 * HALF_LIFE_S * 2**64 // 0xB17217F7D1CF79AB


def test_usage_is_unchanged_by_a_clock_set_back() -> None:
    usage = Usage().changed(10 * MICRO, 1000, HALF_LIFE_S)
    assert usage.at(5 * MICRO, HALF_LIFE_S) == 0
    assert usage.changed(5 * MICRO, 1000, HALF_LIFE_S).since == 10 * MICRO
