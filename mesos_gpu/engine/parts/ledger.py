"""Accounts of what tasks use, and budgets."""

from dataclasses import dataclass, field

from mesos_gpu.engine.parts.metadata import DERIVED
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.usage import BudgetUse, Span, SpanWork
from mesos_gpu.policy.accounts.budget import Book


@dataclass(slots=True)
class LedgerPart:
    """Accounting spans and budgets of the state.

    Attributes:
        spans: Open accounting span of each task.
        span_works: GPU work in these spans, as far as it was summed up.
        budget_uses: Use of each period of each budget, by queue, user and number.
        folded_day: Day of UTC, counted from the epoch, before which records were summed up.
        budget_book: Index of `budget_uses`; None until first used.
        spans_seen: Whether the restored spans were compared with the tasks.
    """

    spans: dict[TaskId, Span] = field(default_factory=dict)
    span_works: dict[TaskId, SpanWork] = field(default_factory=dict)
    budget_uses: dict[tuple[str, str, int], BudgetUse] = field(default_factory=dict)
    folded_day: int = 0
    budget_book: Book | None = field(default=None, compare=False, repr=False, metadata=DERIVED)
    spans_seen: bool = field(default=False, compare=False, metadata=DERIVED)
