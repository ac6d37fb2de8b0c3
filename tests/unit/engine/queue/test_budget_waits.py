"""Budgets and the jobs that wait for them: the whole of what is said, and the last second that is paid."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from mesos_gpu.engine.queue import budgets
from mesos_gpu.engine.queue.budgets import BudgetDeniesSeat, Budgets, BudgetSpent
from mesos_gpu.model.ids import AgentId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import Budget, JobClass, OnEmpty, Period, QueueSpec
from mesos_gpu.model.usage import BudgetUse, Part, Span
from mesos_gpu.policy.accounts.budget import Standing
from mesos_gpu.policy.admission.limits import Wait
from tests.doubles.builders import World, spec
from tests.unit.engine.tenancy.worlds import tree_world

HOUR: Final = 3600
DAY: Final = 24 * HOUR
MIDNIGHT: Final = int(datetime(2026, 11, 23, tzinfo=UTC).timestamp())
NOON: Final = MIDNIGHT + 12 * HOUR
GPU_HOUR: Final = HOUR * 1000 * 1000  # thousandths of cost times milliseconds
NEXT: Final = "the next period opens 2026-11-24 00:00 UTC"


def budget(gpu_hours: float = 10, **fields: Any) -> Budget:
    return Budget(round(gpu_hours * GPU_HOUR / 1000), **{"period": Period.DAY, **fields})


def world(queues: Mapping[str, QueueSpec], **document: Any) -> World:
    """Make an engine at noon, in which no period has begun."""
    made = tree_world(dict(queues), **document)
    made.now = float(NOON)
    made.state.ledger.budget_uses.clear()
    made.state.ledger.budget_book = None
    return made


def uses(made: World, hours: float, user: str = "*", terms: str = "day UTC", **fields: Any) -> BudgetUse:
    """Let so many GPU hours of a budget of queue ml be used, in the day that began at midnight."""
    use = BudgetUse(
        "ml", user, 0, MIDNIGHT * 1000, (MIDNIGHT + DAY) * 1000, terms, used=round(hours * GPU_HOUR), **fields
    )
    put(made, use)
    return use


def put(made: World, *known: BudgetUse) -> None:
    """Save periods, and forget what followed from those before."""
    for use in known:
        made.state.put(use)
    made.state.ledger.budget_book = None


def job_of(**fields: Any) -> Job:
    return Job(JobId("j"), spec(queue="ml", gpus=1, **fields), 0.0, 1)


@dataclass
class Paid:
    """Job that budgets pay for, beside what a match has taken so far."""

    job: Job
    budgets: Budgets
    most: int = 1000
    taken: tuple[tuple[Job, Charge], ...] = ()
    lacks_seat: bool = True

    def taken_below(self, queue: str) -> tuple[tuple[Job, Charge], ...]:
        return self.taken if queue == "ml" else ()


def refusal(
    made: World, job: Job, cost: int = 1000, taken: tuple[tuple[Job, Charge], ...] = ()
) -> Wait | None:
    case = Paid(job, Budgets(made.state, made.now), cost, taken)
    return next((each.wait() for each in BudgetSpent.decide(case)), None)


@pytest.mark.parametrize("on_empty", [OnEmpty.NO_START, OnEmpty.STOP])
def test_budget_that_is_used_up_says_when_the_next_period_opens(on_empty: OnEmpty) -> None:
    made = world({"ml": QueueSpec(budget=budget(on_empty=on_empty))})
    use = uses(made, 10)
    words = f"the budget of queue ml is used up: 10 GPU hours; {NEXT}"
    assert refusal(made, job_of()) == Wait(Stage.BUDGET, words, MIDNIGHT + DAY)
    assert refusal(made, job_of(), cost=0) is None
    put(made, replace(use, used=use.used - 1))
    assert refusal(made, job_of()) is None


@pytest.mark.parametrize("on_empty", [OnEmpty.WARN, OnEmpty.BORROW])
def test_empty_budget_that_only_warns_or_lends_lets_jobs_start(on_empty: OnEmpty) -> None:
    made = world({"ml": QueueSpec(budget=budget(on_empty=on_empty))})
    uses(made, 10)
    assert refusal(made, job_of()) is None
    assert Budgets(made.state, made.now).must_borrow(job_of()) is (on_empty is OnEmpty.BORROW)


@pytest.mark.parametrize(
    ("granted", "hours"), [(0, "10"), (GPU_HOUR // 2, "10.5"), (1, "10.000"), (-GPU_HOUR, "9")]
)
def test_budget_tells_its_total_with_what_was_granted(granted: int, hours: str) -> None:
    made = world({"ml": QueueSpec(budget=budget(on_empty=OnEmpty.NO_START))})
    uses(made, 12, granted=granted)
    words = f"the budget of queue ml is used up: {hours} GPU hours; {NEXT}"
    assert refusal(made, job_of()) == Wait(Stage.BUDGET, words, MIDNIGHT + DAY)


def test_budget_of_a_user_names_him_and_is_his_alone() -> None:
    own = budget(on_empty=OnEmpty.NO_START)
    made = world({"ml": QueueSpec(user_budgets={"ann": own})})
    uses(made, 10, "ann")
    words = f"the budget of user ann of queue ml is used up: 10 GPU hours; {NEXT}"
    assert refusal(made, job_of(user="ann")) == Wait(Stage.BUDGET, words, MIDNIGHT + DAY)
    assert refusal(made, job_of(user="bob")) is None


@pytest.mark.parametrize(
    ("days", "used", "words", "until"),
    [
        (("2026-11-24", "2026-11-25"), 0, "has not begun; it begins 2026-11-24 00:00 UTC", MIDNIGHT + DAY),
        (("2026-11-22", "2026-11-23"), 0, "has ended; there is no other period", None),
        (("2026-11-22", "2026-11-24"), 10, "is used up: 10 GPU hours; there is no other period", None),
    ],
)
def test_budget_that_is_there_once_says_so(
    days: tuple[str, str], used: float, words: str, until: float | None
) -> None:
    once = budget(period=Period.ONCE, begins=days[0], ends=days[1], on_empty=OnEmpty.NO_START)
    made = world({"ml": QueueSpec(budget=once)})
    begins, ends = (int(datetime.fromisoformat(f"{day}T00:00Z").timestamp()) * 1000 for day in days)
    use = uses(made, used, terms=f"once UTC {days[0]} {days[1]}")
    put(made, replace(use, begins_ms=begins, ends_ms=ends))
    assert refusal(made, job_of()) == Wait(Stage.BUDGET, f"the budget of queue ml {words}", until)


def test_budget_of_a_zone_says_when_it_opens_there() -> None:
    made = world({"ml": QueueSpec(budget=budget(zone="Asia/Tokyo", on_empty=OnEmpty.NO_START))})
    uses(made, 10, terms="day Asia/Tokyo")
    wait = refusal(made, job_of())
    assert wait is not None
    assert wait.words.endswith("; the next period opens 2026-11-24 09:00 JST")


def test_empty_budget_keeps_a_job_from_its_seat_where_jobs_borrow() -> None:
    made = world({"ml": QueueSpec(budget=budget(on_empty=OnEmpty.BORROW))})
    assert [*BudgetDeniesSeat.decide(Paid(job_of(), Budgets(made.state, made.now)))] == []
    uses(made, 10)
    words = (
        "the budget of queue ml is used up: 10 GPU hours, so its jobs borrow, and this one may not: "
        f"it is not preemptible; {NEXT}"
    )
    case = Paid(job_of(), Budgets(made.state, made.now))
    assert [each.wait() for each in BudgetDeniesSeat.decide(case)] == [
        Wait(Stage.BUDGET, words, MIDNIGHT + DAY)
    ]
    assert [*BudgetDeniesSeat.decide(replace(case, lacks_seat=False))] == []


# --- safe ones: 10 GPU hours, of which 4 are used


def safe(made_of: Budget | None = None, **document: Any) -> World:
    made = world({"ml": QueueSpec(budget=made_of or budget(safe=True))}, **document)
    uses(made, 4)
    return made


def runs(made: World, name: str, started_s: float | None, timeout_h: float, gpus: int = 1) -> None:
    """Let a job run since so many seconds; its span began now."""
    limits = {"timeout_s": timeout_h * HOUR, "kill_grace_s": 0.0}
    started = None if started_s is None else NOON - started_s
    job = Job(
        JobId(name), spec(queue="ml", gpus=gpus, **limits), 0.0, 1, state=JobState.RUNNING, started_at=started
    )
    task = Task(TaskId(name), AgentId("a1"), name, job.id, TaskState.RUNNING, 0.0)
    made.state.put(job)
    made.state.put(task)
    part = Part("", gpus * 1000, gpus * 1000)
    made.state.put(Span(task.id, job.id, "", "ml", "", "", "default", (part,), False, 100, NOON * 1000))


def of_safe(left: str, running: str, own: str) -> str:
    return (
        f"the budget of queue ml has {left} GPU hours left, of which running jobs may use {running} by their time "
        f"limits, and this one {own}"
    )


@pytest.mark.parametrize(("timeout_s", "fits"), [(6 * HOUR - 5, True), (6 * HOUR - 4, False)])
def test_safe_budget_pays_for_the_time_limit_and_the_grace_after_it(timeout_s: float, fits: bool) -> None:
    wait = refusal(safe(), job_of(timeout_s=float(timeout_s)))
    words = f"{of_safe('6', '0', '6.000')}; {NEXT}"
    assert wait == (None if fits else Wait(Stage.BUDGET, words, MIDNIGHT + DAY))


def test_safe_budget_starts_no_job_without_a_time_limit() -> None:
    words = "the budget of queue ml starts only jobs with a time limit; set timeout_s for this job"
    assert refusal(safe(), job_of()) == Wait(Stage.BUDGET, words)
    assert refusal(safe(budget()), job_of()) is None


@pytest.mark.parametrize(
    ("started_s", "timeout_h", "running"),
    [(None, 3, "3"), (HOUR, 3, "2"), (3 * HOUR, 3, "0"), (4 * HOUR, 3, "0")],
)
def test_safe_budget_promises_the_rest_of_what_runs(
    started_s: float | None, timeout_h: float, running: str
) -> None:
    made = safe()
    runs(made, "other", started_s, timeout_h)
    own = job_of(timeout_s=7.0 * HOUR, kill_grace_s=0.0)
    words = f"{of_safe('6', running, '7')}; {NEXT}"
    assert refusal(made, own) == Wait(Stage.BUDGET, words, MIDNIGHT + DAY)
    fits = job_of(timeout_s=(6 - int(running)) * float(HOUR), kill_grace_s=0.0)
    assert refusal(made, fits) is None


@pytest.mark.parametrize(("timeout_h", "until"), [(7.0, MIDNIGHT + DAY), (7.001, None)])
def test_safe_budget_that_opens_again_has_room_beside_what_runs_on(
    timeout_h: float, until: float | None
) -> None:
    made = safe()
    runs(made, "other", None, 15.0)  # three hours of it in the next period
    wait = refusal(made, job_of(timeout_s=timeout_h * HOUR, kill_grace_s=0.0))
    assert wait is not None
    assert wait.until == until
    assert wait.words.endswith(f"; {NEXT}")


@pytest.mark.parametrize(
    ("carry", "timeout_h", "whole"),
    [(0, 10.0, None), (0, 10.001, "10"), (50, 15.0, None), (50, 15.001, "15")],
)
def test_safe_budget_smaller_than_a_job_waits_for_a_grant(
    carry: int, timeout_h: float, whole: str | None
) -> None:
    wait = refusal(
        safe(budget(safe=True, carry_over_percent=carry)),
        job_of(timeout_s=timeout_h * HOUR, kill_grace_s=0.0),
    )
    assert wait is not None
    said = f"; a whole period has {whole} at most, so it waits for a grant"
    assert wait.words.endswith(said if whole else f"; {NEXT}")
    assert wait.until == (None if whole or timeout_h > 10 else MIDNIGHT + DAY)


@pytest.mark.parametrize(
    ("payer", "user", "counts"), [("*", "bob", True), ("ann", "ann", True), ("ann", "bob", False)]
)
def test_safe_budget_counts_what_this_match_has_taken_of_its_payers(
    payer: str, user: str, counts: bool
) -> None:
    own = budget(safe=True)
    made = world(
        {
            "ml": QueueSpec(
                budget=own if payer == "*" else None, user_budgets={"ann": own} if payer == "ann" else {}
            )
        }
    )
    uses(made, 4, payer)
    other = replace(job_of(timeout_s=2.0 * HOUR, kill_grace_s=0.0), id=JobId("other"))
    taken = ((other, Charge("ml", user, "default", 1000, 500)),)
    job = job_of(timeout_s=5.5 * HOUR, kill_grace_s=0.0, user="ann")
    wait = refusal(made, job, taken=taken)
    assert (wait is not None) is counts
    if wait is not None:
        assert "running jobs may use 1 by" in wait.words
        assert refusal(made, replace(job, spec=replace(job.spec, timeout_s=5.0 * HOUR)), taken=taken) is None


def test_safe_budget_asks_of_a_class_what_it_is_charged() -> None:
    made = safe(classes=(JobClass("half", charge_percent=50),))
    limits = {"kill_grace_s": 0.0, "job_class": "half"}
    assert refusal(made, job_of(timeout_s=12.0 * HOUR, **limits)) is None
    wait = refusal(made, job_of(timeout_s=13.0 * HOUR, **limits))
    assert wait is not None
    assert wait.words == f"{of_safe('6', '0', '6.5')}; {NEXT}"


# --- how they stand


def test_budget_stands_with_what_open_spans_have_used_in_its_period() -> None:
    given = budget()
    made = world({"ml": QueueSpec(budget=given)})
    use = uses(made, 4, granted=GPU_HOUR)
    runs(made, "old", None, 15.0)
    runs(made, "large", None, 15.0, gpus=2)
    span = made.state.ledger.spans[TaskId("old")]
    made.state.put(replace(span, begins_ms=span.begins_ms - DAY * 1000))
    expected = Standing(given, use, 16 * GPU_HOUR, 3000, 11 * GPU_HOUR, NOON * 1000)
    assert budgets.all_standing(made.state, made.now) == [expected]
    late = (NOON + DAY) * 1000
    after = Standing(given, use, (4 + 24 + 24) * GPU_HOUR, 3000, 11 * GPU_HOUR, late)
    tree = made.state.quota.tree
    assert budgets.standing_of(made.state, tree, ("ml", "*"), given, late) == after, (
        "up to the end of its period"
    )
    early = (MIDNIGHT - HOUR) * 1000
    before = budgets.standing_of(made.state, tree, ("ml", "*"), given, early)
    assert before == Standing(given, use, 4 * GPU_HOUR, 3000, 11 * GPU_HOUR, early)
    assert budgets.paying(made.state, tree, ("ml", "*")) == list(made.state.ledger.spans.values())
    assert budgets.paying(made.state, tree, ("ml", "ann")) == []


def test_budget_of_other_terms_does_not_stand() -> None:
    made = world({"ml": QueueSpec(budget=budget())})
    uses(made, 4, terms="month UTC")
    assert budgets.all_standing(made.state, made.now) == []
    assert budgets.all_periods(made.state, made.now) == []


def test_periods_of_budgets_are_told_each_with_its_end() -> None:
    given = budget()
    made = world({"ml": QueueSpec(budget=given), "other": QueueSpec()})
    today = replace(uses(made, 3), index=7)
    past = [
        replace(
            today,
            index=i,
            begins_ms=(MIDNIGHT - ago * DAY) * 1000,
            ends_ms=(MIDNIGHT - (ago - 1) * DAY) * 1000,
        )
        for i, ago in ((5, 2), (6, 1))
    ]
    made.state.ledger.budget_uses.clear()
    put(made, today, *past)
    runs(made, "old", None, 99.0)
    span = made.state.ledger.spans[TaskId("old")]
    made.state.put(replace(span, begins_ms=(MIDNIGHT - 6 * HOUR) * 1000))
    assert budgets.uses_of(made.state, ("ml", "*")) == [*past, today]
    assert budgets.latest_of(made.state, ("ml", "*")) == today
    assert budgets.latest_of(made.state, ("ml", "ann")) is None
    assert budgets.all_periods(made.state, made.now) == [
        Standing(given, past[0], 3 * GPU_HOUR, 0, 10 * GPU_HOUR, past[0].ends_ms),
        Standing(given, past[1], 9 * GPU_HOUR, 0, 10 * GPU_HOUR, past[1].ends_ms),
        Standing(given, today, 15 * GPU_HOUR, 1000, 10 * GPU_HOUR, NOON * 1000),
    ]


def test_budgets_of_users_stand_when_they_have_paid() -> None:
    given = budget()
    made = world({"ml": QueueSpec(user_budgets={"*": given}), "ml/x": QueueSpec()})
    assert budgets.all_standing(made.state, made.now) == []
    for user in ("bob", "ann"):
        uses(made, 1, user)
    stand = budgets.all_standing(made.state, made.now)
    assert [(each.use.queue, each.use.user, each.used) for each in stand] == [
        ("ml", "ann", GPU_HOUR), ("ml", "bob", GPU_HOUR),
    ]  # fmt: skip


@pytest.mark.parametrize("on_empty", OnEmpty)
def test_budget_stops_what_runs_only_where_it_is_said(on_empty: OnEmpty) -> None:
    made = world({"ml": QueueSpec(budget=budget(on_empty=on_empty))})
    use = uses(made, 10)
    (stand,) = budgets.all_standing(made.state, made.now)
    assert budgets.stops(stand) is (on_empty is OnEmpty.STOP)
    assert not budgets.stops(replace(stand, use=replace(use, granted=1), total=stand.total + 1))
    assert budgets.words_of(stand) == "the budget of queue ml is used up: 10 GPU hours"
