"""Budgets in a bare engine: periods, thresholds, waiting jobs, notices, and refunds."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.queue.budgets import all_periods, all_standing
from mesos_gpu.engine.state import State
from mesos_gpu.errors import MesosGpuError, NotFound
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.saves import SaveBudgetUse
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tenancy import Budget, JobClass, OnEmpty, Period, QueueDocument, QueueSpec
from mesos_gpu.model.usage import MS, BudgetUse, Closed, Part, Span, SpanEnd
from mesos_gpu.policy.accounts.budget import MAX_PERIODS, Standing, charge_of, opened, period_of, total_of
from tests.doubles.builders import World, every, gpu, saved_of

HOUR = 3600
MIDNIGHT = int(datetime(2026, 11, 23, tzinfo=UTC).timestamp())
CARDS = tuple(gpu(f"g{i}") for i in range(4))
GPU_HOUR = HOUR * 1000  # thousandths of cost times seconds


def budget(gpu_hours: float = 10, **fields: Any) -> Budget:
    return Budget(round(gpu_hours * GPU_HOUR), **{"period": Period.DAY, **fields})


def world(queues: Mapping[str, QueueSpec], **fields: Any) -> World:
    made = World(now=float(MIDNIGHT), state=State(started_at=float(MIDNIGHT)))
    made.register()
    made.node("a1", *CARDS, cpus=32)
    made.feed(ev.QueuesChanged(QueueDocument(queues=queues, **fields), 0))
    return made


def starts(world: World, name: str, gpus: int = 1, queue: str = "ml", **fields: Any) -> str:
    world.submit(name, gpus=gpus, queue=queue, preemptible=True, **fields)
    world.offers(*_rest(world))
    task_id = world.job(name).task_id
    assert task_id is not None, world.job(name).message
    world.status(task_id, "TASK_RUNNING")
    return task_id


def _rest(world: World) -> list[Any]:
    from tests.doubles.builders import offer

    world.serial += 1
    held = sum(len(task.gpus) for task in world.state.work.tasks.values() if not task.ended)
    return [offer(f"o{world.serial}", "a1", cpus=20, gpus=4 - held)]


def waits(world: World, name: str, gpus: int = 1, queue: str = "ml", **fields: Any) -> None:
    world.submit(name, gpus=gpus, queue=queue, preemptible=True, **fields)
    world.offers(*_rest(world))
    assert world.job(name).state is JobState.PENDING


def goes_on(world: World, seconds: float) -> None:
    """Let time pass at once, with a report of the node and a tick at its end."""
    world.now += seconds
    world.report("a1", *CARDS)
    world.feed(ev.Tick())


def standing(world: World, queue: str = "ml", user: str = "*") -> Standing:
    every_one = {(s.use.queue, s.use.user): s for s in all_standing(world.state, world.now)}
    return every_one[queue, user]


def used_hours(world: World, queue: str = "ml", user: str = "*") -> float:
    return standing(world, queue, user).used / (GPU_HOUR * MS)


def test_budget_charges_running_jobs_to_all_queues_above() -> None:
    each = world({"ml": QueueSpec(budget=budget(100)), "ml/a": QueueSpec(budget=budget(10))})
    task = starts(each, "j1", gpus=2, queue="ml/a")
    goes_on(each, HOUR)
    assert (used_hours(each), used_hours(each, "ml/a")) == (2.0, 2.0)
    each.status(task, "TASK_FINISHED")
    goes_on(each, HOUR)
    assert (used_hours(each), used_hours(each, "ml/a")) == (2.0, 2.0)


def test_use_counts_by_the_cost_of_the_model_and_the_charge_of_the_class() -> None:
    cheap = JobClass("night", charge_percent=50)
    each = world({"ml": QueueSpec(budget=budget(100))}, gpu_cost={"A100": 3}, classes=(cheap,))
    starts(each, "j1")
    starts(each, "j2", job_class="night")
    goes_on(each, 2 * HOUR)
    assert used_hours(each) == 6 + 3


def test_empty_budget_keeps_jobs_waiting_until_the_next_period_opens() -> None:
    each = world({"ml": QueueSpec(budget=budget(2, on_empty=OnEmpty.NO_START))})
    task = starts(each, "j1")
    goes_on(each, 2 * HOUR - 1)
    starts(each, "j2")
    goes_on(each, HOUR)
    waits(each, "j3")
    assert each.job("j1").state is JobState.RUNNING
    each.status(task, "TASK_FINISHED")
    goes_on(each, 20 * HOUR)
    each.offers(*_rest(each))
    assert each.job("j3").state is JobState.PENDING
    goes_on(each, HOUR + 2)
    each.offers(*_rest(each))
    assert each.job("j3").state is JobState.STARTING
    assert used_hours(each) == 1 / HOUR  # j2 runs on since midnight


def test_budget_thresholds_are_reported_once_when_crossed() -> None:
    each = world({"ml": QueueSpec(budget=budget(4))})
    starts(each, "j1")
    told = []
    for _ in range(5 * 60):
        each.now += 60
        saves = each.feed(ev.Tick())
        told += [(int(each.now) - MIDNIGHT, s.use.told_percent) for s in every(saves, SaveBudgetUse)]
    assert told == [(2 * HOUR, 50), (HOUR * 16 // 5, 80), (4 * HOUR, 100)]
    each.state = State.restored(each.now, saved_of(each.state))
    assert every(each.feed(ev.Tick()), SaveBudgetUse) == []


def test_budget_stop_gives_notice_to_jobs_of_its_queue_alone() -> None:
    spec = QueueSpec(budget=budget(1, on_empty=OnEmpty.STOP), notice_s=60.0)
    each = world({"ml": spec, "other": QueueSpec()})
    task = starts(each, "j1")
    other = starts(each, "j2", queue="other")
    goes_on(each, HOUR)
    notice = each.state.work.tasks[TaskId(task)].notice
    assert notice is not None
    assert notice.reason is NoticeReason.BUDGET
    assert notice.until == each.now + 60
    assert each.state.work.tasks[TaskId(other)].notice is None
    goes_on(each, 61)
    each.status(task, "TASK_KILLED")
    assert each.job("j1").state is JobState.PENDING


@pytest.mark.parametrize("granted", [True, False])
def test_budget_stop_notice_is_withdrawn_when_the_budget_has_more_or_is_gone(granted: bool) -> None:
    spec = QueueSpec(budget=budget(1, on_empty=OnEmpty.STOP), notice_s=60.0)
    each = world({"ml": spec})
    task_id = TaskId(starts(each, "j1"))
    goes_on(each, HOUR)
    if granted:
        each.feed(ev.BudgetGranted("ml", "*", 5 * GPU_HOUR * MS))
    else:
        each.feed(
            ev.QueuesChanged(QueueDocument(queues={"ml": QueueSpec()}), each.state.quota.queues.version)
        )
    goes_on(each, 61)
    notice, task = each.state.work.tasks[task_id].notice, each.state.work.tasks[task_id]
    assert notice is not None
    assert not notice.stands
    assert (task.evicted, task.kill_sent_at) == ("", None)


def test_budget_borrow_lets_jobs_run_as_borrowers() -> None:
    from mesos_gpu.model.tenancy import Guarantee

    owed = {"default": Guarantee(4000)}
    each = world({"ml": QueueSpec(budget=budget(1, on_empty=OnEmpty.BORROW), guarantee_gpus=owed)})
    starts(each, "j1")
    assert each.job("j1").seat is not None
    goes_on(each, 2 * HOUR)
    starts(each, "j2")
    assert each.job("j2").seat is None
    assert each.state.ledger.spans[TaskId(each.job("j2").task_id or "")].borrowed


@pytest.mark.parametrize("on_empty", [OnEmpty.BORROW, OnEmpty.NO_START])
def test_empty_budget_ends_no_job_for_one_that_needs_a_seat(on_empty: OnEmpty) -> None:
    from mesos_gpu.model.tenancy import Guarantee

    empty = {"alice": budget(0, on_empty=on_empty)}
    queue = QueueSpec(guarantee_gpus={"default": Guarantee(4000)}, user_budgets=empty)
    each = world({"ml": queue})
    starts(each, "j1", gpus=4)
    each.feed(
        ev.JobSubmitted(JobId("j2"), replace(each.job("j1").spec, preemptible=False, priority=9), "alice")
    )
    each.tick(60)
    assert each.job("j1").state is JobState.RUNNING
    assert not each.state.work.tasks[TaskId("j1.1")].notice
    why = why_of(each.state, each.settings, each.now, each.job("j2"))
    assert "budget of user alice of queue ml is used up" in str(why)


def test_jobs_of_an_empty_budget_that_borrow_come_after_all_others() -> None:
    broke = QueueSpec(budget=budget(1, on_empty=OnEmpty.BORROW), weight=100)
    each = world({"ml": broke, "web": QueueSpec()})
    starts(each, "j1")
    starts(each, "j2", gpus=2, queue="web")
    goes_on(each, 2 * HOUR)
    # By weight alone it would be ml's turn.
    each.submit("j3", gpus=1, queue="ml", preemptible=True)
    each.submit("j4", gpus=1, queue="web", preemptible=True)
    each.offers(*_rest(each))
    assert [each.job(name).state for name in ("j3", "j4")] == [JobState.PENDING, JobState.STARTING]
    each.status(str(each.job("j2").task_id), "TASK_FINISHED")
    each.offers(*_rest(each))
    assert each.job("j3").state is JobState.STARTING


def test_empty_budget_keeps_room_for_a_job_that_starves() -> None:
    broke = QueueSpec(budget=budget(1, on_empty=OnEmpty.BORROW), starve_after_s=float(HOUR))
    each = world({"ml": broke, "web": QueueSpec()})
    starts(each, "j1")
    starts(each, "j2", gpus=3, queue="web")
    goes_on(each, 2 * HOUR)
    each.submit("j3", gpus=1, queue="ml", preemptible=True)
    goes_on(each, HOUR + 1)
    each.submit("j4", gpus=1, queue="web", preemptible=True)
    each.status(str(each.job("j1").task_id), "TASK_FINISHED")
    each.offers(*_rest(each))
    assert [each.job(name).state for name in ("j3", "j4")] == [JobState.STARTING, JobState.PENDING]


def test_periods_that_are_over_are_told_with_what_still_runs_since_then() -> None:
    each = world({"ml": QueueSpec(budget=budget(10, carry_over_percent=100))})
    starts(each, "j1")
    task = starts(each, "j2")
    goes_on(each, 6 * HOUR)
    each.status(task, "TASK_FINISHED")
    each.feed(ev.BudgetGranted("ml", "*", 5 * GPU_HOUR * MS))
    for _ in range(2):
        goes_on(each, 24 * HOUR)
    told = [
        (s.use.begins_ms // MS - MIDNIGHT, s.total, s.used, s.rate) for s in all_periods(each.state, each.now)
    ]
    hours = GPU_HOUR * MS
    assert told == [
        (0, 15 * hours, 30 * hours, 0),
        (24 * HOUR, 10 * hours, 24 * hours, 0),
        (48 * HOUR, 10 * hours, 6 * hours, 1000),
    ]


def test_budget_is_opened_by_a_grant_and_closed_by_what_is_set_aside() -> None:
    each = world({"ml": QueueSpec(budget=budget(1, on_empty=OnEmpty.NO_START))})
    starts(each, "j1")
    goes_on(each, HOUR)
    waits(each, "j2")
    each.feed(ev.BudgetGranted("ml", "*", 2 * GPU_HOUR * MS))
    each.offers(*_rest(each))
    assert each.job("j2").state is JobState.STARTING
    assert standing(each).use.told_percent == 0
    each.feed(ev.BudgetGranted("ml", "*", -3 * GPU_HOUR * MS))
    assert standing(each).empty
    waits(each, "j3")
    with pytest.raises(NotFound, match="queue other has no budget"):
        each.feed(ev.BudgetGranted("other", "*", 1))


def test_users_have_budgets_of_their_own() -> None:
    each = world({"ml": QueueSpec(user_budgets={"*": budget(1, on_empty=OnEmpty.NO_START)})})
    starts(each, "j1", user="ann")
    goes_on(each, HOUR)
    waits(each, "j2", user="ann")
    starts(each, "j3", user="bob")
    assert (used_hours(each, user="ann"), used_hours(each, user="bob")) == (1.0, 0.0)


def test_user_budget_applies_to_the_first_job_of_a_user() -> None:
    mine = {"*": budget(0, on_empty=OnEmpty.NO_START)}
    held = world({"ml": QueueSpec(user_budgets=mine)})
    waits(held, "first", user="alice")
    safe = world({"ml": QueueSpec(user_budgets={"*": budget(1, safe=True)})})
    waits(safe, "long", user="alice", timeout_s=7200.0, kill_grace_s=0.0)
    starts(safe, "short", user="alice", timeout_s=1800.0, kill_grace_s=0.0)


def test_safe_budget_starts_only_what_surely_stays_inside() -> None:
    each = world({"ml": QueueSpec(budget=budget(4, safe=True))})
    with pytest.raises(MesosGpuError) as refused:
        each.submit("j0", gpus=1, queue="ml")
    assert "time limit" in str(refused.value.__dict__)
    limits: dict[str, Any] = {"timeout_s": 2.0 * HOUR, "kill_grace_s": 0.0}
    starts(each, "j1", **limits)
    waits(each, "j2", gpus=2, **limits)
    goes_on(each, 600)
    waits(each, "j3", gpus=2, **limits)
    starts(each, "j4", **limits)
    each.status(str(each.job("j1").task_id), "TASK_FINISHED")
    each.offers(*_rest(each))
    assert each.job("j2").state is JobState.PENDING  # 10 minutes are used, and j4 may use two hours


def test_safe_budget_counts_nothing_for_a_job_beyond_its_time_limit() -> None:
    each = world({"ml": QueueSpec(budget=budget(10, safe=True))})
    starts(each, "late", timeout_s=1.0 * HOUR, kill_grace_s=0.0)
    goes_on(each, 3 * HOUR)
    assert each.job("late").state is JobState.RUNNING, "its host does not answer"
    waits(each, "large", timeout_s=8.0 * HOUR, kill_grace_s=0.0)
    assert "has 7 GPU hours left, of which running jobs may use 0 by their time limits" in _why(each, "large")
    starts(each, "fits", timeout_s=7.0 * HOUR, kill_grace_s=0.0)


def test_safe_budget_estimates_the_next_period_with_enough() -> None:
    each = world({"ml": QueueSpec(budget=budget(4, safe=True))})
    starts(each, "j1", timeout_s=3.0 * HOUR, kill_grace_s=0.0)
    waits(each, "fits", timeout_s=4.0 * HOUR, kill_grace_s=0.0)
    waits(each, "larger", timeout_s=5.0 * HOUR, kill_grace_s=0.0)
    told = why_of(each.state, each.settings, each.now, each.job("fits"))
    assert told.estimate is not None
    assert told.estimate.at == MIDNIGHT + 24 * HOUR
    assert _why(each, "larger").endswith(
        "and this one 5; a whole period has 4 at most, so it waits for a grant"
    )


def test_safe_budget_estimate_counts_running_jobs_in_the_next_period() -> None:
    each = world({"ml": QueueSpec(budget=budget(4, safe=True))})
    goes_on(each, 22 * HOUR)
    starts(each, "late", timeout_s=3.0 * HOUR, kill_grace_s=0.0)
    opens = {}
    for hours in (4.0, 3.0):
        waits(each, f"of{hours:g}", timeout_s=hours * HOUR, kill_grace_s=0.0)
        told = why_of(each.state, each.settings, each.now, each.job(f"of{hours:g}"))
        assert told.estimate is not None
        opens[hours] = told.estimate.at
    assert opens == {4.0: None, 3.0: MIDNIGHT + 24 * HOUR}


def test_jobs_of_one_match_count_against_a_safe_budget_together() -> None:
    each = world({"ml": QueueSpec(budget=budget(2, safe=True))})
    for name in ("j1", "j2", "j3"):
        each.submit(name, gpus=1, queue="ml", preemptible=True, timeout_s=1.0 * HOUR, kill_grace_s=0.0)
    each.offers(*_rest(each))
    assert [each.job(name).state.value for name in ("j1", "j2", "j3")] == ["starting", "starting", "pending"]


def test_safe_budget_counts_what_a_class_is_charged() -> None:
    """The night's jobs cost half: four of an hour fit into two GPU hours, in one match or one after another."""
    night = JobClass("night", charge_percent=50)
    for together in (True, False):
        each = world({"ml": QueueSpec(budget=budget(2, safe=True))}, classes=(night,))
        for name in ("j1", "j2", "j3", "j4"):
            limits: dict[str, Any] = {"timeout_s": 1.0 * HOUR, "kill_grace_s": 0.0}
            each.submit(name, gpus=1, queue="ml", preemptible=True, job_class="night", **limits)
            if not together:
                each.offers(*_rest(each))
        each.offers(*_rest(each))
        assert {each.job(name).state for name in ("j1", "j2", "j3", "j4")} == {JobState.STARTING}
        for name in ("j1", "j2", "j3", "j4"):
            each.status(str(each.job(name).task_id), "TASK_RUNNING")
        each.submit("j5", gpus=1, queue="ml", preemptible=True, timeout_s=60.0)
        goes_on(each, HOUR / 2)
        assert "running jobs may use 1 " in _why(each, "j5")


