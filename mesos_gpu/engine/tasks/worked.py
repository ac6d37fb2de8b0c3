"""GPU work of tasks for accounting records, added up from the counters of monitors.

The counters of a monitor grow until it starts again, and the latest ones are saved with their node. So a sum need not
be saved with each report: what is missing in it follows from the counters.
"""

from collections.abc import Mapping
from typing import Final

from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu_use import Span as Amounts
from mesos_gpu.model.nodes.gpu_use import TaskUse, Work, between
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.usage import DAY_MS, MS, CardCount, MeasuredWork, Span, SpanWork

_FOLD_MS: Final = 60_000  # longest time between saves of a sum
_CLOCKS_S: Final = 1.0  # tolerance for clocks in the age of a counter
Uses = Mapping[GpuId, TaskUse]


def on_report(turn: Turn, before: Node, now: Node) -> None:
    """Add the work in a report to the tasks of its node.

    Args:
        before: Node with the report before.
        now: Node with the new report.
    """
    old, new = _by_task(before), _by_task(now)
    for task_id in dict.fromkeys((*old, *new)):
        task, span = turn.state.work.tasks.get(task_id), turn.state.ledger.spans.get(task_id)
        if task is not None and span is not None and task.agent_id == now.id:
            _take_in(turn, before, span, task, old.get(task_id, {}), new.get(task_id, {}))


def closing(turn: Turn, span: Span, task: Task | None, *, goes_on: bool) -> tuple[MeasuredWork, ...]:
    """Return the GPU work of a span that ends; if its task goes on in another span, that begins at zero."""
    state = turn.state
    total = state.ledger.span_works.get(span.task_id)
    node = state.cluster.nodes.get(task.agent_id) if task is not None else None
    uses = _by_task(node).get(span.task_id, {}) if node is not None else {}
    if task is not None and node is not None and uses:
        total = _Sum(turn, total, span, task, node).added(uses, {}, 0)
    if total is None:
        return ()
    if goes_on:
        turn.put(SpanWork(total.task_id, total.folded_ms, total.cards))
    elif span.task_id in state.ledger.span_works:
        turn.drop(SpanWork, span.task_id)
    return total.did


def _by_task(node: Node) -> dict[TaskId, dict[GpuId, TaskUse]]:
    """Return the counters in a node's latest report by task and GPU."""
    by_task: dict[TaskId, dict[GpuId, TaskUse]] = {}
    for use in node.inventory.task_uses if node.inventory else ():
        by_task.setdefault(use.task_id, {})[use.gpu_id] = use
    return by_task


def _take_in(turn: Turn, before: Node, span: Span, task: Task, old: Uses, new: Uses) -> None:
    """Save the GPU work of a span with a report if it is time, or if the report shows a change that could be lost."""
    kept, waiting_milli = turn.state.ledger.span_works.get(task.id), 0
    if any(_was_idle(old.get(gpu_id), use) for gpu_id, use in new.items()):
        waiting_milli = _waiting_milli(turn)
    now_ms = int(turn.now * MS)
    is_due = (
        kept is None
        or waiting_milli > 0
        or now_ms - kept.folded_ms >= _FOLD_MS
        or now_ms // DAY_MS != kept.folded_ms // DAY_MS
        or any(_has_ended(use, new.get(gpu_id)) for gpu_id, use in old.items())
    )
    if is_due and any(use.work is not None for use in (*old.values(), *new.values())):
        folded = _Sum(turn, kept, span, task, before).added(old, new, waiting_milli)
        if folded != kept:
            turn.put(folded)


def _was_idle(old: TaskUse | None, new: TaskUse) -> bool:
    """Return whether the GPU was partly idle since the report before."""
    if new.work is None:
        return False
    amounts = _counted(old.work if old else None, new.work)
    return amounts.seen_ms > amounts.busy_ms


