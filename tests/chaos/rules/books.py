"""Rules of records of use and of budgets: both must equal the use that is added up here.

Use is added up launch by launch from the data that is saved after each batch. Amounts are whole thousandths of cost
times milliseconds, as in the records.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from mesos_gpu.engine import effects as fx
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.job import JobState
from mesos_gpu.model.saves import ForgetBudgetUse, KeepRecord, SaveBudgetUse, SaveJob, SaveQueues, SaveTask
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import EVERYBODY, OnEmpty
from mesos_gpu.model.usage import MS, BudgetUse, Closed, Span
from tests.chaos.account import Account, launch_of
from tests.chaos.rules import tree
from tests.chaos.violation import Violation

_NEWS = (SaveTask, SaveJob, SaveQueues, KeepRecord)
Amounts = tuple[int, int, int]  # thousandths of GPUs, of cost, and of what budgets pay


@dataclass(frozen=True, slots=True)
class Holding:
    """Amounts that a launch holds since a time."""

    whose: tuple[str, str, str]  # owner, queue, class
    amounts: Amounts
    begins_ms: int
    models: frozenset[str] = field(
        default=frozenset(), compare=False
    )  # models of its cards, as last reported

    def until(self, now_ms: int) -> Counter[int]:
        """Return amounts times milliseconds until a time; never negative if the clock was set back."""
        lasts = max(0, now_ms - self.begins_ms)
        return Counter({i: each * lasts for i, each in enumerate(self.amounts)})


@dataclass(slots=True)
class Books:
    """Use of all launches so far."""

    holds: dict[TaskId, Holding] = field(default_factory=dict)
    held: dict[TaskId, Counter[int]] = field(
        default_factory=dict
    )  # use by launch, without the present holding
    slack: dict[TaskId, Counter[int]] = field(
        default_factory=dict
    )  # use counted twice because the clock was set back
    latest_ms: int = 0
    recorded: dict[TaskId, Counter[int]] = field(default_factory=dict)  # use in written records, by launch
    written: dict[tuple[TaskId, int], int] = field(
        default_factory=dict
    )  # serial number of a record, by task and begin
    before: dict[tuple[str, str], int] = field(
        default_factory=dict
    )  # number of records at the begin of a budget, by budget
    periods: dict[tuple[str, str, str], list[BudgetUse]] = field(
        default_factory=dict
    )  # periods by budget and terms


def follow(account: Account, books: Books, effects: Iterable[fx.Effect], now: float) -> None:
    """Take over the saves of a batch, and check the records of changed launches.

    Raises:
        Violation: Records differ from the use.
    """
    now_ms, news = int(now * MS), False
    _set_back(books, now_ms)
    for effect in effects:
        news = news or isinstance(effect, _NEWS)
        if isinstance(effect, KeepRecord):
            _record(books, effect.record)
        elif isinstance(effect, SaveBudgetUse):
            _open(books, effect.use)
        elif isinstance(effect, ForgetBudgetUse):
            _drop(books, effect)
    if news:
        _change(account, books, now_ms)


def _set_back(books: Books, now_ms: int) -> None:
    """Note that use in a time that comes again may be in records already."""
    back_ms, books.latest_ms = max(0, books.latest_ms - now_ms), now_ms
    for task_id, holding in books.holds.items() if back_ms else ():
        amounts = {i: each * back_ms for i, each in enumerate(holding.amounts)}
        books.slack.setdefault(task_id, Counter()).update(amounts)


def _record(books: Books, record: Closed) -> None:
    span, lasts = record.span, record.ends_ms - record.span.begins_ms
    books.written.setdefault((span.task_id, span.begins_ms), len(books.written))
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
            if new is not None:
                books.holds[task_id] = new
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
            books.slack.pop(task_id, None)
    if books.holds.keys() != account.disk.spans.keys():
        words = f"{sorted(books.holds)} hold GPUs, spans are open of {sorted(account.disk.spans)}"
        raise Violation("records are the integral of what is held", words)


def _holding(account: Account, task: Task | None, old: Holding | None, now_ms: int) -> Holding | None:
    """Return what a task holds now, or None if it holds nothing."""
    job = account.disk.jobs.get(task.job_id) if task is not None and task.job_id is not None else None
    if task is None or job is None or job.state is JobState.PENDING:
        return None
    if launch_of(account.latest(job.id)[-1]) != launch_of(task.id):
        return None  # the launch was given up
    share = task.counted_share
    asked = job.spec.counted_milli  # a requested larger size counts at once, as for limits
    gpus = len(task.gpus) * WHOLE if share is None else max(asked, len(task.gpus) * share.compute_milli)
    document, node = account.queues, account.disk.nodes.get(task.agent_id)
    models = (
        frozenset(gpu.model for gpu in node.gpus if gpu.id in task.gpus) if node is not None else frozenset()
    )
    if not models and old is not None:
        models = old.models  # its host no longer reports them; costs follow the document
    cost = gpus * max((document.gpu_cost.get(model, 1) for model in models), default=1)
    name = job.spec.job_class or ""
    percent = next((each.charge_percent for each in document.classes if each.name == name), 100)
    owner = job.owner or (f"{job.spec.user}?" if job.spec.user else "")
    whose = owner, job.spec.queue, name
    amounts = gpus, cost, cost * percent // 100
    if old is not None and (old.whose, old.amounts) == (whose, amounts):
        return old if old.models == models else replace(old, models=models)
    return Holding(whose, amounts, now_ms if old is None else max(now_ms, old.begins_ms), models)


def _agrees(account: Account, books: Books, task_id: TaskId, now_ms: int) -> None:
    """Check records and open span of a launch up to now."""
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
    slack = books.slack.get(task_id, Counter())
    if any(abs(recorded[i] - held[i]) > slack[i] for i in {*held, *recorded}):
        words = f"{task_id} has held {dict(held)}, and on record are {dict(recorded)}"
        raise Violation("records are the integral of what is held", words, task_id)


# --- budgets


def _open(books: Books, use: BudgetUse) -> None:
    """Check that a period is not opened twice and does not overlap with another one."""
    known = books.periods.setdefault((use.queue, use.user, use.terms), [])
    for i, other in enumerate(known):
        if (other.index, other.begins_ms) == (use.index, use.begins_ms):
            known[i] = use  # its paid amount has changed
            return
    for other in known:
        if other.ends_ms > use.begins_ms or other.index >= use.index:
            words = f"{use.queue} {use.user}: {use} after {other}"
            raise Violation("no period of a budget is opened twice", words, use.queue)
    if not known:  # earlier records do not count, at any time of the clock
        books.before[use.queue, use.user] = len(books.written)
    known.append(use)


def affordable(account: Account, launched: set[JobId], now: float) -> None:
    """Check that no job was started that an empty budget must hold back.

    Raises:
        Violation: Such a job was started.
    """
    now_ms = int(now * MS)
    for job_id in launched if account.disk.budget_uses else ():
        job = account.disk.jobs[job_id]
        if not job.spec.gpu_milli_in_all:
            continue
        for key, budget in tree.budgets_by_key(account.queues, job).items():
            periods = [use for use in account.disk.budget_uses.values() if (use.queue, use.user) == key]
            use = max(periods, key=lambda each: each.index, default=None)
            if use is None or budget.on_empty not in (OnEmpty.NO_START, OnEmpty.STOP):
                continue
            used = use.used + sum(_of_span(span, use, now_ms) for span in account.disk.spans.values())
            total = budget.milli_s * MS + use.carried + use.granted
            if used >= total:
                words = f"{job_id} of {job.spec.queue} is, {used} of {total} are used by {key} in {use}"
                raise Violation("nothing starts on an empty budget", words, job_id)


def _of_span(span: Span, use: BudgetUse, now_ms: int) -> int:
    """Return the charge of an open span to a period up to now."""
    if not (f"{span.queue}/".startswith(f"{use.queue}/") and use.user in (EVERYBODY, span.owner.rstrip("?"))):
        return 0
    lasts = min(now_ms, use.ends_ms) - max(span.begins_ms, use.begins_ms)
    return span.charged_milli * max(0, lasts)


def _drop(books: Books, gone: ForgetBudgetUse) -> None:
    """Forget a period of a budget that was removed."""
    for (queue, user, _), known in books.periods.items():
        if (queue, user) == (gone.queue, gone.user):
            known[:] = [use for use in known if use.index != gone.index]


def paid(account: Account, books: Books) -> None:
    """Check that the paid amount of each period equals the charges of records without refunds.

    Raises:
        Violation: The amounts differ.
    """
    if not account.disk.budget_uses:
        return
    sums: Counter[tuple[str, str, int]] = Counter()
    for record in account.disk.kept.values():
        number = books.written[record.span.task_id, record.span.begins_ms]
        until_ms = record.ends_ms - record.refunded_ms
        for use in _payers(account, record):
            if number < books.before.get((use.queue, use.user), 0):
                continue
            lasts = min(until_ms, use.ends_ms) - max(record.span.begins_ms, use.begins_ms)
            sums[use.queue, use.user, use.index] += record.span.charged_milli * max(0, lasts)
    for key, use in account.disk.budget_uses.items():
        if use.used != sums[key]:
            words = (
                f"period {use.index} of {use.queue} {use.user} has paid {use.used}, and used were {sums[key]}"
            )
            raise Violation("budgets pay what was used", words, use.queue)


def _payers(account: Account, record: Closed) -> Iterable[BudgetUse]:
    """Yield the periods that pay for a record: of its queue and all queues above, of all users and of its user."""
    queue, user = record.span.queue, record.span.owner.removesuffix("?")
    for use in account.disk.budget_uses.values():
        if f"{queue}/".startswith(f"{use.queue}/") and use.user in (EVERYBODY, user):
            yield use