def _why(world: World, name: str) -> str:
    return why_of(world.state, world.settings, world.now, world.job(name)).summary


def test_budget_refunds_infrastructure_losses_in_their_period() -> None:
    each = world({"ml": QueueSpec(budget=budget(100))})
    task = starts(each, "j1")
    goes_on(each, 23 * HOUR)
    goes_on(each, 2 * HOUR)
    first, second = sorted(each.state.ledger.budget_uses.values(), key=lambda use: use.index)
    assert used_hours(each) == 1.0
    each.state.put(replace(each.job("j1"), checkpoint_at=MIDNIGHT + 22.0 * HOUR))
    each.status(task, "TASK_LOST", reason="REASON_AGENT_REMOVED")
    first, second = sorted(each.state.ledger.budget_uses.values(), key=lambda use: use.index)
    assert (first.used, second.used) == (22 * GPU_HOUR * MS, 0)


def test_budget_carries_over_a_part_of_what_is_left() -> None:
    each = world({"ml": QueueSpec(budget=budget(10, carry_over_percent=50))})
    task = starts(each, "j1")
    goes_on(each, 4 * HOUR)
    each.status(task, "TASK_FINISHED")
    goes_on(each, 21 * HOUR)
    assert standing(each).use.carried == 3 * GPU_HOUR * MS
    assert standing(each).total == 13 * GPU_HOUR * MS


