"""Sums of GPU use by account, waiting times, and fairness between queues. Pure.

Amounts are thousandths of GPUs, or of cost, times milliseconds. Waiting times are counted in steps, each at most an
eighth of the wait wide, so that percentiles over any number of jobs need little memory.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.model.usage import DAY_MS, Account, Closed, Part, SpanEnd, charged

#: Fields of `Account` by which a report may be grouped, by their names for users.
GROUPS: Final[Mapping[str, str]] = {
    "owner": "owner",
    "queue": "queue",
    "app": "app",
    "class": "job_class",
    "model": "model",
    "pool": "pool",
}
_BITS: Final = 3  # bits of a waiting time that are kept after the leading one


@dataclass(slots=True)
class Figures:
    """Sums of use, in thousandths times milliseconds.

    Attributes:
        spans: Number of records that began in the time.
        gpu: Use in GPUs.
        cost: Use in cost.
        charged: Cost charged to budgets, before refunds.
        borrowed: Cost beyond the guarantees of queues.
        idle: Cost of GPUs that did nothing.
        lost: Cost of work that was lost.
        refunded: Part of `charged` that was refunded.
        unmet: GPUs that jobs waited for, times the waiting time.
        busy: GPU time in which a kernel ran.
        unused: GPU time in which none ran; time in neither `busy` nor `unused` was not observed.
        wanted: Part of `unused` while jobs waited for as many GPUs.
        returned: Number of records that ended because their GPUs did nothing.
        waits: Number of launches by waiting time, as steps of `step_of`.
    """

    spans: int = 0
    gpu: int = 0
    cost: int = 0
    charged: int = 0
    borrowed: int = 0
    idle: int = 0
    lost: int = 0
    refunded: int = 0
    unmet: int = 0
    busy: int = 0
    unused: int = 0
    wanted: int = 0
    returned: int = 0
    waits: dict[int, int] = field(default_factory=dict)

    def add(self, other: "Figures") -> None:
        """Add other sums to these."""
        for name in AMOUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for step, jobs in other.waits.items():
            self.waits[step] = self.waits.get(step, 0) + jobs


AMOUNTS: Final = (
    "spans", "gpu", "cost", "charged", "borrowed", "idle", "lost", "refunded", "unmet", "busy", "unused", "wanted",
    "returned",
)  # fmt: skip
Row = tuple[Account, Figures]


def overlap_ms(begins_ms: int, ends_ms: int, since_ms: int, until_ms: int) -> int:
    """Return how many milliseconds of one interval are in another."""
    return max(0, min(ends_ms, until_ms) - max(begins_ms, since_ms))


def figures(record: Closed, part: Part, since_ms: int, until_ms: int) -> Figures:
    """Return the use of one part of a record (its GPUs of one model) within an interval.

    Args:
        record: Closed record of a task's holdings.
        part: Part of the record.
        since_ms: Begin of the interval, in ms since the epoch.
        until_ms: End of the interval, in ms since the epoch.
    """
    span, first = record.span, part == record.span.parts[0]
    held_ms = overlap_ms(span.begins_ms, record.ends_ms, since_ms, until_ms)
    lost_ms = overlap_ms(record.ends_ms - record.lost_ms, record.ends_ms, since_ms, until_ms)
    refunded_ms = overlap_ms(record.ends_ms - record.refunded_ms, record.ends_ms, since_ms, until_ms)
    days = [day for day in record.did if since_ms <= day.day * DAY_MS < until_ms and day.model == part.model]
    unused = sum(day.idle for day in days)
    last_ms = max(record.ends_ms - 1, span.begins_ms)
    began = since_ms <= span.begins_ms < until_ms
    waited = began and first and span.wanted_milli > 0
    started = began and part.gpu_milli > 0  # otherwise it was given up before it held GPUs
    return Figures(
        spans=int(started),
        gpu=part.gpu_milli * held_ms,
        cost=part.cost_milli * held_ms,
        charged=charged(part.cost_milli, span.charge_percent) * held_ms,
        borrowed=part.cost_milli * held_ms if span.borrowed else 0,
        idle=unused * part.cost_milli // part.gpu_milli if part.gpu_milli else 0,
        lost=part.cost_milli * lost_ms,
        refunded=charged(part.cost_milli, span.charge_percent) * refunded_ms,
        unmet=span.wanted_milli * span.wait_ms if waited else 0,
        busy=sum(day.busy for day in days),
        unused=unused,
        wanted=sum(day.wanted for day in days),
        returned=int(record.reason is SpanEnd.IDLE and first and since_ms <= last_ms < until_ms),
        waits={step_of(span.wait_ms): 1} if waited and started else {},
    )


def rows(records: Iterable[Closed], since_ms: int, until_ms: int) -> Iterator[Row]:
    """Yield the account and the sums of each part of the records within an interval."""
    for record in records:
        for part in record.span.parts:
            if record.ends_ms >= since_ms and record.span.begins_ms < until_ms:
                yield record.span.account(part), figures(record, part, since_ms, until_ms)


def by_day(record: Closed, part: Part) -> Iterator[tuple[int, Figures]]:
    """Yield the sums of a part of a record for each day (UTC) that it touches."""
    first = record.span.begins_ms // DAY_MS
    for day in range(first, max(first, (record.ends_ms - 1) // DAY_MS) + 1):
        yield day, figures(record, part, day * DAY_MS, (day + 1) * DAY_MS)


def grouped(use: Iterable[Row], by: Sequence[str]) -> dict[tuple[str, ...], Figures]:
    """Sum rows of use by some of `GROUPS`; keys have the values in the order of `by`."""
    fields = [GROUPS[name] for name in by]
    sums: dict[tuple[str, ...], Figures] = {}
    for account, row_figures in use:
        key = tuple([getattr(account, name) for name in fields])
        total = sums.get(key)
        if total is None:
            total = sums[key] = Figures()
        total.add(row_figures)
    return dict(sorted(sums.items()))


def shortened(account: Account, depth: int) -> Account:
    """Return the account with its queue replaced by the ancestor at `depth` levels below the root; unchanged for 0."""
    parts = account.queue.split("/")
    return account._replace(queue="/".join(parts[:depth])) if 0 < depth < len(parts) else account


def step_of(wait_ms: int) -> int:
    """Return the step of a waiting time; longer times have higher steps."""
    shift = max(0, wait_ms.bit_length() - _BITS - 1)
    return (shift << _BITS) + (wait_ms >> shift)


def wait_of(step: int) -> int:
    """Return the shortest waiting time of a step, in milliseconds."""
    if step < 2 << _BITS:
        return step
    shift = (step >> _BITS) - 1
    return ((step & (1 << _BITS) - 1) + (1 << _BITS)) << shift


def percentile_ms(waits: Mapping[int, int], percent: int) -> int | None:
    """Return the waiting time that `percent` of launches did not exceed, as the middle of its step.

    None without launches.
    """
    whole = sum(waits.values())
    rank = (whole * percent + 99) // 100
    seen = 0
    for step in sorted(waits):
        seen += waits[step]
        if seen >= rank:
            return (wait_of(step) + wait_of(step + 1)) // 2
    return None


def jain_percent(served: Sequence[int], owed: Sequence[int]) -> int | None:
    """Return Jain's fairness index of amounts relative to what is owed, in percent; 100 if all have the same ratio.

    Entries that are owed 0 are ignored. None if nothing was served or owed.
    """
    parts = [(a, b) for a, b in zip(served, owed, strict=True) if b > 0]
    # The index is (sum x)^2 / (n * sum x^2) with x = a / b. An exact common denominator would be too large, so x is
    # taken in millionths.
    xs = [a * 1_000_000 // b for a, b in parts]
    squares = sum(x * x for x in xs)
    return 100 * sum(xs) ** 2 // (len(xs) * squares) if squares else None
