"""Accounting spans: periods in which one task held the same GPUs, opened, closed and split as that changes.

After each step `keep` compares the open spans with what tasks hold, for all that the step has saved. No place that
changes a task has to open or close spans itself, and the sum of all records is the integral of what was held.
"""

from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.engine.changed import changed
from mesos_gpu.engine.charges import at_cost, granted_milli, parts_of, pool_of_node
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tasks import worked
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.quota import owner_of
from mesos_gpu.model.saves import FoldRecords, ForgetSpan, KeepRecord, SaveJob, SaveQueues, SaveTask
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.usage import DAY_MS, MS, Account, Closed, Part, Span, SpanEnd
from mesos_gpu.policy.accounts.sums import Figures, Row
from mesos_gpu.policy.admission.limits import charge_percent

#: Effects by which spans may change, and records of bookings that budgets pay for.
_SEEN: Final = frozenset({SaveJob, SaveTask, SaveQueues, KeepRecord})


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one task's span during a step.

    A record that belongs to no task, such as one of a booking, has neither an old nor a new span.

    Attributes:
        old: Span that was open before the step; None if there was none.
        new: Span that is open now; None if the task holds no GPUs.
        closed: Record of the part that is over; None if nothing was recorded.
    """

    old: Span | None
    new: Span | None
    closed: Closed | None = None


def keep(turn: Turn) -> list[Change]:
    """Open, close and split spans by what tasks hold after this step; return the changes."""
    if turn.state.ledger.spans_seen and _SEEN.isdisjoint(map(type, turn.effects)):
        return []  # most steps are reports of monitors
    # Records that the effects have already are of bookings, and belong to no task.
    booked = [effect.record for effect in turn.effects if isinstance(effect, KeepRecord)]
    changes = [_update_span(turn, task_id) for task_id in _touched(turn)]
    for job in _ended_pending(turn):
        turn.effects.append(KeepRecord(_record_of_wait(turn, job)))
    return [
        *(Change(None, None, change) for change in booked),
        *(change for change in changes if change is not None),
    ]


def on_tick(turn: Turn) -> None:
    """Fold records that are old enough into daily sums, once a day."""
    day = int((turn.now - turn.settings.memory.keep_spans_s) * MS) // DAY_MS
    if day > turn.state.ledger.folded_day:
        turn.state.ledger.folded_day = day
        turn.effects.append(FoldRecords(day * DAY_MS))


def now_ms(turn: Turn) -> int:
    """Return the time of the step in whole milliseconds since the epoch."""
    return int(turn.now * MS)


def _touched(turn: Turn) -> dict[TaskId, None]:
    """Return the tasks whose spans this step may have changed; all tasks after a start and a change of queues."""
    state = turn.state
    touched: dict[TaskId, None] = {}
    for effect in turn.effects if state.ledger.spans_seen else ():
        if isinstance(effect, SaveTask):
            touched[effect.task.id] = None
        elif isinstance(effect, SaveJob):
            job = effect.job
            if job.spec.gpus and job.task_id is not None:
                for task in state.work.round_of(job):
                    touched[task.id] = None
        elif isinstance(effect, SaveQueues):
            state.ledger.spans_seen = False
    if not state.ledger.spans_seen:
        state.ledger.spans_seen = True
        return dict.fromkeys((*state.ledger.spans, *state.work.live))
    return touched


def _ended_pending(turn: Turn) -> list[Job]:
    """Return the jobs that ask for GPUs and that this step has ended while they waited: no task ended with them."""
    saved = [effect.job for effect in turn.effects if isinstance(effect, SaveJob)]
    ended = {job.id: job for job in saved if job.spec.gpus and job.state.ended and job.ended_at == turn.now}
    if not ended:
        return []
    ran = {effect.task.job_id for effect in turn.effects if isinstance(effect, SaveTask)}
    return [job for job_id, job in ended.items() if job_id not in ran]


def _record_of_wait(turn: Turn, job: Job) -> Closed:
    """Return the record of a job's last wait, which no launch followed.

    Its task id ends in 0; launches count from 1.
    """
    wait_ms, at_ms = _wait_ms(turn.state, job, turn.now), now_ms(turn)
    span = Span(
        TaskId(f"{job.id}.0"),
        job.id,
        owner=owner_of(job),
        queue=job.spec.queue,
        job_class=job.spec.job_class or "",
        app=job.spec.app or "",
        pool="",
        parts=(Part("", 0, 0),),
        borrowed=False,
        charge_percent=charge_percent(turn.state.quota.queues, job.spec.job_class),
        begins_ms=at_ms,
        wait_ms=wait_ms,
        wanted_milli=job.spec.gpu_milli_in_all,
    )
    reason = SpanEnd.KILLED if job.state is JobState.KILLED else SpanEnd.FAILED
    return Closed(span, at_ms, 0, 0, reason)


def _update_span(turn: Turn, task_id: TaskId) -> Change | None:
    """Open, close or split the span of a task; return the change, or None if its span is still right."""
    state, old = turn.state, turn.state.ledger.spans.get(task_id)
    task = state.work.tasks.get(task_id)
    job = state.work.holding_job(task) if task is not None and task.gpus else None
    if task is None or job is None:
        return None if old is None else Change(old, None, _end(turn, old, task))
    new = _span(state, task, job, old)
    if old is None:
        new = _with_wait(turn, changed(new, begins_ms=now_ms(turn)), task, job)
        turn.put(new)
        return Change(None, new)
    if new == old:
        return None
    return _change(turn, old, new)


def _span(state: State, task: Task, job: Job, old: Span | None) -> Span:
    """Return the span of what a task holds now, with the begin and the wait of its open span."""
    document, node = state.quota.queues, state.cluster.nodes.get(task.agent_id)
    parts = parts_of(document, node, task.gpus, job.spec.gpu_model, granted_milli(state, task, job))
    if old is not None and any(not part.model for part in parts) and _milli(parts) == _milli(old.parts):
        parts = at_cost(document, old.parts, job.spec.gpu_model)  # the node no longer reports these GPUs
    return Span(
        task.id,
        job.id,
        owner=owner_of(job),
        queue=job.spec.queue,
        job_class=job.spec.job_class or "",
        app=job.spec.app or "",
        pool=_pool_of(state, task),
        parts=parts,
        borrowed=bool(document.version) and job.seat is None,
        charge_percent=charge_percent(document, job.spec.job_class),
        begins_ms=old.begins_ms if old else 0,
        wait_ms=old.wait_ms if old else 0,
        wanted_milli=old.wanted_milli if old else 0,
    )


def _pool_of(state: State, task: Task) -> str:
    """Return the pool of a task's node; "" if there are no pools or the node is not known."""
    node = state.cluster.nodes.get(task.agent_id)
    if not state.quota.queues.pools or node is None:
        return ""
    return pool_of_node(state.quota.tree, node)