def test_budget_period_opens_once_though_a_clock_is_set_back() -> None:
    each = world({"ml": QueueSpec(budget=budget(10, carry_over_percent=100))})
    goes_on(each, 25 * HOUR)
    after = dict(each.state.ledger.budget_uses)
    goes_on(each, -3 * HOUR)
    each.state = State.restored(each.now, saved_of(each.state))
    goes_on(each, 1)
    goes_on(each, 4 * HOUR)
    assert each.state.ledger.budget_uses == after
    goes_on(each, 24 * HOUR)
    assert len(each.state.ledger.budget_uses) == 3


def test_budget_that_is_there_once_is_for_its_days() -> None:
    days: dict[str, Any] = {
        "period": Period.ONCE, "begins": "2026-11-24", "ends": "2026-11-25", "on_empty": OnEmpty.NO_START,
    }  # fmt: skip
    each = world({"ml": QueueSpec(budget=budget(10, **days))})
    waits(each, "j1")
    goes_on(each, 24 * HOUR)
    each.offers(*_rest(each))
    assert each.job("j1").state is JobState.STARTING
    goes_on(each, 25 * HOUR)
    waits(each, "j2")


def test_budget_that_is_gone_is_forgotten_and_other_terms_begin_anew() -> None:
    each = world({"ml": QueueSpec(budget=budget(10))})
    starts(each, "j1")
    goes_on(each, HOUR)
    monthly = QueueDocument(queues={"ml": QueueSpec(budget=budget(10, period=Period.MONTH))})
    each.feed(ev.QueuesChanged(monthly, 1))
    assert [use.terms for use in each.state.ledger.budget_uses.values()] == ["month UTC"]
    assert used_hours(each) == 0.0
    each.feed(ev.QueuesChanged(QueueDocument(queues={"ml": QueueSpec()}), 2))
    assert each.state.ledger.budget_uses == {}


