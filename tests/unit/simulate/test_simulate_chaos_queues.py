"""Bugs put into trees of queues on purpose: chaos finds each, and tells it shortly."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from mesos_gpu.engine.preemption import preempting
from mesos_gpu.engine.preemption.balance import Balance
from mesos_gpu.engine.preemption.planner import Plan, Planner
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.queue.barriers import AdmissionLimits
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy import budgets, notices
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tenancy import Budget
from mesos_gpu.model.usage import MS, BudgetUse
from mesos_gpu.policy.accounts.budget import Key, period_of, terms_of
from mesos_gpu.policy.admission.limits import Wait
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.tenancy.tree import Tree
from mesos_gpu.policy.tenancy.usage import MICRO, Usage
from tests.chaos import run as chaos
from tests.unit.simulate.test_simulate_chaos import assert_found, assert_holds, runs

REAL_WAIT_OF = AdmissionLimits.wait_of
REAL_BLOCK = Backlog.block
REAL_STOPPABLE = preempting.stoppable


def _gpus_are_counted(patch: pytest.MonkeyPatch) -> None:
    """So many GPUs are enough, on whatever nodes they are."""

    def stopping(planner: Planner, job: Job, request: Request) -> Plan | None:
        state, chosen, gpus = planner._turn.state, [], 0
        victims = planner._rule.victims_of(job).values()
        for victim in sorted(victims, key=lambda victim: (victim.cost, victim.job_id)):
            if gpus < request.gpu.count * job.spec.tasks:
                chosen.append(victim)
                gpus += sum(len(task.gpus) for task in state.work.round_of(state.work.jobs[victim.job_id]))
        nodes = {
            task.agent_id for each in chosen for task in state.work.round_of(state.work.jobs[each.job_id])
        }
        is_enough = chosen and gpus >= request.gpu.count * job.spec.tasks
        return Plan(tuple(chosen), tuple(sorted(nodes))) if is_enough else None

    patch.setattr(Planner, "_stopping", stopping)


def _rules_are_not_asked_again(patch: pytest.MonkeyPatch) -> None:
    """Each victim alone may be ended; nobody looks at those that are left of a plan together."""
    patch.setattr(Balance, "rule_for", lambda balance, job: None)


def _seats_protect_nobody(patch: pytest.MonkeyPatch) -> None:
    """The rule sees of nobody who runs that he has one."""

    def stoppable(state: State) -> dict[JobId, Job]:
        return {job_id: replace(job, seat=None) for job_id, job in REAL_STOPPABLE(state).items()}

    patch.setattr(preempting, "stoppable", stoppable)


def _notices_are_short(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(notices, "lead_s", lambda turn, job: 0.0)


def _fences_are_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tree, "is_fenced", lambda tree, queue, other: False)


def _limits_above_do_not_hold(patch: pytest.MonkeyPatch) -> None:
    def wait_of(barriers: AdmissionLimits, job: Job) -> Wait | None:
        return None if "/" in job.spec.queue else REAL_WAIT_OF(barriers, job)

    patch.setattr(AdmissionLimits, "wait_of", wait_of)


def _freed_room_is_given_away(patch: pytest.MonkeyPatch) -> None:
    def block(backlog: Backlog, job: Job) -> None:
        if job.room_made_at is None:
            REAL_BLOCK(backlog, job)

    patch.setattr(Backlog, "block", block)


def _decay_is_sampled(patch: pytest.MonkeyPatch) -> None:
    """Whole seconds are forgotten one after the other, and what is left of the last is lost."""

    def at(usage: Usage, now: int, half_life_s: int) -> int:
        seconds, left = max(0, now - usage.since) // MICRO, 0.5 ** (1 / half_life_s)
        part = left**seconds
        return int(usage.value * part + usage.rate * (1 - part) / (1 - left))

    patch.setattr(Usage, "at", at)


def _clocks_open_periods(patch: pytest.MonkeyPatch) -> None:
    """The period that a time is in is opened, also when it has been there."""

    def opened(key: Key, budget: Budget, last: BudgetUse | None, left: int, now_ms: int) -> BudgetUse | None:
        span, terms = period_of(budget, now_ms), terms_of(budget)
        if last is not None and last.terms == terms and last.begins_ms <= now_ms < last.ends_ms:
            return None
        index = span.index if last is None else last.index + 1
        return BudgetUse(*key, index, span.begins * MS, span.ends * MS, terms)

    patch.setattr(budgets, "opened", opened)


BUGS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[str]]] = {
    "GPUs are counted, not looked for on nodes": (_gpus_are_counted, {"every stop helps a job"}),
    "seats protect nobody": (_seats_protect_nobody, {"no job within a guarantee is reclaimed"}),
    "notices are shorter than is owed": (_notices_are_short, {"every stop had its notice"}),
    "fences are open": (_fences_are_open, {"nothing is ended without a reason"}),
    "freed room is given away": (
        _freed_room_is_given_away,
        {"freed room is kept for the job it was freed for"},
    ),
    "limits of those above do not hold": (
        _limits_above_do_not_hold,
        {"no queue is over its limit at any level"},
    ),
}


#: Found with budgets, classes and pools, and clocks that are set.
BUGS_OF_TERMS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[str]]] = {
    "decay by sampling": (_decay_is_sampled, {"past use follows from what was held"}),
    "a period is opened twice": (_clocks_open_periods, {"no period of a budget is opened twice"}),
}


@pytest.mark.long
@pytest.mark.parametrize(("bug", "rules"), BUGS_OF_TERMS.values(), ids=BUGS_OF_TERMS)
def test_chaos_of_budgets_and_past_use_finds_a_seeded_bug_and_a_short_story(
    bug: Callable[[pytest.MonkeyPatch], None], rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    monkeypatch.setattr(chaos, "MIXES", (chaos.TERMS,))
    assert_found(rules, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize(("bug", "rules"), BUGS.values(), ids=BUGS)
def test_chaos_of_queues_finds_a_seeded_bug_and_a_short_story(
    bug: Callable[[pytest.MonkeyPatch], None], rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    monkeypatch.setattr(chaos, "MIXES", (chaos.QUEUES,))
    assert_found(rules, monkeypatch)


@pytest.mark.long
def test_chaos_of_reclaims_finds_a_plan_that_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _rules_are_not_asked_again(monkeypatch)
    monkeypatch.setattr(chaos, "MIXES", (chaos.RECLAIMS,))
    assert_found({"a borrower takes from no queue that has less then"}, monkeypatch)


@runs(1500)
def test_chaos_of_queues_finds_no_violation(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "MIXES", (chaos.QUEUES,))
    assert_holds(steps, 6, "QueuesChanged", "GiveNotice", "JobSubmitted")


@runs(2500)
def test_chaos_of_budgets_classes_and_pools_finds_no_violation(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos, "MIXES", (chaos.TERMS,))
    assert_holds(steps, 12, "QueuesChanged", "JobSubmitted", "Launch")
