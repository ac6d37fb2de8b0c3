"""Use of GPUs by jobs: one record for each span of a grant, never changed once it is written.

Times are whole milliseconds since the epoch. Amounts are thousandths of GPUs, or of cost (`QueueDocument.gpu_cost`),
times milliseconds, so that sums of them are exact.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from mesos_gpu.model.ids import GpuId, JobId, TaskId
from mesos_gpu.model.nodes.gpu_use import Work

MS: Final = 1000  # milliseconds a second
DAY_MS: Final = 86_400_000  # a day of UTC
NEVER_MS: Final = 1 << 53  # after all times


class SpanEnd(Enum):
    """Reason why a span ended."""

    FINISHED = "finished"
    FAILED = "failed"  # the fault of the job
    KILLED = "killed"  # ended on request
    LOST = "lost"  # failed by the infrastructure, or given up as unreachable
    RECLAIM = "reclaim"  # preempted for a guarantee
    PREEMPTION = "preemption"  # preempted for a job of higher priority
    TIME_LIMIT = "time_limit"
    BUDGET = "budget"
    DRAIN = "drain"
    IDLE = "idle"
    CALENDAR = "calendar"
    EVICTED = "evicted"  # ended by the scheduler for another reason, and requeued
    RESIZED = "resized"  # continues with another amount
    SEAT = "seat"  # continues, as a borrower or no longer as one
    RULES = "rules"  # continues, counted differently by a new version of the queues
    RUNNING = "running"  # not ended yet

    @property
    def goes_on(self) -> bool:
        """Whether the task still holds GPUs after the span."""
        return self in (SpanEnd.RESIZED, SpanEnd.SEAT, SpanEnd.RULES, SpanEnd.RUNNING)


class Account(NamedTuple):
    """Account to which use is charged. Fields are texts, "" if it has none."""

    owner: str  # a proved name, or the UNIX user with a ? appended if it is unproved
    queue: str
    job_class: str
    app: str
    model: str  # GPU model
    pool: str


@dataclass(frozen=True, slots=True)
class Part:
    """GPUs of one model that a task holds."""

    model: str
    gpu_milli: int  # thousandths of GPUs
    cost_milli: int  # `gpu_milli` times the relative cost of one GPU


@dataclass(frozen=True, slots=True)
class Span:
    """GPUs that a task holds from a time on, until anything about them changes.

    Attributes:
        task_id: Id of the launch that holds the GPUs.
        job_id: Id of the job of the launch.
        owner, queue, job_class, app, pool: Fields of `Account`.
        parts: GPUs by model, sorted by model name.
        borrowed: Whether they are beyond the guarantee of the queue.
        charge_percent: Percentage of the cost that the job class is charged.
        begins_ms: Begin of the span.
        wait_ms: Time that the job waited, in the first span of its first task; else 0.
        wanted_milli: Thousandths of GPUs that it waited for; 0 if `wait_ms` does not apply.
    """

    task_id: TaskId
    job_id: JobId
    owner: str
    queue: str
    job_class: str
    app: str
    pool: str
    parts: tuple[Part, ...]
    borrowed: bool
    charge_percent: int
    begins_ms: int
    wait_ms: int = 0
    wanted_milli: int = 0

    @property
    def cost_milli(self) -> int:
        """Held cost in thousandths."""
        return sum(part.cost_milli for part in self.parts)

    @property
    def charged_milli(self) -> int:
        """Held cost in thousandths that is charged to budgets."""
        return sum(charged(part.cost_milli, self.charge_percent) for part in self.parts)

    def account(self, part: Part) -> Account:
        """Return the account of one part of the span."""
        return Account(self.owner, self.queue, self.job_class, self.app, part.model, self.pool)


class MeasuredWork(NamedTuple):
    """Measured work of GPUs of one model for a task during one day. Time in neither sum was not measured.

    Attributes:
        day: Days since the epoch, UTC.
        model: Model of the GPUs.
        busy: Time in which a kernel ran, thousandths of GPUs times milliseconds.
        idle: Time in which no kernel ran, in that unit.
        wanted: Part of `idle` during which jobs waited for as many GPUs.
    """

    day: int
    model: str
    busy: int = 0
    idle: int = 0
    wanted: int = 0


class CardCount(NamedTuple):
    """Counters of a monitor for a task on one card, up to which they have been summed."""

    gpu_id: GpuId
    work: Work


@dataclass(frozen=True, slots=True)
class SpanWork:
    """Measured work of the GPUs of an open span, up to the last monitor report that was summed.

    Attributes:
        task_id: Task of the span.
        folded_ms: Time of the last summation.
        cards: Counters by card, up to which the work has been summed.
        did: Sums by day and model.
    """

    task_id: TaskId
    folded_ms: int
    cards: tuple[CardCount, ...] = ()
    did: tuple[MeasuredWork, ...] = ()


@dataclass(frozen=True, slots=True)
class Closed:
    """Record of a closed span.

    Attributes:
        span: Span that is closed.
        ends_ms: End of the span, not before its begin.
        lost_ms: Length of the last part, whose work was lost with the task.
        refunded_ms: Length of the last part that no budget is charged for.
        reason: Reason for the end.
        did: Measured work of its GPUs, by day and model.
    """

    span: Span
    ends_ms: int
    lost_ms: int
    refunded_ms: int
    reason: SpanEnd
    did: tuple[MeasuredWork, ...] = ()


def charged(cost_milli: int, percent: int) -> int:
    """Return the part of a cost that a job class is charged, in thousandths."""
    return cost_milli * percent // 100


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """Use of a budget in one period. Amounts are thousandths of cost times milliseconds.

    Attributes:
        queue: Path of the queue of the budget, which counts the queue and all below it.
        user: User whose jobs are charged; "*" for all users.
        index: Number of the period, which grows by one with each.
        begins_ms, ends_ms: Bounds of the period, the end not included.
        terms: Period and time zone of the budget; when they change, numbering of periods restarts.
        used: Use of closed spans after refunds; open spans are added when it is read.
        granted: Amount that a user added to the budget; negative if set aside.
        carried: Remainder carried over from the previous period.
        told_percent: Highest warning threshold that was reached.
    """

    queue: str
    user: str
    index: int
    begins_ms: int
    ends_ms: int
    terms: str
    used: int = 0
    granted: int = 0
    carried: int = 0
    told_percent: int = 0


@dataclass(frozen=True, slots=True)
class PastUse:
    """Use that decays by half-lives; `mesos_gpu.policy.tenancy.usage` computes its amount at a time.

    Attributes:
        queue: Path of a leaf.
        user: Name of the user; "*" for all users of the leaf together, also those without a record of their own.
        value: Amount at `since`, in thousandths of cost times seconds.
        since: Microseconds since the epoch.
        rate: Thousandths of cost that are charged since then.
    """

    queue: str
    user: str
    value: int = 0
    since: int = 0
    rate: int = 0