def _has_ended(old: TaskUse, new: TaskUse | None) -> bool:
    """Return whether a counter has ended, so that only the report before still has it."""
    if old.work is None:
        return False
    return new is None or new.work is None or new.work.since != old.work.since


def _waiting_milli(turn: Turn) -> int:
    """Return the GPUs that jobs wait for, in thousandths."""
    return sum(gpus for gpus, _, _ in turn.state.books.wanted.values())


class _Sum:
    """Sum of the GPU work of one span, to which counters are added.

    Args:
        kept: Sum so far; None before the first count.
        span: Open span of the task.
        task: Task of the span.
        before: Node of the task with the report before this step's.
    """

    def __init__(self, turn: Turn, kept: SpanWork | None, span: Span, task: Task, before: Node) -> None:
        self._turn, self._span, self._task = turn, span, task
        self._cards = {card.gpu_id: card.work for card in kept.cards} if kept else {}
        self._did = {(amount.day, amount.model): amount for amount in kept.did} if kept else {}
        self._models = {gpu.id: gpu.model for gpu in before.gpus}
        before_ms = int((before.reported_at or turn.now) * MS)
        self._day = max(before_ms, span.begins_ms) // DAY_MS

    def added(self, old: Uses, new: Uses, waiting_milli: int) -> SpanWork:
        """Add the counters of the report before and of the new one; return the sum.

        Args:
            old: Counters of the task in the report before, by GPU.
            new: Counters of the task in the new report.
            waiting_milli: GPUs that jobs waited for meanwhile, in thousandths.
        """
        for uses, waiting in ((old, 0), (new, waiting_milli)):
            for gpu_id, use in uses.items():
                if gpu_id in self._task.gpus and use.work is not None:
                    self._add(gpu_id, use, use.work, waiting)
        cards = tuple(CardCount(gpu_id, work) for gpu_id, work in sorted(self._cards.items()))
        did = tuple(each for _, each in sorted(self._did.items()))
        return SpanWork(self._task.id, int(self._turn.now * MS), cards, did)

    def _add(self, gpu_id: GpuId, use: TaskUse, work: Work, waiting_milli: int) -> None:
        """Add the work between the last counters of a GPU and new ones to the sum of the day."""
        previous, self._cards[gpu_id] = self._cards.get(gpu_id), work
        if previous is None and use.at - work.since > self._age_s + _CLOCKS_S:
            return  # the counter began before the span, so its part in the span is unknown
        amounts, (model, milli) = _counted(previous, work), self._part_of(gpu_id)
        if not amounts.seen_ms or not milli:
            return
        key = self._day, model
        each, idle_ms = self._did.get(key, MeasuredWork(*key)), amounts.seen_ms - amounts.busy_ms
        self._did[key] = MeasuredWork(
            *key,
            busy=each.busy + milli * amounts.busy_ms,
            idle=each.idle + milli * idle_ms,
            wanted=each.wanted + min(milli, waiting_milli) * idle_ms,
        )

    @property
    def _age_s(self) -> float:
        """Seconds since the begin of the span."""
        return self._turn.now - self._span.begins_ms / MS

    def _part_of(self, gpu_id: GpuId) -> tuple[str, int]:
        """Return the model that the span has for a GPU, and the thousandths of this GPU that the task has."""
        parts = {part.model: part.gpu_milli for part in self._span.parts}
        if len(parts) == 1:
            ((model, milli),) = parts.items()
            return model, milli // len(self._task.gpus)
        model = self._models.get(gpu_id, "")
        count = sum(self._models.get(gpu, "") == model for gpu in self._task.gpus)
        return model, parts.get(model, 0) // max(count, 1)


def _counted(before: Work | None, now: Work) -> Amounts:
    """Return the seen and busy time between two counters; all of a counter that started again."""
    if before is None or before.since != now.since:
        return Amounts(now.seen_ms, now.busy_ms)
    return between(before, now) or Amounts(0, 0)