def _milli(parts: tuple[Part, ...]) -> int:
    """Return the sum of GPUs of some parts, in thousandths."""
    return sum(part.gpu_milli for part in parts)


def _with_wait(turn: Turn, new: Span, task: Task, job: Job) -> Span:
    """Return a span with the wait of its job before this launch, which only the first task of a gang counts."""
    if task.rank:
        return new
    wait_ms = _wait_ms(turn.state, job, task.launched_at, task.id)
    return changed(new, wait_ms=wait_ms, wanted_milli=job.spec.gpu_milli_in_all)


def _wait_ms(state: State, job: Job, until: float, but: TaskId | None = None) -> int:
    """Return how long a job waited before a time, in milliseconds.

    The wait begins with the latest of: submission, the earliest start, and the end of another task.

    Args:
        until: End of the wait, in seconds since the epoch.
        but: Task whose end does not count.
    """
    ends = [t.ended_at or 0.0 for t in state.work.tasks_of(job.id) if t.ended and t.id != but]
    return int(max(until - max(job.submitted_at, job.not_before, *ends), 0.0) * MS)


def unmet(state: State, now: float) -> list[Row]:
    """Return the demand of pending jobs for GPUs, as rows of the accounting report."""
    rows: list[Row] = []
    for _, job_id in state.work.queue:
        job = state.work.jobs[job_id]
        spec = job.spec
        if spec.gpus:
            account = Account(owner_of(job), spec.queue, spec.job_class or "", spec.app or "", "", "")
            tasks = 1 if job.array is None else 1 + _unmade_behind(state, job)
            rows.append((account, Figures(unmet=tasks * spec.gpu_milli_in_all * _wait_ms(state, job, now))))
    return rows