def test_budget_forecast_is_when_it_is_empty_at_this_rate() -> None:
    each = world({"ml": QueueSpec(budget=budget(10))})
    starts(each, "j1", gpus=2)
    goes_on(each, HOUR)
    assert standing(each).empty_at_ms() == (MIDNIGHT + 5 * HOUR) * MS
    assert standing(each).percent == 20


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-11-23", 24)])
def test_budget_day_has_as_many_hours_as_its_zone_says(day: str, hours: int) -> None:
    zone = "Europe/Vienna"
    noon = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=ZoneInfo(zone)).timestamp()
    use = opened(("ml", "*"), budget(zone=zone), None, 0, int(noon - 13 * HOUR) * MS)
    now = int(noon) * MS
    use = opened(("ml", "*"), budget(zone=zone), use, 0, now) or use
    assert use is not None
    span = period_of(budget(zone=zone), now)
    assert span.ends - span.begins == hours * HOUR
    assert (use.begins_ms, use.ends_ms) == (span.begins * MS, span.ends * MS)


@pytest.mark.parametrize("count", [100, pytest.param(200, marks=pytest.mark.long)])
def test_periods_share_a_record_between_them(count: int) -> None:
    """Periods that follow on each other, and reach over the record, pay all of it, less what is refunded."""

    @settings(max_examples=count)
    @given(
        st.lists(st.integers(1, 10**7), min_size=1, max_size=12),
        st.integers(-(10**8), 10**8),
        st.integers(0, 10**8),
        st.integers(0, 10**8),
        st.integers(1, 10**5),
    )
    def check(lengths: list[int], begins: int, length: int, refunded: int, milli: int) -> None:
        refunded = min(refunded, length)
        record = Closed(
            Span(TaskId("t"), JobId("j"), "ann", "ml", "", "", "", (Part("", milli, milli),), False, 100, begins),
            begins + length, refunded, refunded, SpanEnd.LOST,
        )  # fmt: skip
        borders = [begins - 1]
        for each in lengths:
            borders.append(borders[-1] + each)
        borders.append(max(borders[-1], begins + length) + 1)
        uses = [BudgetUse("ml", "*", i, a, b, "day UTC") for i, (a, b) in enumerate(pairwise(borders))]
        assert sum(charge_of(record, use) for use in uses) == milli * (length - refunded)
        assert total_of(budget(1), replace(uses[0], granted=5, carried=2)) == GPU_HOUR * MS + 7

    check()


