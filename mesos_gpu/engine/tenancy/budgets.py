"""Budgets over time: their periods, their thresholds, and the notice to jobs that pay from an empty one."""

from collections.abc import Sequence
from dataclasses import replace

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.queue.budgets import (
    book_of,
    count,
    latest_of,
    meters_of,
    paying,
    standing_of,
    stops,
    used_in,
    uses_of,
    words_of,
)
from mesos_gpu.engine.tasks.notices import reached
from mesos_gpu.engine.tenancy import notices
from mesos_gpu.engine.tenancy.accounts import Change, now_ms
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import NotFound
from mesos_gpu.model.saves import SaveQueues
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tenancy import Budget
from mesos_gpu.model.usage import NEVER_MS, BudgetUse, Closed, Span
from mesos_gpu.policy.accounts.budget import (
    MAX_PERIODS,
    Key,
    Standing,
    budgets_of,
    charge_of,
    opened,
    paid_by,
    total_of,
    user_of,
)
from mesos_gpu.policy.tenancy.tree import Tree


def keep(turn: Turn, changes: Sequence[Change]) -> None:
    """Charge budgets for the spans that the step has opened and closed, and look at them if it is time."""
    tree = turn.state.quota.tree
    if tree.is_flat:
        return
    changed = any(isinstance(effect, SaveQueues) for effect in turn.effects)
    if changed:
        book_of(turn.state).meters = None
    if not tree.has_budgets:
        if changed:
            _drop_gone(turn, {})
        return
    records = [change.closed for change in changes if change.closed is not None]
    for record in records:
        _charge(turn, tree, record)
    book = book_of(turn.state)
    # Records without a span were never counted by a meter.
    at_once = any(change.old is None and change.closed is not None for change in changes)
    if book.meters is not None and (at_once or book.meters.due_ms <= now_ms(turn)):
        book.meters = None
    if book.meters is None:
        look(turn, tree, records)
    else:
        _count(turn, tree, changes)


def _count(turn: Turn, tree: Tree, changes: Sequence[Change]) -> None:
    """Update the rate at which budgets are used, and look at the budgets if a threshold has been reached by now."""
    meters, touched = meters_of(turn.state, tree), dict[Key, Budget]()
    for change in changes:
        for span, sign in ((change.old, -1), (change.new, 1)):
            for key, budget in paid_by(tree, span.queue, user_of(span)) if span is not None else ():
                touched[key] = budget
                assert span is not None, "only a span has budgets"
                count(turn.state, meters, key, span.charged_milli, span.begins_ms, sign)
    for key, budget in touched.items():
        standing = standing_of(turn.state, tree, key, budget, now_ms(turn))
        meters.due_ms = 0 if standing is None else min(meters.due_ms, standing.next_ms())
    if meters.due_ms <= now_ms(turn):
        look(turn, tree)


def on_tick(turn: Turn) -> None:
    """Look at the budgets once the first of them is due to reach a threshold or the end of its period."""
    tree = turn.state.quota.tree
    if tree.has_budgets and (
        book_of(turn.state).meters is None or now_ms(turn) >= meters_of(turn.state, tree).due_ms
    ):
        look(turn, tree)
    _call_off(turn)


def _call_off(turn: Turn) -> None:
    """Recall notices of jobs whose budgets are no longer empty, or no longer end jobs."""
    state, tree = turn.state, turn.state.quota.tree
    for task_id in state.work.restless.in_order(state.work.restless.tasks):
        notice, span = state.work.tasks[task_id].notice, state.ledger.spans.get(task_id)
        if notice is None or notice.reason is not NoticeReason.BUDGET or not notice.stands or span is None:
            continue
        paying_now = paid_by(tree, span.queue, user_of(span))
        standings = (standing_of(state, tree, *payer, now_ms(turn)) for payer in paying_now)
        if not any(standing is not None and stops(standing) for standing in standings):
            job = state.work.jobs[span.job_id]
            notices.recall(
                turn, job, "no budget that it pays from is empty any more", of=(NoticeReason.BUDGET,)
            )


def look(turn: Turn, tree: Tree, records: Sequence[Closed] = ()) -> None:
    """Open the periods that have begun, report thresholds that were reached, and compute when to look again.

    Args:
        tree: Tree of the queues.
        records: Spans that ended in this step; the part after the end of a period is paid by the next period.
    """
    keys = dict(budgets_of(tree))
    for span in turn.state.ledger.spans.values():
        keys |= dict(paid_by(tree, span.queue, user_of(span)))
    for queue, user, _ in list(turn.state.ledger.budget_uses):
        if (queue, user) not in keys:
            keys |= {key: budget for key, budget in paid_by(tree, queue, user) if key == (queue, user)}
    begun = [_open(turn, tree, key, budget, records) for key, budget in keys.items()]
    if any(begun):
        book_of(turn.state).meters = None  # spans that began before the period count from its begin
        turn.state.match.unmatched = True
    _drop_gone(turn, keys)
    meters = meters_of(turn.state, tree)
    due_ms = NEVER_MS
    for key, budget in keys.items():
        standing = standing_of(turn.state, tree, key, budget, now_ms(turn))
        assert standing is not None, f"the period of {key} was opened"
        _report_threshold(turn, standing)
        due_ms = min(due_ms, standing.next_ms())
        if stops(standing):
            _stop(turn, tree, key, standing)
    meters.due_ms = due_ms


