"""What is on record of use, and what budgets have paid, beside what was truly held while time passed.

What is held is added up here by brute force, launch by launch, from what is on disk after each batch. Amounts are whole
thousandths of cost times milliseconds, as in the records.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from mesos_gpu.engine import effects as fx
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.saves import KeepRecord, SaveBudgetUse, SaveJob, SaveQueues, SaveTask
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import EVERYBODY
from mesos_gpu.model.usage import MS, BudgetUse, Closed
from mesos_gpu.simulate.chaos.account import Account, launch_of
from mesos_gpu.simulate.chaos.violation import Violation

_NEWS = (SaveTask, SaveJob, SaveQueues, KeepRecord)
Amounts = tuple[int, int, int]  # thousandths of GPUs, of cost, and of what budgets pay


@dataclass(frozen=True, slots=True)
class Holding:
    """What a launch holds since a moment."""

    whose: tuple[str, str, str]  # owner, queue, class
    amounts: Amounts
    begins_ms: int

    def until(self, now_ms: int) -> Counter[int]:
        """What that is up to a moment; a clock that was set back takes nothing away."""
        lasts = max(0, now_ms - self.begins_ms)
        return Counter({i: each * lasts for i, each in enumerate(self.amounts)})


@dataclass(slots=True)
class Books:
    """What was held so far."""

    holds: dict[TaskId, Holding] = field(default_factory=dict)
    held: dict[TaskId, Counter[int]] = field(default_factory=dict)  # by launch, before what it holds now
    recorded: dict[TaskId, Counter[int]] = field(default_factory=dict)  # by the records that are written
    periods: dict[tuple[str, str, str], list[BudgetUse]] = field(default_factory=dict)  # by budget and terms


def follow(account: Account, books: Books, effects: Iterable[fx.Effect], now: float) -> None:
    """Take in what a batch has saved, and check the records of what it has changed.

    Raises:
        Violation: They are not what was held.
    """
    now_ms, news = int(now * MS), False
    for effect in effects:
        news = news or isinstance(effect, _NEWS)
        if isinstance(effect, KeepRecord):
            _record(books, effect.record)
        elif isinstance(effect, SaveBudgetUse):
            _open(books, effect.use)
        elif isinstance(effect, SaveQueues):
            books.periods.clear()  # a budget that was away begins anew
    if news:
        _change(account, books, now_ms)


def _record(books: Books, record: Closed) -> None:
    span, lasts = record.span, record.ends_ms - record.span.begins_ms
    gpus = sum(part.gpu_milli for part in span.parts)
    amounts = gpus, span.cost_milli, span.charged_milli
    sums = books.recorded.setdefault(span.task_id, Counter())
    sums.update({i: each * lasts for i, each in enumerate(amounts)})


def _change(account: Account, books: Books, now_ms: int) -> None:
    live = {task.id: task for task in account.disk.tasks.values() if task.gpus and not task.ended}
    for task_id in {**books.holds, **live}:
        old = books.holds.get(task_id)
        new = _holding(account, live.get(task_id), old, now_ms)
        if old == new:
            continue
        if old is not None:
            books.held.setdefault(task_id, Counter()).update(old.until(now_ms))
            del books.holds[task_id]
        if new is not None:
            books.holds[task_id] = new
        _agrees(account, books, task_id, now_ms)
        if new is None:
            books.held.pop(task_id, None)
            books.recorded.pop(task_id, None)
    if books.holds.keys() != account.disk.spans.keys():
        words = f"{sorted(books.holds)} hold GPUs, spans are open of {sorted(account.disk.spans)}"
        raise Violation("records are the integral of what is held", words)


def _holding(account: Account, task: Task | None, old: Holding | None, now_ms: int) -> Holding | None:
    """What a task holds now; None: nothing."""
    job = account.disk.jobs.get(task.job_id) if task is not None and task.job_id is not None else None
    if task is None or job is None or job.state is JobState.PENDING:
        return None
    if launch_of(account.latest(job.id)[-1]) != launch_of(task.id):
        return None  # it was given up
    share = task.counted_share
    asked = job.spec.counted_milli  # what it may grow to counts at once, as in limits
    gpus = len(task.gpus) * WHOLE if share is None else max(asked, len(task.gpus) * share.compute_milli)
    document, node = account.queues, account.disk.nodes.get(task.agent_id)
    models = {gpu.model for gpu in node.gpus if gpu.id in task.gpus} if node is not None else set()
    if not models and old is not None and old.amounts[0] == gpus:
        cost = old.amounts[1]
    else:
        cost = gpus * max((document.gpu_cost.get(model, 1) for model in models), default=1)
    name = job.spec.job_class or ""
    percent = next((each.charge_percent for each in document.classes if each.name == name), 100)
    owner = job.owner or (f"{job.spec.user}?" if job.spec.user else "")
    whose = owner, job.spec.queue, name
    amounts = gpus, cost, cost * percent // 100
    if old is not None and (old.whose, old.amounts) == (whose, amounts):
        return old
    return Holding(whose, amounts, now_ms)


def _agrees(account: Account, books: Books, task_id: TaskId, now_ms: int) -> None:
    """Check what is on record of a launch, up to now."""
    held, recorded = (Counter(each.get(task_id, Counter())) for each in (books.held, books.recorded))
    if task_id in books.holds:
        held.update(books.holds[task_id].until(now_ms))
    span = account.disk.spans.get(task_id)
    if span is not None:
        gpus = sum(part.gpu_milli for part in span.parts)
        lasts = max(0, now_ms - span.begins_ms)
        amounts = gpus, span.cost_milli, span.charged_milli
        recorded.update({i: each * lasts for i, each in enumerate(amounts)})
        holding = books.holds.get(task_id)
        if holding is None or (amounts, (span.owner, span.queue, span.job_class)) != (
            holding.amounts,
            holding.whose,
        ):
            words = f"{task_id} holds {holding}, and its span says {span}"
            raise Violation("records are the integral of what is held", words, task_id)
    if held != recorded:
        words = f"{task_id} has held {dict(held)}, and on record are {dict(recorded)}"
        raise Violation("records are the integral of what is held", words, task_id)


# --- budgets


def _open(books: Books, use: BudgetUse) -> None:
    """Check that a period is not opened that is over, or still there."""
    known = books.periods.setdefault((use.queue, use.user, use.terms), [])
    if known and known[-1].index == use.index:
        known[-1] = use
        return
    for other in known:
        if other.ends_ms > use.begins_ms or other.index >= use.index:
            words = f"{use.queue} {use.user}: {use} after {other}"
            raise Violation("no period of a budget is opened twice", words, use.queue)
    known.append(use)


def paid(account: Account) -> None:
    """Check of each period that what it has paid is what is on record, refunds taken off.

    Raises:
        Violation: It is not.
    """
    if not account.disk.budget_uses:
        return
    sums: Counter[tuple[str, str, int]] = Counter()
    for record in account.disk.kept.values():
        until_ms = record.ends_ms - record.refunded_ms
        for use in _payers(account, record):
            lasts = min(until_ms, use.ends_ms) - max(record.span.begins_ms, use.begins_ms)
            sums[use.queue, use.user, use.index] += record.span.charged_milli * max(0, lasts)
    for key, use in account.disk.budget_uses.items():
        if use.used != sums[key]:
            words = (
                f"period {use.index} of {use.queue} {use.user} has paid {use.used}, and used were {sums[key]}"
            )
            raise Violation("budgets pay what was used", words, use.queue)


def _payers(account: Account, record: Closed) -> Iterable[BudgetUse]:
    """The periods that pay for a record: of its queue and those above it, of all and of its user."""
    queue, user = record.span.queue, record.span.owner.removesuffix("?")
    for use in account.disk.budget_uses.values():
        if f"{queue}/".startswith(f"{use.queue}/") and use.user in (EVERYBODY, user):
            yield use