def test_budget_example_of_the_documentation_is_right() -> None:
    text = (Path(__file__).parents[4] / "docs/accounts.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\d\d:\d\d) \| .* \| (\d+ \| \d+) \|$", text, re.MULTILINE))
    each = world({"ml": QueueSpec(budget=budget(10, warn_at=(50, 80)))}, gpu_cost={"A100": 2})
    first = starts(each, "j1")
    goes_on(each, 2 * HOUR)
    second = starts(each, "j2")
    assert rows["02:00"] == f"{used_hours(each):g} | {10 - used_hours(each):g}"
    assert standing(each).empty_at_ms() == (MIDNIGHT + 3 * HOUR + 1800) * MS
    goes_on(each, 900)
    assert standing(each).use.told_percent == 50
    goes_on(each, 2700)
    assert standing(each).use.told_percent == 80
    for task in (first, second):
        each.status(task, "TASK_FINISHED")
    assert rows["03:00"] == f"{used_hours(each):g} | {10 - used_hours(each):g}"


_ACTS = st.lists(
    st.tuples(
        st.sampled_from(["start", "end", "wait", "wait", "away", "restart", "apply"]), st.integers(1, 24)
    ),
    max_size=25,
)


@pytest.mark.parametrize("count", [8, pytest.param(40, marks=pytest.mark.long)])
def test_budget_use_is_the_integral_of_what_was_held(count: int) -> None:
    @settings(max_examples=count)
    @example([("start", 1), ("wait", 1), ("wait", 24), ("end", 1)])
    @example([("start", 1), ("wait", 1), ("away", 9)])
    @example(
        [
            ("start", 2),
            ("start", 3),
            ("wait", 20),
            ("restart", 1),
            ("wait", 20),
            ("apply", 1),
            ("end", 1),
            ("wait", 9),
        ]
    )
    @given(_ACTS)
    def check(acts: list[tuple[str, int]]) -> None:
        _check_integral(acts)

    check()


