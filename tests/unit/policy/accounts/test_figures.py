"""Figures of parts of records, at the borders of the record and of the time."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.usage import DAY_MS, Account, Closed, MeasuredWork, Part, Span, SpanEnd
from mesos_gpu.policy.accounts.sums import (
    Figures,
    by_day,
    figures,
    grouped,
    jain_percent,
    overlap_ms,
    percentile_ms,
    rows,
    step_of,
    wait_of,
)

DAY = 20_000
BEGIN = DAY * DAY_MS
A100, T4 = Part("A100", 2000, 6000), Part("T4", 1000, 1000)
SPAN = Span(
    TaskId("t"), JobId("j"), "ann", "ml", "batch", "/app", "big", (A100, T4), borrowed=True, charge_percent=50,
    begins_ms=BEGIN, wait_ms=40, wanted_milli=3000,
)  # fmt: skip
DID = (
    MeasuredWork(DAY, "A100", 100, 200, 30),
    MeasuredWork(DAY, "T4", 7, 8, 9),
    MeasuredWork(DAY + 1, "A100", 1, 2, 3),
)
RECORD = Closed(SPAN, BEGIN + 1000, lost_ms=300, refunded_ms=100, reason=SpanEnd.IDLE, did=DID)
WHOLE = Figures(
    spans=1,
    gpu=2000 * 1000,
    cost=6000 * 1000,
    charged=3000 * 1000,
    borrowed=6000 * 1000,
    idle=200 * 3,
    lost=6000 * 300,
    refunded=3000 * 100,
    unmet=3000 * 40,
    busy=100,
    unused=200,
    wanted=30,
    returned=1,
    waits={step_of(40): 1},
)


def seen(since_ms: int = 0, until_ms: int = DAY_MS, *, record: Closed = RECORD, part: Part = A100) -> Figures:
    return figures(record, part, BEGIN + since_ms, BEGIN + until_ms)


def test_figures_of_a_whole_record_are_those_of_its_first_part() -> None:
    assert seen() == WHOLE


def test_figures_of_another_part_have_what_is_its_own_and_not_the_wait() -> None:
    assert seen(part=T4) == Figures(
        spans=1, gpu=1_000_000, cost=1_000_000, charged=500_000, borrowed=1_000_000, idle=8, lost=300_000,
        refunded=50_000, busy=7, unused=8, wanted=9,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("since_ms", "until_ms", "held_ms", "lost_ms", "refunded_ms", "begins", "ends"),
    [
        (0, 1000, 1000, 300, 100, True, True),
        (0, 999, 999, 299, 99, True, False),
        (0, 700, 700, 0, 0, True, False),
        (0, 1, 1, 0, 0, True, False),
        (1, 1000, 999, 300, 100, False, True),
        (800, 950, 150, 150, 50, False, False),
        (999, 1000, 1, 1, 1, False, True),
        (1000, 2000, 0, 0, 0, False, False),
        (-10, 0, 0, 0, 0, False, False),
    ],
)
def test_figures_of_a_time_are_those_within_it(
    since_ms: int, until_ms: int, held_ms: int, lost_ms: int, refunded_ms: int, begins: bool, ends: bool
) -> None:
    did = {"idle": 600, "busy": 100, "unused": 200, "wanted": 30} if since_ms <= 0 < until_ms else {}
    assert seen(since_ms, until_ms) == Figures(
        spans=int(begins),
        gpu=2000 * held_ms,
        cost=6000 * held_ms,
        charged=3000 * held_ms,
        borrowed=6000 * held_ms,
        lost=6000 * lost_ms,
        refunded=3000 * refunded_ms,
        unmet=120_000 if begins else 0,
        returned=int(ends),
        waits={step_of(40): 1} if begins else {},
        **did,
    )


def test_figures_of_both_days_have_what_was_done_on_each() -> None:
    both = seen(0, DAY_MS + 1)
    assert (both.busy, both.unused, both.wanted, both.idle) == (101, 202, 33, 606)
    later = seen(1, DAY_MS + 1)
    assert (later.busy, later.unused, later.wanted, later.idle) == (1, 2, 3, 6)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"borrowed": False}, {"borrowed": 0}),
        ({"wanted_milli": 0}, {"unmet": 0, "waits": {}}),
        ({"wanted_milli": 1}, {"unmet": 40}),
        ({"wait_ms": 0}, {"unmet": 0, "waits": {0: 1}}),
        ({"charge_percent": 100}, {"charged": 6_000_000, "refunded": 600_000}),
    ],
)
def test_figures_follow_the_terms_of_the_span(change: dict[str, Any], differs: dict[str, Any]) -> None:
    assert seen(record=replace(RECORD, span=replace(SPAN, **change))) == replace(WHOLE, **differs)


@pytest.mark.parametrize("reason", [each for each in SpanEnd if each is not SpanEnd.IDLE])
def test_figures_of_a_record_that_ended_otherwise_return_nothing(reason: SpanEnd) -> None:
    assert seen(record=replace(RECORD, reason=reason)) == replace(WHOLE, returned=0)


def test_figures_of_a_record_that_held_nothing_have_its_wait_only() -> None:
    nothing = Part("A100", 0, 0)
    record = replace(RECORD, span=replace(SPAN, parts=(nothing,)), did=())
    assert seen(record=record, part=nothing) == Figures(unmet=120_000, returned=1)
    one = replace(nothing, gpu_milli=1)
    record = replace(record, span=replace(SPAN, parts=(one,)))
    assert seen(record=record, part=one).spans == 1


def test_record_without_any_length_is_returned_when_it_begins() -> None:
    record = replace(RECORD, ends_ms=BEGIN, lost_ms=0, refunded_ms=0)
    assert [seen(at, at + 1, record=record).returned for at in (-1, 0, 1)] == [0, 1, 0]


@pytest.mark.parametrize(
    ("since_ms", "until_ms", "count"),
    [(0, 1, 2), (-5, 0, 0), (-5, 1, 2), (1000, 1001, 2), (1001, 1002, 0), (500, 600, 2)],
)
def test_rows_are_of_each_part_of_a_record_that_touches_the_time(
    since_ms: int, until_ms: int, count: int
) -> None:
    since_ms, until_ms = BEGIN + since_ms, BEGIN + until_ms
    wanted = [(SPAN.account(part), figures(RECORD, part, since_ms, until_ms)) for part in (A100, T4)]
    assert list(rows([RECORD], since_ms, until_ms)) == wanted[:count]


@pytest.mark.parametrize(
    ("begins_ms", "lasts_ms", "days"),
    [
        (0, 1000, [0]),
        (0, 0, [0]),
        (DAY_MS - 1, 1, [0]),
        (DAY_MS - 1, 2, [0, 1]),
        (0, DAY_MS, [0]),
        (5, DAY_MS, [0, 1]),
        (5, 2 * DAY_MS, [0, 1, 2]),
    ],
)
def test_days_of_a_record_are_those_that_it_touches(begins_ms: int, lasts_ms: int, days: list[int]) -> None:
    begins_ms += BEGIN
    record = replace(RECORD, span=replace(SPAN, begins_ms=begins_ms), ends_ms=begins_ms + lasts_ms)
    assert list(by_day(record, A100)) == [
        (DAY + day, figures(record, A100, (DAY + day) * DAY_MS, (DAY + day + 1) * DAY_MS)) for day in days
    ]


@pytest.mark.parametrize(
    ("begins", "ends", "since", "until", "wanted"),
    [
        (0, 10, 2, 5, 3),
        (2, 5, 0, 10, 3),
        (0, 5, 2, 10, 3),
        (2, 10, 0, 5, 3),
        (0, 5, 5, 9, 0),
        (6, 9, 0, 5, 0),
    ],
)
def test_overlap_of_two_times(begins: int, ends: int, since: int, until: int, wanted: int) -> None:
    assert overlap_ms(begins, ends, since, until) == wanted


def test_sums_by_group_add_each_figure_in_the_order_of_names() -> None:
    accounts = [
        Account(owner, "ml", "", "", model, "big") for owner, model in (("b", "T4"), ("a", "T4"), ("b", "A"))
    ]
    doubled = Figures(**{name: 2 * getattr(WHOLE, name) for name in Figures.__slots__ if name != "waits"})
    doubled.waits = {step_of(40): 2}
    use = [(account, replace(WHOLE, waits=dict(WHOLE.waits))) for account in accounts]
    assert list(grouped(use, ["owner"]).items()) == [(("a",), WHOLE), (("b",), doubled)]
    assert list(grouped(use, ["model", "owner"])) == [("A", "b"), ("T4", "a"), ("T4", "b")]
    assert use[0][1] == WHOLE, "sums are no part of what they are of"
    assert grouped([], ["owner"]) == {}


def test_steps_of_waits_grow_without_a_gap() -> None:
    for step in range(200):
        assert step_of(wait_of(step)) == step
        assert step_of(wait_of(step + 1) - 1) == step


@pytest.mark.parametrize(
    ("wait_ms", "step"),
    [(0, 0), (15, 15), (16, 16), (17, 16), (18, 17), (31, 23), (32, 24), (36, 25), (63, 31)],
)
def test_step_of_a_wait_has_a_number(wait_ms: int, step: int) -> None:
    assert step_of(wait_ms) == step


def test_percentile_counts_waits_from_the_shortest() -> None:
    assert percentile_ms({9: 1, 3: 2, 5: 1}, 75) == 5
    assert percentile_ms({3: 200, 9: 1}, 99) == 3
    assert percentile_ms({17: 1}, 50) == 19


@pytest.mark.parametrize(
    ("served", "owed", "percent"),
    [([2, 3], [3, 2], 87), ([1, 2], [3, 3], 90), ([1, 1, 2], [1, 1, 1], 88)],
)
def test_evenness_is_rounded_down(served: list[int], owed: list[int], percent: int) -> None:
    assert jain_percent(served, owed) == percent


def test_evenness_takes_less_than_a_millionth_as_nothing() -> None:
    assert jain_percent([1, 1], [1_000_001, 2_000_000]) is None
