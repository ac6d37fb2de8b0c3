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
    budgets_of,
    charge_of,
    may_not_start,
    must_borrow,
    opened,
    paid_by,
    terms_of,
    total_of,
    user_of,
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


DAY = 86_400 * MS
ONCE = replace(BUDGET, period=Period.ONCE, begins="1970-04-11", ends="1970-04-21")  # days 100 to 109


def use_of(day: int, ends: float | None = None, **fields: Any) -> BudgetUse:
    """The period of a day since the epoch, which was a Thursday: the first Monday's has number 0."""
    ends_ms = (day + 1) * DAY if ends is None else int(ends * DAY)
    given = {"index": day - 4, "begins_ms": day * DAY, "terms": "day UTC", **fields}
    return BudgetUse("ml", EVERYBODY, ends_ms=ends_ms, **given)


@pytest.mark.parametrize(
    ("last", "now", "wanted"),
    [
        (None, 100.0, use_of(100)),
        (None, 100.5, use_of(100, begins_ms=NOW + DAY // 2)),
        (use_of(99), 99.9, None),
        (use_of(99), 100.0, use_of(100)),
        (use_of(99), 100.9, use_of(100)),
        (use_of(98), 100.0, use_of(99)),
        (use_of(86), 100.0, use_of(87)),
        (use_of(80), 100.5, use_of(86)),
        (use_of(101), 100.0, None),
        (use_of(99, 100.5), 100.5, use_of(100, begins_ms=NOW + DAY // 2)),
        (use_of(99, index=200), 100.0, use_of(100, index=201)),
        (use_of(99, index=3), 100.0, use_of(100)),
        (use_of(100, terms="week UTC", index=300), 100.5, use_of(100, index=301, begins_ms=NOW + DAY // 2)),
        (use_of(100, terms="week UTC", index=96), 100.0, use_of(100, index=97)),
        (use_of(100, terms="week UTC", index=3), 100.0, use_of(100)),
    ],
)
def test_period_that_is_opened(last: BudgetUse | None, now: float, wanted: BudgetUse | None) -> None:
    assert opened(("ml", EVERYBODY), BUDGET, last, 0, int(now * DAY)) == wanted


@pytest.mark.parametrize("now", [99.0, 100.0, 109.5, 120.0])
def test_period_that_is_there_once_is_opened_once(now: float) -> None:
    first = opened(("ml", EVERYBODY), ONCE, None, 0, int(now * DAY))
    terms = "once UTC 1970-04-11 1970-04-21"
    begins_ms = max(100 * DAY, int(now * DAY))
    assert first == BudgetUse("ml", EVERYBODY, 0, begins_ms, 110 * DAY, terms)
    assert opened(("ml", EVERYBODY), ONCE, first, 0, 200 * DAY) is None


def test_threshold_between_two_amounts_is_reached_at_the_larger_one() -> None:
    now = standing(499, rate=1, total=999)
    assert (now.reached(), now.next_ms()) == (0, NOW + 1)
    assert standing(500, total=999).reached() == 50


def test_thresholds_have_the_whole_among_them() -> None:
    assert standing(999, rate=1, warn_at=()).next_ms() == NOW + 1
    assert standing(1000, warn_at=()).reached() == 100
    assert standing(999, warn_at=()).reached() == 0
    assert standing(0, total=0).reached() == 100


@pytest.mark.parametrize(
    ("begins_ms", "ends_ms", "rate", "next_ms"),
    [
        (NOW + 5, NOW + 9, 1, NOW + 5),
        (NOW - 5, NOW + 9, 1, NOW + 9),
        (NOW - 5, NOW + 500, 1, NOW + 500),
        (NOW - 5, NOW + 501, 1, NOW + 500),
        (NOW - 5, NOW + 1, 0, NOW + 1),
        (NOW - 9, NOW, 0, NEVER_MS),
        (NOW - 9, NOW, 1, NOW + 500),
        (NOW, NOW + 9, 0, NOW + 9),
    ],
)
def test_budget_that_is_there_once_is_looked_at_when_it_begins(
    begins_ms: int, ends_ms: int, rate: int, next_ms: int
) -> None:
    use = replace(USE, begins_ms=begins_ms, ends_ms=ends_ms)
    assert replace(standing(0, rate=rate, period=Period.ONCE), use=use).next_ms() == next_ms


def test_period_that_has_not_begun_by_a_clock_set_back_is_looked_at_when_it_ends() -> None:
    assert replace(standing(0), use=replace(USE, begins_ms=NOW + 5)).next_ms() == END


def test_meter_is_never_below_nothing() -> None:
    meter = Meter()
    meter.add(5, 200, 1)
    assert [meter.at(at) for at in (100, 200, 201)] == [0, 0, 5]


def test_percent_and_terms_are_of_the_budget_as_it_is_written() -> None:
    assert standing(1, total=1).percent == 100
    assert standing(0, total=1).percent == 0
    assert (terms_of(BUDGET), terms_of(ONCE)) == ("day UTC", "once UTC 1970-04-11 1970-04-21")


def test_owner_whose_name_is_not_proved_pays_like_others() -> None:
    span = Span(TaskId("t"), JobId("j"), "ann", "ml", "", "", "", (), False, 100, NOW)
    assert [user_of(replace(span, owner=owner)) for owner in ("ann", "ann?", "")] == ["ann", "ann", ""]


def test_budgets_of_a_tree_are_those_of_queues_and_of_users_that_are_named() -> None:
    first, second, third = (replace(BUDGET, milli_s=n) for n in (1, 2, 3))
    queues = {
        "ml": QueueSpec(budget=first, user_budgets={"ann": second, EVERYBODY: third}),
        "dev": QueueSpec(user_budgets={"bob": third, EVERYBODY: second}),
        "free": QueueSpec(),
    }
    assert budgets_of(Tree(QueueDocument(queues=queues))) == {
        ("ml", EVERYBODY): first,
        ("ml", "ann"): second,
        ("dev", "bob"): third,
    }


def test_user_named_as_everybody_has_no_budget_of_a_user() -> None:
    tree = Tree(QueueDocument(queues={"ml": QueueSpec(budget=BUDGET, user_budgets={EVERYBODY: BUDGET})}))
    assert list(paid_by(tree, "ml", EVERYBODY)) == [(("ml", EVERYBODY), BUDGET)]
