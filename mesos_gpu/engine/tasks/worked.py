"""What the GPUs of a task did while it held them, added up from what monitors count, for the records of use.

A monitor's counts only grow until it begins anew, and the latest are saved with their node. So a sum need not be saved
with each report: what is missing in it follows from the counts.
"""

from collections.abc import Mapping
from typing import Final

from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu_use import Span as Amounts
from mesos_gpu.model.nodes.gpu_use import TaskUse, Work, between
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.usage import DAY_MS, MS, CardCount, Did, Span, SpanWork

_FOLD_MS: Final = 60_000  # so often at least, while a task does nothing that concerns others
_CLOCKS_S: Final = 1.0  # by which the age of a count may be wrong
Uses = Mapping[GpuId, TaskUse]


def on_report(turn: Turn, before: Node, now: Node) -> None:
    """Add what a report tells of the tasks on its node to what they did. `before`: the node with the report before."""
    old, new = _by_task(before), _by_task(now)
    for task_id in dict.fromkeys((*old, *new)):
        task, span = turn.state.work.tasks.get(task_id), turn.state.ledger.spans.get(task_id)
        if task is not None and span is not None and task.agent_id == now.id:
            _take_in(turn, before, span, task, old.get(task_id, {}), new.get(task_id, {}))


def closing(turn: Turn, span: Span, task: Task | None, *, goes_on: bool) -> tuple[Did, ...]:
    """What the GPUs of a span did that is over. If its task goes on in another, that begins with nothing."""
    state = turn.state
    kept = state.ledger.span_works.get(span.task_id)
    node = state.cluster.nodes.get(task.agent_id) if task is not None else None
    uses = _by_task(node).get(span.task_id, {}) if node is not None else {}
    if task is not None and node is not None and uses:
        kept = _Sum(turn, kept, span, task, node).added(uses, {}, 0)
    if kept is None:
        return ()
    if goes_on:
        turn.put(SpanWork(kept.task_id, kept.folded_ms, kept.cards))
    elif span.task_id in state.ledger.span_works:
        turn.drop(SpanWork, span.task_id)
    return kept.did


def _by_task(node: Node) -> dict[TaskId, dict[GpuId, TaskUse]]:
    by_task: dict[TaskId, dict[GpuId, TaskUse]] = {}
    for use in node.inventory.task_uses if node.inventory else ():
        by_task.setdefault(use.task_id, {})[use.gpu_id] = use
    return by_task


def _take_in(turn: Turn, before: Node, span: Span, task: Task, old: Uses, new: Uses) -> None:
    kept, waiting_milli = turn.state.ledger.span_works.get(task.id), 0
    if any(_did_nothing(old.get(gpu_id), use) for gpu_id, use in new.items()):
        waiting_milli = _waiting_milli(turn)
    now_ms = int(turn.now * MS)
    is_due = (
        kept is None
        or waiting_milli > 0
        or now_ms - kept.folded_ms >= _FOLD_MS
        or now_ms // DAY_MS != kept.folded_ms // DAY_MS
        or any(_goes_on_not(use, new.get(gpu_id)) for gpu_id, use in old.items())
    )
    if is_due and any(use.work is not None for use in (*old.values(), *new.values())):
        folded = _Sum(turn, kept, span, task, before).added(old, new, waiting_milli)
        if folded != kept:
            turn.put(folded)


def _did_nothing(old: TaskUse | None, new: TaskUse) -> bool:
    if new.work is None:
        return False
    did = _counted(old.work if old else None, new.work)
    return did.seen_ms > did.busy_ms


def _goes_on_not(old: TaskUse, new: TaskUse | None) -> bool:
    """Whether a count is over, and the report before is the last that tells of it."""
    if old.work is None:
        return False
    return new is None or new.work is None or new.work.since != old.work.since


def _waiting_milli(turn: Turn) -> int:
    """Thousandths of GPUs that jobs wait for."""
    return sum(gpus for gpus, _, _ in turn.state.books.wanted.values())


class _Sum:
    """A task's sum, to which counts are added."""

    def __init__(self, turn: Turn, kept: SpanWork | None, span: Span, task: Task, before: Node) -> None:
        """`kept`: as it is; None: nothing was counted. `before`: its node with the report before this step's."""
        self._turn, self._span, self._task = turn, span, task
        self._cards = {each.gpu_id: each.work for each in kept.cards} if kept else {}
        self._did = {(each.day, each.model): each for each in kept.did} if kept else {}
        self._models = {gpu.id: gpu.model for gpu in before.gpus}
        before_ms = int((before.reported_at or turn.now) * MS)
        self._day = max(before_ms, span.begins_ms) // DAY_MS

    def added(self, old: Uses, new: Uses, waiting_milli: int) -> SpanWork:
        """Add what the report before told, and this one; meanwhile so many thousandths of GPUs were waited for."""
        for uses, waiting in ((old, 0), (new, waiting_milli)):
            for gpu_id, use in uses.items():
                if gpu_id in self._task.gpus and use.work is not None:
                    self._add(gpu_id, use, use.work, waiting)
        cards = tuple(CardCount(gpu_id, work) for gpu_id, work in sorted(self._cards.items()))
        did = tuple(each for _, each in sorted(self._did.items()))
        return SpanWork(self._task.id, int(self._turn.now * MS), cards, did)

    def _add(self, gpu_id: GpuId, use: TaskUse, work: Work, waiting_milli: int) -> None:
        known, self._cards[gpu_id] = self._cards.get(gpu_id), work
        if known is None and use.at - work.since > self._age_s + _CLOCKS_S:
            return  # the count is older than the span: what of it is the span's, nobody can tell
        did, (model, milli) = _counted(known, work), self._part_of(gpu_id)
        if not did.seen_ms or not milli:
            return
        key = self._day, model
        each, idle_ms = self._did.get(key, Did(*key)), did.seen_ms - did.busy_ms
        self._did[key] = Did(
            *key,
            busy=each.busy + milli * did.busy_ms,
            idle=each.idle + milli * idle_ms,
            wanted=each.wanted + min(milli, waiting_milli) * idle_ms,
        )

    @property
    def _age_s(self) -> float:
        return self._turn.now - self._span.begins_ms / MS

    def _part_of(self, gpu_id: GpuId) -> tuple[str, int]:
        """The model that the span has for a card, and thousandths of GPUs of the card that its task has."""
        parts = {part.model: part.gpu_milli for part in self._span.parts}
        if len(parts) == 1:
            ((model, milli),) = parts.items()
            return model, milli // len(self._task.gpus)
        model = self._models.get(gpu_id, "")
        count = sum(self._models.get(each, "") == model for each in self._task.gpus)
        return model, parts.get(model, 0) // max(count, 1)


def _counted(before: Work | None, now: Work) -> Amounts:
    """What was seen between two counts, and at work; of a count that began anew, all of it."""
    if before is None or before.since != now.since:
        return Amounts(now.seen_ms, now.busy_ms)
    return between(before, now) or Amounts(0, 0)
