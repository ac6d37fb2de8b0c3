"""The memory of an idle job after each step, as a whole, and at the borders of the rules."""

from dataclasses import replace

import pytest

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.tasks.idle import Idleness, IdleState
from mesos_gpu.model.tenancy import Idle, IdlePolicy
from mesos_gpu.policy.tenancy import idle
from mesos_gpu.policy.tenancy.idle import Used, Verdict

RULES = Idle(warn_after_s=100, return_after_s=200, busy_share=0.01, resume_s=30, policy=IdlePolicy.ALWAYS)
REPORTED = replace(RULES, policy=IdlePolicy.REPORT)
ACTIVE = Idleness(JobId("j1"), 3, IdleState.ACTIVE, 50.0, 0, 0, 60.0, 900.0, "ann")
SUSPECT = replace(ACTIVE, state=IdleState.SUSPECT, idle_ms=90_000)
WARNED = replace(ACTIVE, state=IdleState.WARNED, idle_ms=100_000)
NOTICE = replace(ACTIVE, state=IdleState.NOTICE, idle_ms=180_000)
STEPS = {
    "unknown moves nothing": (WARNED, RULES, Verdict.UNKNOWN, 9000, WARNED),
    "work of an active job": (
        replace(ACTIVE, resumed_ms=5), RULES, Verdict.WORKING, 9000, replace(ACTIVE, since=1000.0, known_at=1000.0),
    ),
    "too little work": (
        replace(SUSPECT, resumed_ms=20_999), RULES, Verdict.WORKING, 9000,
        replace(SUSPECT, resumed_ms=29_999, known_at=1000.0),
    ),
    "enough work": (
        replace(NOTICE, resumed_ms=21_000), RULES, Verdict.WORKING, 9000,
        replace(ACTIVE, since=1000.0, known_at=1000.0),
    ),
    "the first idle window": (
        ACTIVE, RULES, Verdict.IDLE, 9000,
        replace(SUSPECT, since=991.0, idle_ms=9000, known_at=1000.0),
    ),
    "the first window with pauses": (
        ACTIVE, RULES, Verdict.PAUSED, 9001,
        replace(SUSPECT, since=1000.0 - 9.001, idle_ms=4500, known_at=1000.0),
    ),
    "a window that warns at once": (
        ACTIVE, RULES, Verdict.IDLE, 250_000, replace(WARNED, since=1000.0, known_at=1000.0),
    ),
    "just not enough for a warning": (
        SUSPECT, RULES, Verdict.IDLE, 9999, replace(SUSPECT, idle_ms=99_999, known_at=1000.0),
    ),
    "enough for a warning": (
        SUSPECT, RULES, Verdict.IDLE, 10_000, replace(WARNED, since=1000.0, known_at=1000.0),
    ),
    "enough for a warning that is only reported": (
        SUSPECT, REPORTED, Verdict.IDLE, 20_000, replace(SUSPECT, idle_ms=110_000, known_at=1000.0),
    ),
    "idle time of a warned job": (
        replace(WARNED, resumed_ms=9500), RULES, Verdict.IDLE, 9000,
        replace(WARNED, idle_ms=109_000, resumed_ms=500, known_at=1000.0),
    ),
    "idle time uses work up": (
        replace(NOTICE, resumed_ms=4000), RULES, Verdict.PAUSED, 9000,
        replace(NOTICE, idle_ms=184_500, known_at=1000.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("known", "rules", "said", "ms", "after"), STEPS.values(), ids=STEPS)
def test_idle_window_changes_what_is_remembered(
    known: Idleness, rules: Idle, said: Verdict, ms: int, after: Idleness
) -> None:
    assert idle.advance(known, rules, said, ms, 1000.0) == after


def test_idle_steps_keep_all_but_the_state_and_its_begin() -> None:
    known = replace(WARNED, resumed_ms=7)
    assert idle.noticed(known, 1000.0) == replace(known, state=IdleState.NOTICE, since=1000.0)
    assert idle.warned(known, 1000.0) == replace(known, state=IdleState.WARNED, since=1000.0)
    assert idle.returned(known, 1000.0) == replace(known, state=IdleState.RETURNED, since=1000.0)
    assert idle.forgotten(known, 1000.0) == replace(ACTIVE, since=1000.0)


DUE = {
    "warned just now": (WARNED, RULES, 150.0, False),
    "a moment after the warning, with a long notice": (replace(WARNED, idle_ms=100_001), RULES, 150.0, True),
    "not long enough": (replace(WARNED, idle_ms=169_999), RULES, 30.0, False),
    "long enough": (replace(WARNED, idle_ms=170_000), RULES, 30.0, True),
    "at work since": (replace(WARNED, idle_ms=170_000, resumed_ms=1), RULES, 30.0, False),
    "not warned": (replace(SUSPECT, idle_ms=170_000), RULES, 30.0, False),
    "noticed already": (NOTICE, RULES, 30.0, False),
    "only reported": (replace(WARNED, idle_ms=170_000), REPORTED, 30.0, False),
    "under pressure": (
        replace(WARNED, idle_ms=170_000), replace(RULES, policy=IdlePolicy.PRESSURE), 30.0, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("known", "rules", "lead", "due"), DUE.values(), ids=DUE)
def test_idle_job_is_due_when_its_notice_fits_into_what_is_left(
    known: Idleness, rules: Idle, lead: float, due: bool
) -> None:
    assert idle.is_due(known, rules, lead) is due


@pytest.mark.parametrize(
    ("card", "said"),
    [
        (Used(1000, 1000, 10), Verdict.IDLE), (Used(1000, 1000, 11), Verdict.PAUSED),
        (Used(1000, 1000, 19), Verdict.PAUSED), (Used(1000, 1000, 20), Verdict.WORKING),
        (Used(1000, 500, 5), Verdict.IDLE), (Used(1000, 500, 6), Verdict.PAUSED),
        (Used(1000, 500, 10), Verdict.WORKING), (Used(1000, 499, 10), Verdict.UNKNOWN),
        (Used(0, 0, 0), Verdict.UNKNOWN), (Used(0, 1, 0), Verdict.IDLE), (Used(-5, 0, 0), Verdict.UNKNOWN),
        (Used(-5, -1, 0), Verdict.UNKNOWN),
    ],
)  # fmt: skip
def test_idle_verdict_of_one_card_at_the_borders(card: Used, said: Verdict) -> None:
    assert idle.verdict([card], RULES) is said


def test_idle_verdict_of_cards_is_that_of_the_busiest_unless_one_is_unknown() -> None:
    none, paused, works, unknown = (
        Used(1000, 1000, 0), Used(1000, 1000, 15), Used(1000, 1000, 500), Used(1000, 0, 0),
    )  # fmt: skip
    assert idle.verdict([paused, none], RULES) is Verdict.PAUSED
    assert idle.verdict([none, unknown, none], RULES) is Verdict.UNKNOWN
    assert idle.verdict([unknown, paused, works], RULES) is Verdict.WORKING
    assert idle.verdict(iter([none, none]), RULES) is Verdict.IDLE


def test_idle_knowledge_is_fresh_for_two_windows() -> None:
    assert [idle.is_fresh(ACTIVE, now, 10.0) for now in (60.0, 80.0, 80.5)] == [True, True, False]


MAY_END = {
    "the latest window that may have begun before the notice": (120.0, 0, 140.0, True),
    "a window that may have begun before the notice": (119.9, 0, 139.0, None),
    "known long ago": (120.0, 0, 140.1, None),
    "unknown, before the last moment": (0.0, 0, 159.9, None),
    "unknown, at the last moment": (0.0, 0, 160.0, False),
    "at work, before the last moment": (189.0, 1, 189.9, None),
    "at work, at the last moment": (189.0, 1, 190.0, False),
}


@pytest.mark.parametrize(("known_at", "resumed_ms", "now", "may"), MAY_END.values(), ids=MAY_END)
def test_idle_job_may_end_at_the_borders_of_what_is_known(
    known_at: float, resumed_ms: int, now: float, may: bool | None
) -> None:
    known = replace(NOTICE, known_at=known_at, resumed_ms=resumed_ms)
    assert idle.may_end(known, RULES, 100.0, 130.0, now, 10.0) is may


def test_idle_warning_that_is_too_short_for_three_reports_is_refused_in_words() -> None:
    assert idle.too_short(replace(RULES, warn_after_s=30), 10.0) == ""
    assert idle.too_short(replace(RULES, warn_after_s=29.5), 10.0) == (
        "29.5 is too short: monitors report every 10 s, and 3 reports are needed to tell idle from busy; make it 30 or "
        "more, or have them report more often (mesos-gpu scheduler --report-interval)"
    )


def test_idle_window_and_lead_are_as_long_as_reports_and_notices_need() -> None:
    long = replace(RULES, warn_after_s=10_000)
    assert [idle.window_s(long, each) for each in (1.0, 59.0, 61.0)] == [60.0, 60.0, 61.0]
    assert [idle.lead_s(RULES, 1.0, asked_s) for asked_s in (0.0, 29.0, 31.0)] == [30.0, 30.0, 31.0]


@pytest.mark.parametrize(
    ("labels", "exempt"),
    [
        ({}, False), ({"demo": ""}, True), ({"stage": "test"}, True), ({"stage": "prod"}, False),
        ({"stage": ""}, False), ({"other": "test"}, False), ({"stage": "prod", "demo": "x"}, True),
    ],
)  # fmt: skip
def test_idle_rules_are_exempt_for_any_of_the_labels(labels: dict[str, str], exempt: bool) -> None:
    rules = replace(RULES, exempt_labels=("demo", "stage=test"))
    wanted = replace(rules, policy=IdlePolicy.REPORT) if exempt else rules
    assert idle.rules_for(rules, labels, is_instance=False) == wanted
    assert idle.rules_for(rules, labels, is_instance=True).policy is IdlePolicy.REPORT
    apps = replace(rules, apps=True)
    assert (idle.rules_for(apps, labels, is_instance=True) == apps) is not exempt
