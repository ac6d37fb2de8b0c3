"""What jobs have used: a record for each span of a grant, which is never changed once it is written.

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
    """Why a span ended."""

    FINISHED = "finished"
    FAILED = "failed"  # by its own doing
    KILLED = "killed"  # somebody asked for it
    LOST = "lost"  # by the infrastructure, or given up as unreachable
    RECLAIM = "reclaim"  # somebody was owed its GPUs
    PREEMPTION = "preemption"  # a job of higher priority took its place
    TIME_LIMIT = "time_limit"
    BUDGET = "budget"
    DRAIN = "drain"
    IDLE = "idle"
    CALENDAR = "calendar"
    EVICTED = "evicted"  # the scheduler ended it for another reason, and it is queued again
    RESIZED = "resized"  # it goes on with another amount
    SEAT = "seat"  # it goes on, and became a borrower, or ceased to be one
    RULES = "rules"  # it goes on, and another version of the queues counts it in another way
    RUNNING = "running"  # it has not ended yet

    @property
    def goes_on(self) -> bool:
        """Whether its task holds GPUs after it."""
        return self in (SpanEnd.RESIZED, SpanEnd.SEAT, SpanEnd.RULES, SpanEnd.RUNNING)


class Account(NamedTuple):
    """Whom use is put down to. Texts; "": none."""

    owner: str  # a proved name, or with a ? at its end the UNIX user, which nobody has proved
    queue: str
    job_class: str
    app: str
    model: str  # of GPUs
    pool: str


@dataclass(frozen=True, slots=True)
class Part:
    """What a task holds of GPUs of one model."""

    model: str
    gpu_milli: int  # thousandths of GPUs
    cost_milli: int  # the same times what one costs


@dataclass(frozen=True, slots=True)
class Span:
    """What a task holds since a moment, while nothing of it changes.

    Attributes:
        task_id: The launch that holds it.
        job_id: Whose launch that is.
        owner, queue, job_class, app, pool: As of `Account`.
        parts: By model, in the order of their names.
        borrowed: Whether it is beyond what its queue is guaranteed.
        charge_percent: How much of its cost its class is charged for.
        begins_ms: Since when.
        wait_ms: How long the job had waited, in the first span of its first task; else 0.
        wanted_milli: Thousandths of GPUs that it waited for; 0 where `wait_ms` says nothing.
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
        """Thousandths of cost that it holds."""
        return sum(part.cost_milli for part in self.parts)

    @property
    def charged_milli(self) -> int:
        """Thousandths of cost that budgets pay."""
        return sum(charged(part.cost_milli, self.charge_percent) for part in self.parts)

    def account(self, part: Part) -> Account:
        """Whom a part of it is put down to."""
        return Account(self.owner, self.queue, self.job_class, self.app, part.model, self.pool)


class Did(NamedTuple):
    """What GPUs of one model did for a task in a day. What is in neither of both nobody knows.

    Attributes:
        day: Of UTC since the epoch.
        model: As of `Part`.
        busy: In which a kernel ran, thousandths of GPUs times milliseconds.
        idle: In which none did.
        wanted: Of `idle`, while jobs waited for as many GPUs.
    """

    day: int
    model: str
    busy: int = 0
    idle: int = 0
    wanted: int = 0


class CardCount(NamedTuple):
    """What a monitor has counted of a task on one of its cards, as far as it is summed up."""

    gpu_id: GpuId
    work: Work


@dataclass(frozen=True, slots=True)
class SpanWork:
    """What the GPUs of an open span did so far, as of the monitor's report that was summed up last.

    Attributes:
        task_id: Whose span.
        folded_ms: When it was summed up.
        cards: Up to which counts, by card.
        did: What came to that, by day and model.
    """

    task_id: TaskId
    folded_ms: int
    cards: tuple[CardCount, ...] = ()
    did: tuple[Did, ...] = ()


@dataclass(frozen=True, slots=True)
class Closed:
    """A span that is over: the record.

    Attributes:
        span: What was held.
        ends_ms: Until when; not before it began.
        lost_ms: The last so many of it were work that was lost with the task.
        refunded_ms: The last so many of it no budget pays.
        reason: Why it ended.
        did: What its GPUs did, by day and model.
    """

    span: Span
    ends_ms: int
    lost_ms: int
    refunded_ms: int
    reason: SpanEnd
    did: tuple[Did, ...] = ()


def charged(cost_milli: int, percent: int) -> int:
    """What a class is charged of a cost."""
    return cost_milli * percent // 100


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """What is used of a budget in one of its periods. Amounts are thousandths of cost times milliseconds.

    Attributes:
        queue: The path of the queue whose budget it is, for itself and all below it.
        user: Whose jobs pay; "*": all.
        index: Of the period; it grows by one with each.
        begins_ms, ends_ms: What counts: from the one on, and before the other.
        terms: The budget's period and zone: with others, periods are counted anew.
        used: By spans that are over, refunds taken off. Those that are open come on top.
        granted: What somebody gave beside the amount; negative: what somebody set aside.
        carried: What was left of the period before.
        told_percent: The highest of its thresholds that was reached.
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