def _unmade_behind(state: State, job: Job) -> int:
    """Return how many startable array tasks that are no jobs yet count with a job: all with the first draft, else 0."""
    array = state.work.arrays.get(job.array or JobId(""))
    drafts = state.work.members.drafts.get(job.array or JobId(""), {})
    return (
        state.work.members.startable(array) if array is not None and next(iter(drafts), None) == job.id else 0
    )


def _end(turn: Turn, old: Span, task: Task | None) -> Closed:
    """Close the last span of a task; return its record."""
    ends_ms = max(old.begins_ms, now_ms(turn))
    turn.state.drop(Span, old.task_id)
    turn.effects.append(ForgetSpan(old.task_id))
    job = turn.state.work.jobs.get(old.job_id)
    reason = reason_of(task)
    lost_ms = refunded_ms = 0
    if reason in _LOST:
        saved_ms = int(job.checkpoint_at * MS) if job is not None and job.checkpoint_at is not None else 0
        lost_ms = ends_ms - min(max(old.begins_ms, saved_ms), ends_ms)
        refunded_ms = lost_ms
    elif task is not None and task.ended_at is not None:
        # The scheduler learned late of the end: the time since then was of no use to the job. Whole seconds,
        # as clocks differ.
        late_ms = ends_ms - max(int(task.ended_at * MS), old.begins_ms)
        refunded_ms = max(late_ms, 0) // MS * MS
    work = worked.closing(turn, old, task, goes_on=False)
    record = Closed(old, ends_ms, lost_ms, refunded_ms, reason, work)
    turn.effects.append(KeepRecord(record))
    return record


def _change(turn: Turn, old: Span, new: Span) -> Change:
    """Close a task's open span and open the next one at the same time.

    A span that began at this very moment is replaced instead, without a record.
    """
    at_ms = max(old.begins_ms, now_ms(turn))
    if at_ms == old.begins_ms:  # the old span has no length
        turn.put(new)
        return Change(old, new)
    reason = SpanEnd.RULES
    if _milli(old.parts) != _milli(new.parts):
        reason = SpanEnd.RESIZED
    elif old.borrowed != new.borrowed:
        reason = SpanEnd.SEAT
    work = worked.closing(turn, old, turn.state.work.tasks.get(old.task_id), goes_on=True)
    record = Closed(old, at_ms, 0, 0, reason, work)
    turn.effects.append(KeepRecord(record))
    new = replace(new, begins_ms=at_ms, wait_ms=0, wanted_milli=0)
    turn.put(new)
    return Change(old, new, record)


#: Reasons by which work is lost without a fault of the job's program: budgets do not pay for lost work.
_LOST: Final = (SpanEnd.LOST, SpanEnd.RECLAIM, SpanEnd.PREEMPTION, SpanEnd.DRAIN, SpanEnd.EVICTED)
_ENDS: Final = {
    TaskState.FINISHED: SpanEnd.FINISHED,
    TaskState.FAILED: SpanEnd.FAILED,
    TaskState.KILLED: SpanEnd.KILLED,
}


def reason_of(task: Task | None) -> SpanEnd:
    """Return why a task no longer holds GPUs; "lost" if the task is not known any more."""
    if task is None:
        return SpanEnd.LOST
    if task.notice is not None and task.notice.stands and task.state is not TaskState.FINISHED:
        return SpanEnd(task.notice.reason.value)
    if task.state in _ENDS:
        return _ENDS[task.state]
    if task.preempted_for is not None:
        return SpanEnd.PREEMPTION
    return SpanEnd.EVICTED if task.evicted else SpanEnd.LOST