def _check_integral(acts: list[tuple[str, int]]) -> None:
    """Compare what budgets have used with the integral of what tasks held."""
    queues = {
        "ml": QueueSpec(budget=budget(100)),
        "ml/a": QueueSpec(user_budgets={"*": budget(10)}),
        "ml/b": QueueSpec(),
    }
    each = world(queues)
    running: dict[str, tuple[int, str, str]] = {}  # by task: GPUs, queue, user
    integral: dict[tuple[str, str, int], int] = {}  # by budget and day: thousandths times milliseconds
    for number, (act, chance) in enumerate(acts):
        if act == "wait":
            _held_for(integral, running, each.now, chance * 3500)
            goes_on(each, chance * 3500)
        elif act == "away":
            _held_for(integral, running, each.now, chance * 9 * HOUR)
            each.now += chance * 9 * HOUR
            if running:
                task = sorted(running)[chance % len(running)]
                del running[task]
                each.status(task, "TASK_FINISHED")  # nothing was looked at since
            goes_on(each, 0)
        elif act == "start" and (free := 4 - sum(gpus for gpus, _, _ in running.values())):
            gpus, queue, user = (
                min(1 + chance % 3, free),
                f"ml/{'ab'[chance % 2]}",
                ("ann", "bob")[chance // 2 % 2],
            )
            running[starts(each, f"j{number}", gpus, queue, user=user)] = gpus, queue, user
        elif act == "end" and running:
            task = sorted(running)[chance % len(running)]
            del running[task]
            each.status(task, "TASK_FINISHED")
        elif act == "restart":
            each.state = State.restored(each.now, saved_of(each.state))
            each.register()
            each.report("a1", *CARDS)
        elif act == "apply":
            other = {**queues, "ml/b": QueueSpec(weight=chance)}
            each.feed(ev.QueuesChanged(QueueDocument(queues=other), each.state.quota.queues.version))
    told = {
        (s.use.queue, s.use.user, (s.use.begins_ms // MS - MIDNIGHT) // (24 * HOUR)): s.used
        for s in all_periods(each.state, each.now)
    }
    oldest = (int(each.now) - MIDNIGHT) // (24 * HOUR) - MAX_PERIODS + 1
    kept = {key: used for key, used in integral.items() if key[2] >= oldest}
    assert {key: used for key, used in told.items() if used and key[2] >= oldest} == kept


def _held_for(
    integral: dict[tuple[str, str, int], int],
    running: Mapping[str, tuple[int, str, str]],
    now: float,
    seconds: int,
) -> None:
    """Add what is held for so long to each day, second by second of its borders."""
    since, until = int(now) - MIDNIGHT, int(now) - MIDNIGHT + seconds
    for day in range(since // (24 * HOUR), until // (24 * HOUR) + 1):
        inside = min(until, (day + 1) * 24 * HOUR) - max(since, day * 24 * HOUR)
        for gpus, queue, user in running.values() if inside > 0 else ():
            for key in (("ml", "*"), *((("ml/a", user),) if queue == "ml/a" else ())):
                integral[*key, day] = integral.get((*key, day), 0) + gpus * inside * 1000 * MS