def on_granted(turn: Turn, event: ev.BudgetGranted) -> None:
    """Add an amount to a budget in its current period, or subtract it.

    Raises:
        NotFound: No queue or user has such a budget.
    """
    tree = turn.state.quota.tree
    key = event.queue, event.user
    if key not in {**budgets_of(tree), **dict(paid_by(tree, event.queue, event.user))}:
        whose = f"user {event.user} in queue {event.queue}" if event.user != "*" else f"queue {event.queue}"
        raise NotFound(f"{whose} has no budget", remedy="list the budgets with: mesos-gpu budget list")
    look(turn, tree)
    use = latest_of(turn.state, key)
    if use is None:  # the user has not paid from it yet
        _open(turn, tree, key, dict(paid_by(tree, event.queue, event.user))[key])
        use = latest_of(turn.state, key)
    assert use is not None, "the period was just opened"
    _put(turn, replace(use, granted=use.granted + event.amount))
    turn.state.match.unmatched = True
    look(turn, tree)


def _put(turn: Turn, use: BudgetUse) -> None:
    """Save the use of a budget's period."""
    turn.put(use)
    book_of(turn.state).uses.setdefault((use.queue, use.user), {})[use.index] = use


def _drop(turn: Turn, use: BudgetUse) -> None:
    """Remove the use of a budget's period."""
    turn.drop(BudgetUse, use.queue, use.user, use.index)
    del book_of(turn.state).uses[use.queue, use.user][use.index]


def _charge(turn: Turn, tree: Tree, record: Closed) -> None:
    """Charge each period for its part of a record."""
    for key, _ in paid_by(tree, record.span.queue, user_of(record.span)):
        for use in uses_of(turn.state, key):
            if amount := charge_of(record, use):
                _put(turn, replace(use, used=use.used + amount))


def _open(turn: Turn, tree: Tree, key: Key, budget: Budget, records: Sequence[Closed] = ()) -> bool:
    """Open the periods of a budget that have begun since the latest known one; return whether any has."""
    last = latest_of(turn.state, key)
    spans = paying(turn.state, tree, key) if last is not None and last.ends_ms <= now_ms(turn) else []
    begun = False
    while (new := opened(key, budget, last, _left_of(budget, last, spans), now_ms(turn))) is not None:
        if last is not None and last.terms != new.terms:
            for use in uses_of(turn.state, key):
                _drop(turn, use)
        own = (r for r in records if key in dict(paid_by(tree, r.span.queue, user_of(r.span))))
        last, begun = replace(new, used=sum(charge_of(record, new) for record in own)), True
        _put(turn, last)
    for use in uses_of(turn.state, key)[:-MAX_PERIODS]:
        _drop(turn, use)
    return begun


def _left_of(budget: Budget, use: BudgetUse | None, spans: Sequence[Span]) -> int:
    """Return the unused amount of a period at its end; 0 without a period."""
    return total_of(budget, use) - use.used - used_in(use, spans, use.ends_ms) if use is not None else 0


def _drop_gone(turn: Turn, keys: dict[Key, Budget]) -> None:
    """Remove the periods of budgets that no longer exist."""
    for use in list(turn.state.ledger.budget_uses.values()):
        if (use.queue, use.user) not in keys:
            _drop(turn, use)


def _report_threshold(turn: Turn, standing: Standing) -> None:
    """Record a change of the reached threshold, and report a threshold once it is reached, again after a grant."""
    percent = standing.reached()
    if percent != standing.use.told_percent:
        use = replace(standing.use, told_percent=percent)
        _put(turn, use)
        turn.state.match.unmatched = True
        if percent > standing.use.told_percent:
            reached(turn, use)


def _stop(turn: Turn, tree: Tree, key: Key, standing: Standing) -> None:
    """Give notice to all jobs that pay from an empty budget and have none yet."""
    for job_id in dict.fromkeys(span.job_id for span in paying(turn.state, tree, key)):
        job = turn.state.work.jobs[job_id]
        if notices.stands(turn.state, job) is None:
            notices.give(turn, job, NoticeReason.BUDGET, words_of(standing))
