"""Rules for idle GPUs: what counts as idle, and that each end comes after a warning."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.tasks.idle import Idleness, IdleState
from mesos_gpu.model.tenancy import Idle, IdlePolicy
from mesos_gpu.policy.tenancy import idle
from mesos_gpu.policy.tenancy.idle import Used, Verdict

RULES = Idle(warn_after_s=100, return_after_s=200, busy_share=0.01, resume_s=30, policy=IdlePolicy.ALWAYS)
WINDOW_MS = 10_000
LEAD_S = 30.0
NOW = 1000.0

VERDICTS = {
    "nothing ran": ([Used(10_000, 10_000, 0)], Verdict.IDLE),
    "no more than the share": ([Used(10_000, 10_000, 100)], Verdict.IDLE),
    "now and then": ([Used(10_000, 10_000, 150)], Verdict.PAUSED),
    "twice the share": ([Used(10_000, 10_000, 200)], Verdict.WORKING),
    "half of it is seen": ([Used(10_000, 5_000, 0)], Verdict.IDLE),
    "less than half of it is seen": ([Used(10_000, 4_999, 0)], Verdict.UNKNOWN),
    "less than half is seen, and it is busy": ([Used(10_000, 4_999, 4_000)], Verdict.UNKNOWN),
    "nothing is seen": ([Used(10_000, 0, 0)], Verdict.UNKNOWN),
    "one member works": ([Used(10_000, 10_000, 0), Used(10_000, 10_000, 9_000)], Verdict.WORKING),
    "one works, one is unknown": ([Used(10_000, 0, 0), Used(10_000, 10_000, 9_000)], Verdict.WORKING),
    "one is idle, one is unknown": ([Used(10_000, 10_000, 0), Used(10_000, 0, 0)], Verdict.UNKNOWN),
    "one pauses, one is unknown": ([Used(10_000, 10_000, 150), Used(10_000, 0, 0)], Verdict.UNKNOWN),
    "no card": ([], Verdict.UNKNOWN),
}


def test_idle_verdict_of_a_window() -> None:
    for name, (cards, want) in VERDICTS.items():
        assert idle.verdict(cards, RULES) is want, name


def played(verdicts: list[Verdict], rules: Idle = RULES, known: Idleness | None = None) -> Idleness:
    known = known or Idleness(JobId("j1"))
    for number, each in enumerate(verdicts):
        known = idle.advance(known, rules, each, WINDOW_MS, NOW + 10 * number)
    return known


def test_idle_state_is_suspect_at_once_and_warned_in_time() -> None:
    assert played([Verdict.IDLE]).state is IdleState.SUSPECT
    assert played([Verdict.IDLE] * 9).state is IdleState.SUSPECT
    assert played([Verdict.IDLE] * 10).state is IdleState.WARNED


def test_idle_report_policy_gives_no_warning() -> None:
    known = played([Verdict.IDLE] * 50, replace(RULES, policy=IdlePolicy.REPORT))
    assert (known.state, known.idle_ms) == (IdleState.SUSPECT, 500_000)


def test_idle_warning_leaves_a_job_its_whole_time() -> None:
    known = idle.advance(Idleness(JobId("j1")), RULES, Verdict.IDLE, 10**9, NOW)
    assert (known.state, known.idle_ms) == (IdleState.WARNED, 100_000)
    assert not idle.is_due(known, RULES, LEAD_S)
    assert not idle.is_due(played([Verdict.IDLE] * 6, known=known), RULES, LEAD_S)
    assert idle.is_due(played([Verdict.IDLE] * 7, known=known), RULES, LEAD_S)


def test_notice_that_is_longer_than_the_time_left_comes_after_a_window_of_it() -> None:
    known = played([Verdict.IDLE] * 10)
    assert not idle.is_due(known, RULES, 10_000.0)
    assert idle.is_due(played([Verdict.IDLE], known=known), RULES, 10_000.0)


def test_idle_state_is_active_again_after_work_in_total() -> None:
    known = played([Verdict.IDLE] * 12)
    known = played([Verdict.WORKING, Verdict.WORKING, Verdict.PAUSED], known=known)
    assert (known.state, known.resumed_ms) == (IdleState.WARNED, 15_000)
    known = played([Verdict.WORKING, Verdict.WORKING], known=known)
    assert (known.state, known.idle_ms, known.resumed_ms) == (IdleState.ACTIVE, 0, 0)


def test_idle_state_is_warned_despite_one_kernel_now_and_then() -> None:
    """A script that keeps the GPU at full load in one window of six: the other five take from what that gains."""
    known = played(([Verdict.WORKING] + [Verdict.IDLE] * 5) * 10)
    assert known.state is IdleState.WARNED
    assert idle.is_due(known, RULES, LEAD_S)


def test_work_now_and_then_takes_twice_as_long_to_the_warning_and_to_the_end() -> None:
    assert played([Verdict.PAUSED] * 19).state is IdleState.SUSPECT
    known = played([Verdict.PAUSED] * 20)
    assert known.state is IdleState.WARNED
    assert not idle.is_due(played([Verdict.PAUSED] * 13, known=known), RULES, LEAD_S)
    assert idle.is_due(played([Verdict.PAUSED] * 14, known=known), RULES, LEAD_S)


@pytest.mark.parametrize("phase_s", [0, 29, 55, 59])
@pytest.mark.parametrize("kernel_s", [0.5, 1.0, 2.0, 4.0])
def test_idle_defaults_do_not_count_one_kernel_a_minute(kernel_s: float, phase_s: int) -> None:
    """Windows are of six or seven reports, so that kernels fall into them unevenly."""
    rules = Idle(policy=IdlePolicy.ALWAYS)
    known, begun_s, now_s = Idleness(JobId("j1")), 0, 0
    lead_s = idle.lead_s(rules, 10, 0)
    while not idle.is_due(known, rules, lead_s):
        now_s += 60 if now_s % 7 else 70
        assert now_s <= 3 * rules.return_after_s, f"{known} after {now_s} s"
        busy_s = sum(
            max(min(at + kernel_s, now_s) - max(at, begun_s), 0) for at in range(phase_s - 60, now_s, 60)
        )
        ms = 1000 * (now_s - begun_s)
        said = idle.verdict([Used(ms, ms, round(1000 * busy_s))], rules)
        known, begun_s = idle.advance(known, rules, said, ms, now_s), now_s


def test_idle_defaults_count_six_seconds_a_minute_as_work() -> None:
    rules = Idle(policy=IdlePolicy.ALWAYS)
    assert idle.verdict([Used(60_000, 60_000, 6_000)], rules) is Verdict.WORKING


def test_idle_state_is_never_warned_with_work_half_of_the_time() -> None:
    assert played([Verdict.IDLE] * 6 + [Verdict.WORKING] * 6 + [Verdict.IDLE] * 9).state is IdleState.SUSPECT


@given(st.lists(st.sampled_from(list(Verdict)), max_size=80), st.integers(1, 200_000))
def test_unknown_windows_never_move_anything(verdicts: list[Verdict], ms: int) -> None:
    known = played(verdicts)
    assert idle.advance(known, RULES, Verdict.UNKNOWN, ms, NOW + 10_000) == known
    without = played([each for each in verdicts if each is not Verdict.UNKNOWN])
    assert (known.state, known.idle_ms, known.resumed_ms) == (
        without.state,
        without.idle_ms,
        without.resumed_ms,
    )


@given(st.lists(st.tuples(st.sampled_from(list(Verdict)), st.integers(1, 100_000)), max_size=80))
def test_idle_end_is_due_only_after_a_warning_and_idle_time(windows: list[tuple[Verdict, int]]) -> None:
    known, warned_ms = Idleness(JobId("j1")), 0
    for number, (each, ms) in enumerate(windows):
        before, known = known, idle.advance(known, RULES, each, ms, NOW + number)
        if known.state is IdleState.WARNED:
            counted_ms = {Verdict.IDLE: ms, Verdict.PAUSED: ms // 2}.get(each, 0)
            warned_ms = warned_ms + counted_ms if before.state is IdleState.WARNED else 0
        if idle.is_due(known, RULES, LEAD_S):
            assert before.state is IdleState.WARNED
            assert warned_ms >= (RULES.return_after_s - RULES.warn_after_s - LEAD_S) * 1000


NOTICE = Idleness(JobId("j1"), state=IdleState.NOTICE, known_at=125.0)
ENDS = {
    "known a moment ago": (125.0, 0, 130.0, True),
    "nothing is known since the notice": (99.0, 0, 130.0, None),
    "nothing is known, and enough was waited": (99.0, 0, 160.0, False),
    "the window may have begun before the notice": (119.0, 0, 130.0, None),
    "what is known is old: the scheduler was away": (125.0, 0, 500.0, False),
    "it is at work": (125.0, 10_000, 130.0, None),
    "it is at work every other while": (185.0, 10_000, 190.0, False),
    "it was at work, and nobody knows now": (125.0, 10_000, 160.0, False),
}


@pytest.mark.parametrize(("known_at", "resumed_ms", "now", "want"), ENDS.values(), ids=ENDS)
def test_idle_notice_end_decides_by_use_in_it(
    known_at: float, resumed_ms: int, now: float, want: bool | None
) -> None:
    known = replace(NOTICE, known_at=known_at, resumed_ms=resumed_ms)
    assert idle.may_end(known, RULES, 100.0, 130.0, now, 10.0) is want


def test_idle_report_policy_ends_no_job() -> None:
    assert idle.may_end(NOTICE, replace(RULES, policy=IdlePolicy.REPORT), 100.0, 130.0, 130.0, 10.0) is False


def test_idle_window_is_a_tenth_of_the_time_until_the_warning() -> None:
    assert idle.window_s(RULES, 1.0) == 10
    assert idle.window_s(RULES, 15.0) == 15
    assert idle.window_s(Idle(), 10.0) == 60
    assert idle.lead_s(RULES, 1.0, 5.0) == 30
    assert idle.lead_s(RULES, 1.0, 500.0) == 500


EXEMPT = {
    "the key alone": (("demo",), {"demo": "x"}, IdlePolicy.REPORT),
    "key and value": (("demo=yes",), {"demo": "yes"}, IdlePolicy.REPORT),
    "another value": (("demo=yes",), {"demo": "no"}, IdlePolicy.ALWAYS),
    "an empty value": (("demo=",), {"demo": "no"}, IdlePolicy.ALWAYS),
    "another key": (("demo",), {"stage": "demo"}, IdlePolicy.ALWAYS),
}


@pytest.mark.parametrize(("exempt", "labels", "want"), EXEMPT.values(), ids=EXEMPT)
def test_idle_rules_exempt_jobs_by_label(
    exempt: tuple[str, ...], labels: dict[str, str], want: IdlePolicy
) -> None:
    rules = replace(RULES, exempt_labels=exempt)
    assert idle.rules_for(rules, labels, is_instance=False).policy is want


def test_idle_rules_only_report_instances_unless_they_say_so() -> None:
    assert idle.rules_for(RULES, {}, is_instance=True).policy is IdlePolicy.REPORT
    assert idle.rules_for(replace(RULES, apps=True), {}, is_instance=True).policy is IdlePolicy.ALWAYS
