"""Chaos with GPUs that idle and wake: the engine holds, and bugs put in on purpose are found."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from mesos_gpu.engine.tenancy import idle as engine
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tasks.idle import Idleness
from mesos_gpu.model.tenancy import Idle
from mesos_gpu.policy.tenancy import idle as policy
from mesos_gpu.policy.tenancy.idle import Used, Verdict
from tests.chaos import run as chaos
from tests.unit.simulate.test_simulate_chaos import assert_found, assert_holds, runs


@pytest.fixture(autouse=True)
def _idles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "MIXES", (chaos.IDLES,))


@runs(1000)
def test_chaos_of_idle_gpus_finds_no_violation(steps: int) -> None:
    assert_holds(steps, 1)


# --- bugs put in on purpose


def _unknown_is_taken_for_idle(patch: pytest.MonkeyPatch) -> None:
    real = policy.verdict

    def verdict(cards: Iterable[Used], rules: Idle) -> Verdict:
        said = real(cards, rules)
        return Verdict.IDLE if said is Verdict.UNKNOWN else said

    patch.setattr(policy, "verdict", verdict)


def _whoever_had_notice_is_ended(patch: pytest.MonkeyPatch) -> None:
    """Also who went back to work."""
    patch.setattr(engine, "_call_off", lambda *_: None)


def _whoever_has_not_resumed_for_long_enough_is_ended(patch: pytest.MonkeyPatch) -> None:
    """Also who is at work, if his notice ends before he has worked for `resume_s`."""
    real = policy.may_end

    def may_end(known: Idleness, rules: Idle, *times: float) -> bool | None:
        return real(replace(known, resumed_ms=0), rules, *times)

    patch.setattr(policy, "may_end", may_end)


def _who_is_kept_is_ended(patch: pytest.MonkeyPatch) -> None:
    real = engine._judge

    def judge(turn: Turn, job: Job, rules: Idle, verdict: Verdict, ms: int) -> None:
        known = engine.known_of(turn, job)
        if known.keep_until is not None:
            turn.state.put(replace(known, keep_until=None))
        real(turn, job, rules, verdict, ms)

    patch.setattr(engine, "_judge", judge)


def _notice_comes_without_a_warning(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine, "_warn", lambda *_: None)


BUGS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[str]]] = {
    "unknown is taken for idle": (_unknown_is_taken_for_idle, {"unknown is never idle"}),
    "whoever had notice is ended": (
        _whoever_had_notice_is_ended,
        {"no job at work is ended for idle GPUs", "a kept job gets no notice and is not ended"},
    ),
    "whoever has not resumed for long enough is ended": (
        _whoever_has_not_resumed_for_long_enough_is_ended,
        {"no job at work is ended for idle GPUs"},
    ),
    "who is kept is ended": (_who_is_kept_is_ended, {"a kept job gets no notice and is not ended"}),
    "nobody is warned": (
        _notice_comes_without_a_warning,
        {"nothing is returned without its warning and notice"},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("bug", "rules"), BUGS.values(), ids=BUGS)
def test_chaos_of_idle_gpus_finds_a_seeded_bug_and_a_short_story(
    bug: Callable[[pytest.MonkeyPatch], None], rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    assert_found(rules, monkeypatch)
