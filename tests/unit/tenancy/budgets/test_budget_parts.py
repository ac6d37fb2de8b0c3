"""Periods of budgets as a whole: what is opened, paid, granted, told and forgotten, and what follows at once."""

from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.queue.budgets import book_of
from mesos_gpu.engine.tenancy import budgets, notices
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import NotFound
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.saves import SaveBudgetUse
from mesos_gpu.model.tasks.event import EventKind
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tenancy import EVERYBODY, OnEmpty, Period, QueueDocument, QueueSpec
from mesos_gpu.model.usage import MS, BudgetUse
from mesos_gpu.policy.accounts.budget import MAX_PERIODS
from tests.doubles.builders import World, every
from tests.unit.tenancy.budgets.test_budget import GPU_HOUR, HOUR, MIDNIGHT, budget, goes_on, starts, world

DAY = 24 * HOUR
HOURS = GPU_HOUR * MS  # an hour of a GPU, as uses count it
INDEX = (MIDNIGHT // 86_400) - 4  # days since the first Monday


def use(day: int = 0, user: str = EVERYBODY, queue: str = "ml", **fields: Any) -> BudgetUse:
    begins = (MIDNIGHT + day * DAY) * MS
    return BudgetUse(queue, user, INDEX + day, begins, begins + DAY * MS, "day UTC", **fields)


def uses(made: World) -> list[BudgetUse]:
    return list(made.state.ledger.budget_uses.values())


def look(made: World) -> list[SaveBudgetUse]:
    """A look at all budgets now, and what it saves."""
    turn = Turn(made.state, made.settings, made.now)
    budgets.look(turn, made.state.quota.tree)
    return every(turn.effects, SaveBudgetUse)


def test_period_is_opened_with_the_document_and_pays_what_has_ended() -> None:
    made = world({"ml": QueueSpec(budget=budget(4))})
    assert uses(made) == [use()]
    task = starts(made, "j1")
    goes_on(made, HOUR)
    assert uses(made) == [use()], "what runs is not put down yet"
    made.status(task, "TASK_FINISHED")
    assert uses(made) == [use(used=HOURS)]


def test_periods_pay_their_parts_of_a_record_and_carry_what_is_left_over() -> None:
    made = world({"ml": QueueSpec(budget=budget(30, carry_over_percent=50))})
    task = starts(made, "j1")
    goes_on(made, DAY + HOUR)
    assert uses(made) == [use(), use(1, carried=3 * HOURS)]
    made.status(task, "TASK_FINISHED")
    assert uses(made) == [use(used=24 * HOURS), use(1, used=HOURS, carried=3 * HOURS)]


def test_period_that_is_opened_with_a_record_pays_its_part_of_it() -> None:
    made = world({"ml": QueueSpec(budget=budget(30)), "web": QueueSpec(budget=budget(30))})
    task, other = starts(made, "j1"), starts(made, "j2", queue="web")
    made.now += DAY + HOUR
    made.status(task, "TASK_FINISHED")
    assert uses(made)[:2] == [use(used=24 * HOURS), use(queue="web")]
    assert made.state.ledger.budget_uses["ml", EVERYBODY, INDEX + 1] == use(1, used=HOURS)
    assert made.state.ledger.budget_uses["web", EVERYBODY, INDEX + 1] == use(1, queue="web")
    made.status(other, "TASK_FINISHED")
    assert made.state.ledger.budget_uses["web", EVERYBODY, INDEX + 1] == use(1, queue="web", used=HOURS)


def test_no_more_periods_are_kept_than_may_be() -> None:
    made = world({"ml": QueueSpec(budget=budget(4))})
    for day in range(1, MAX_PERIODS + 2):
        goes_on(made, DAY)
        assert [each.index - INDEX for each in uses(made)] == [*range(max(0, day + 1 - MAX_PERIODS), day + 1)]
    assert [*book_of(made.state).uses["ml", EVERYBODY]] == [each.index for each in uses(made)]


def test_period_with_other_terms_takes_the_place_of_all_before() -> None:
    made = world({"ml": QueueSpec(budget=budget(4))})
    goes_on(made, DAY)
    assert len(uses(made)) == 2
    weekly = QueueDocument(queues={"ml": QueueSpec(budget=budget(4, period=Period.WEEK))})
    made.feed(ev.QueuesChanged(weekly, 1))
    (now,) = uses(made)
    assert (now.terms, now.index) == ("week UTC", INDEX + 2)
    made.feed(ev.QueuesChanged(QueueDocument(queues={"ml": QueueSpec()}), 2))
    assert uses(made) == []
    assert book_of(made.state).uses.get(("ml", EVERYBODY), {}) == {}


def test_periods_of_users_are_forgotten_with_their_budget() -> None:
    spec = QueueSpec(budget=budget(9), user_budgets={"*": budget(2)})
    made = world({"ml": spec})
    starts(made, "j1", user="ann")
    assert uses(made) == [use(), use(user="ann")]
    made.feed(ev.QueuesChanged(QueueDocument(queues={"ml": QueueSpec(budget=budget(9))}), 1))
    assert uses(made) == [use()]


def test_look_that_opens_nothing_saves_nothing_and_asks_for_no_match() -> None:
    made = world({"ml": QueueSpec(budget=budget(4))})
    starts(made, "j1")
    made.state.match.unmatched = False
    meters = book_of(made.state).meters
    assert look(made) == []
    assert (made.state.match.unmatched, book_of(made.state).meters is meters) == (False, True)
    made.now += DAY
    assert [each.use for each in look(made)] == [use(1)]
    assert (made.state.match.unmatched, book_of(made.state).meters is meters) == (True, False)


def test_budget_is_looked_at_next_at_its_threshold_or_the_end_of_its_period() -> None:
    made = world({"ml": QueueSpec(budget=budget(4)), "web": QueueSpec(budget=budget(9))})

    def due() -> float:
        meters = book_of(made.state).meters
        assert meters is not None
        return (meters.due_ms - MIDNIGHT * MS) / (HOUR * MS)

    assert due() == 24.0
    task = starts(made, "j1")
    assert due() == 2.0
    starts(made, "j2", gpus=2)
    assert due() == pytest.approx(2 / 3, abs=1e-6)
    made.status(task, "TASK_FINISHED")
    assert due() == pytest.approx(2 / 3, abs=1e-6), "it may be too early"
    goes_on(made, HOUR)
    assert due() == pytest.approx(1.6)


def test_threshold_is_told_when_it_is_reached_and_taken_back_by_a_grant() -> None:
    made = world({"ml": QueueSpec(budget=budget(4, warn_at=(50,)))})
    starts(made, "j1")
    made.now += 2 * HOUR
    made.state.match.unmatched = False
    assert [each.use for each in look(made)] == [use(told_percent=50)]
    assert made.state.match.unmatched
    (event,) = made.state.work.events
    assert (event.kind, event.budget) == (EventKind.BUDGET, use(told_percent=50))
    made.feed(ev.BudgetGranted("ml", EVERYBODY, 4 * HOURS))
    assert uses(made) == [use(granted=4 * HOURS)]
    assert len(made.state.work.events) == 1
    made.feed(ev.BudgetGranted("ml", EVERYBODY, -1 * HOURS))
    assert uses(made) == [use(granted=3 * HOURS)]


@pytest.mark.parametrize(
    ("queue", "user", "words"),
    [("ml", "eve", None), ("ml", EVERYBODY, None), ("web", EVERYBODY, "queue web has no budget"),
     ("web", "eve", "user eve in queue web has no budget")],
)  # fmt: skip
def test_grant_opens_the_period_of_a_budget_that_is_there(queue: str, user: str, words: str | None) -> None:
    made = world({"ml": QueueSpec(budget=budget(9), user_budgets={"*": budget(2)}), "web": QueueSpec()})
    made.state.match.unmatched = False
    event = ev.BudgetGranted(queue, user, 5)
    turn = Turn(made.state, made.settings, made.now)
    if words is not None:
        with pytest.raises(NotFound, match=words):
            budgets.on_granted(turn, event)
        return
    budgets.on_granted(turn, event)
    assert made.state.ledger.budget_uses[queue, user, INDEX] == use(user=user, granted=5)
    assert made.state.match.unmatched
    with pytest.raises(NotFound):
        budgets.on_granted(Turn(World().state, made.settings, made.now), event)


def test_empty_budget_ends_all_that_pay_from_it_once() -> None:
    stop = QueueSpec(budget=budget(1, on_empty=OnEmpty.STOP), notice_s=60.0)
    made = world({"ml": stop, "ml/a": QueueSpec(), "web": QueueSpec(notice_s=60.0)})
    below = starts(made, "j1", queue="ml/a")
    other = starts(made, "j3", queue="web")
    made.now += HOUR
    made.feed(ev.Tick())
    notice = made.state.work.tasks[TaskId(below)].notice
    assert notice is not None
    assert (notice.reason, notice.number) == (NoticeReason.BUDGET, 1)
    assert made.state.work.tasks[TaskId(other)].notice is None
    look(made)
    assert made.state.work.tasks[TaskId(below)].notice == notice
    made.now += 1
    made.feed(ev.BudgetGranted("ml", EVERYBODY, HOURS))
    made.feed(ev.Tick())
    recalled = made.state.work.tasks[TaskId(below)].notice
    assert recalled == replace(notice, number=2, recalled_at=made.now)
    assert made.job("j1").message == "it goes on: no budget that it pays from is empty any more"


@pytest.mark.parametrize("reason", [NoticeReason.DRAIN, NoticeReason.CALENDAR])
def test_notice_for_another_reason_is_not_called_off_by_a_budget(reason: NoticeReason) -> None:
    made = world({"ml": QueueSpec(budget=budget(9, on_empty=OnEmpty.STOP))})
    task = starts(made, "j1", notice_s=600.0)
    turn = Turn(made.state, made.settings, made.now)
    notices.give(turn, made.job("j1"), reason, "it must", notice_s=600.0)
    budgets.on_tick(Turn(made.state, made.settings, made.now + 5))
    notice = made.state.work.tasks[TaskId(task)].notice
    assert notice is not None
    assert notice.stands


def test_budget_that_nobody_has_is_not_looked_at() -> None:
    made = world({"ml": QueueSpec()})
    starts(made, "j1")
    made.state.match.unmatched = False
    made.now += DAY
    budgets.on_tick(Turn(made.state, made.settings, made.now))
    assert (uses(made), made.state.match.unmatched) == ([], False)
