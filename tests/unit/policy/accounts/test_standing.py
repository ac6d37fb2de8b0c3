"""How a budget stands: what is left, which threshold is reached, when it is looked at again, and when it is empty."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.tenancy import EVERYBODY, Budget, OnEmpty, Period, QueueDocument, QueueSpec
from mesos_gpu.model.usage import MS, NEVER_MS, BudgetUse, Closed, Part, Span, SpanEnd
from mesos_gpu.policy.accounts.budget import (
    Meter,
    Standing,
    charge_of,
    may_not_start,
    must_borrow,
    opened,
    paid_by,
    total_of,
)
from mesos_gpu.policy.tenancy.tree import Tree

NOW = 100 * 86_400 * MS
END = NOW + 3600 * MS
BUDGET = Budget(1000, period=Period.DAY, warn_at=(50, 80))
USE = BudgetUse("ml", EVERYBODY, 100, NOW - 3600 * MS, END, "day UTC")


def standing(used: int, *, rate: int = 0, total: int = 1000, **budget: Any) -> Standing:
    return Standing(replace(BUDGET, **budget), USE, used, rate, total, NOW)


@pytest.mark.parametrize(
    ("used", "empty", "percent", "reached"),
    [
        (0, False, 0, 0),
        (499, False, 49, 0),
        (500, False, 50, 50),
        (799, False, 79, 50),
        (800, False, 80, 80),
        (999, False, 99, 80),
        (1000, True, 100, 100),
        (1001, True, 100, 100),
        (2500, True, 250, 100),
    ],
)
def test_standing_of_what_is_used_of_a_budget(used: int, empty: bool, percent: int, reached: int) -> None:
    now = standing(used)
    assert (now.empty, now.percent, now.reached(), now.left) == (empty, percent, reached, 1000 - used)


def test_standing_of_a_budget_of_nothing_is_empty() -> None:
    assert (standing(0, total=0).empty, standing(0, total=0).percent) == (True, 100)


@pytest.mark.parametrize(
    ("begins_ms", "ends_ms", "once", "outside"),
    [
        (NOW, NOW + 1, True, False),
        (NOW + 1, NOW + 9, True, True),
        (NOW - 9, NOW, True, True),
        (NOW + 1, NOW + 9, False, False),
    ],
)
def test_standing_outside_of_its_days_is_empty(
    begins_ms: int, ends_ms: int, once: bool, outside: bool
) -> None:
    use = replace(USE, begins_ms=begins_ms, ends_ms=ends_ms)
    period = Period.ONCE if once else Period.DAY
    now = replace(standing(0), use=use, budget=replace(BUDGET, period=period))
    assert (now.outside, now.empty) == (outside, outside)


@pytest.mark.parametrize(
    ("used", "rate", "next_ms"),
    [
        (0, 0, END),
        (0, 1, NOW + 500),
        (0, 3, NOW + 167),  # not before the threshold is reached
        (500, 1, NOW + 300),
        (900, 1, NOW + 100),
        (1000, 1, END),
    ],
)
def test_standing_is_looked_at_again_at_the_next_threshold(used: int, rate: int, next_ms: int) -> None:
    assert standing(used, rate=rate).next_ms() == next_ms


def test_standing_is_looked_at_again_when_its_period_begins_or_ends() -> None:
    long = standing(0, rate=1, total=10**12)
    assert long.next_ms() == END
    over = replace(long, use=replace(USE, ends_ms=NOW), rate=0)
    assert over.next_ms() == NEVER_MS
    ahead = replace(long, use=replace(USE, begins_ms=NOW + 5), budget=replace(BUDGET, period=Period.ONCE))
    assert ahead.next_ms() == NOW + 5


@pytest.mark.parametrize(
    ("used", "rate", "at_ms"),
    [(0, 0, None), (0, 1, NOW + 1000), (1, 2, NOW + 500), (1000, 1, None), (1000 - 3600 * MS, 1, None)],
)
def test_standing_says_when_it_is_empty_in_its_period(used: int, rate: int, at_ms: int | None) -> None:
    assert standing(used, rate=rate).empty_at_ms() == at_ms


@pytest.mark.parametrize("on_empty", OnEmpty)
@pytest.mark.parametrize("used", [999, 1000])
def test_empty_budget_acts_as_it_says(used: int, on_empty: OnEmpty) -> None:
    now = standing(used, on_empty=on_empty)
    assert must_borrow(now) == (used == 1000 and on_empty is OnEmpty.BORROW)
    assert may_not_start(now) == (used == 1000 and on_empty in (OnEmpty.NO_START, OnEmpty.STOP))


def test_meter_adds_up_open_spans_and_takes_them_out() -> None:
    meter = Meter()
    meter.add(10, 100, 1)
    meter.add(5, 200, 1)
    assert (meter.rate, meter.at(300)) == (15, 10 * 200 + 5 * 100)
    meter.add(10, 100, -1)
    assert (meter.rate, meter.at(300), meter.at(100)) == (5, 500, 0)


def test_total_has_what_was_carried_and_granted() -> None:
    assert total_of(BUDGET, replace(USE, carried=7, granted=5)) == 1000 * MS + 12


@pytest.mark.parametrize(
    ("begins_ms", "ends_ms", "refunded_ms", "paid_ms"),
    [(-10, 10, 0, 10), (5, 10, 0, 5), (5, 10, 3, 2), (5, 10, 5, 0), (-10, -5, 0, 0)],
)
def test_charge_is_of_the_part_in_the_period_without_refunds(
    begins_ms: int, ends_ms: int, refunded_ms: int, paid_ms: int
) -> None:
    span = Span(
        TaskId("t"),
        JobId("j"),
        "",
        "ml",
        "",
        "",
        "",
        (Part("A100", 2000, 6000),),
        False,
        50,
        USE.begins_ms + begins_ms,
    )
    record = Closed(span, USE.begins_ms + ends_ms, 0, refunded_ms, SpanEnd.FINISHED)
    assert charge_of(record, USE) == 3000 * paid_ms


@pytest.mark.parametrize(
    ("percent", "left", "carried"), [(0, 500, 0), (50, 500, 250), (100, 501, 501), (100, -5, 0)]
)
def test_period_that_follows_carries_a_part_of_what_was_left(percent: int, left: int, carried: int) -> None:
    budget = replace(BUDGET, carry_over_percent=percent)
    first = opened(("ml", EVERYBODY), budget, None, 0, NOW)
    assert first is not None
    assert (first.begins_ms, first.carried) == (NOW, 0)
    assert opened(("ml", EVERYBODY), budget, first, left, first.ends_ms - 1) is None
    following = opened(("ml", EVERYBODY), budget, first, left, first.ends_ms)
    assert following is not None
    assert (following.begins_ms, following.carried, following.index) == (
        first.ends_ms,
        carried,
        first.index + 1,
    )


def test_jobs_are_charged_to_each_budget_above_and_to_their_users() -> None:
    own = replace(BUDGET, milli_s=5)
    queues = {
        "ml": QueueSpec(budget=BUDGET, user_budgets={"ann": own}),
        "ml/a": QueueSpec(user_budgets={EVERYBODY: own}),
    }
    tree = Tree(QueueDocument(queues=queues))
    assert [key for key, _ in paid_by(tree, "ml/a", "ann")] == [
        ("ml/a", "ann"),
        ("ml", EVERYBODY),
        ("ml", "ann"),
    ]
    assert [key for key, _ in paid_by(tree, "ml/a", "bob")] == [("ml/a", "bob"), ("ml", EVERYBODY)]
    assert [key for key, _ in paid_by(tree, "ml/a", "")] == [("ml", EVERYBODY)]
    assert [key for key, _ in paid_by(tree, "gone", "ann")] == []
