"""Use of GPUs put down to whom it is due: sums over records, waits, and how evenly queues were served. Pure.

Amounts are thousandths of GPUs, or of cost, times milliseconds. How long jobs waited is counted in steps, each at most
an eighth of the wait wide: percentiles of any number of jobs cost little to keep.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.model.usage import DAY_MS, Account, Closed, Part, SpanEnd, charged

GROUPS: Final[
    Mapping[str, str]
] = {  # what a report may be by: the name that people use, and the field of `Account`
    "owner": "owner",
    "queue": "queue",
    "app": "app",
    "class": "job_class",
    "model": "model",
    "pool": "pool",
}
_BITS: Final = 3  # of a wait, after its first


@dataclass(slots=True)
class Figures:
    """What was used, thousandths times milliseconds.

    Attributes:
        spans: Records that began then.
        gpu: Of GPUs.
        cost: Of cost.
        charged: What budgets pay, before refunds.
        borrowed: Of cost, beyond what queues are guaranteed.
        idle: Of cost, of GPUs that did nothing.
        lost: Of cost, of work that was lost.
        refunded: Of what was charged.
        unmet: GPUs that jobs waited for, times how long.
        busy: Of GPUs, in which a kernel ran.
        unused: Of GPUs, in which none did; what is in neither nobody knows.
        wanted: Of `unused`, while jobs waited for as many GPUs.
        returned: Records that ended because their GPUs did nothing.
        waits: How many launches waited how long, by `step_of`.
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
        """Take in what somebody else has used."""
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
    """How much of one time is in another."""
    return max(0, min(ends_ms, until_ms) - max(begins_ms, since_ms))


def figures(record: Closed, part: Part, since_ms: int, until_ms: int) -> Figures:
    """What of a part of a record is in a time."""
    span, first = record.span, part == record.span.parts[0]
    held_ms = overlap_ms(span.begins_ms, record.ends_ms, since_ms, until_ms)
    lost_ms = overlap_ms(record.ends_ms - record.lost_ms, record.ends_ms, since_ms, until_ms)
    refunded_ms = overlap_ms(record.ends_ms - record.refunded_ms, record.ends_ms, since_ms, until_ms)
    days = [
        each for each in record.did if since_ms <= each.day * DAY_MS < until_ms and each.model == part.model
    ]
    unused = sum(each.idle for each in days)
    last_ms = max(record.ends_ms - 1, span.begins_ms)
    began = since_ms <= span.begins_ms < until_ms
    waited = began and first and span.wanted_milli > 0
    started = began and part.gpu_milli > 0  # else it was given up before it held anything
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
        busy=sum(each.busy for each in days),
        unused=unused,
        wanted=sum(each.wanted for each in days),
        returned=int(record.reason is SpanEnd.IDLE and first and since_ms <= last_ms < until_ms),
        waits={step_of(span.wait_ms): 1} if waited and started else {},
    )


def rows(records: Iterable[Closed], since_ms: int, until_ms: int) -> Iterator[Row]:
    """What records have of a time, a row for each part."""
    for record in records:
        for part in record.span.parts:
            if record.ends_ms >= since_ms and record.span.begins_ms < until_ms:
                yield record.span.account(part), figures(record, part, since_ms, until_ms)


def by_day(record: Closed, part: Part) -> Iterator[tuple[int, Figures]]:
    """What of a part of a record is in each day of UTC that it touches."""
    first = record.span.begins_ms // DAY_MS
    for day in range(first, max(first, (record.ends_ms - 1) // DAY_MS) + 1):
        yield day, figures(record, part, day * DAY_MS, (day + 1) * DAY_MS)


def grouped(use: Iterable[Row], by: Sequence[str]) -> dict[tuple[str, ...], Figures]:
    """Sums by some of `GROUPS`, in the order of their names."""
    fields = [GROUPS[name] for name in by]
    sums: dict[tuple[str, ...], Figures] = {}
    for account, each in use:
        key = tuple([getattr(account, name) for name in fields])
        known = sums.get(key)
        if known is None:
            known = sums[key] = Figures()
        known.add(each)
    return dict(sorted(sums.items()))


def shortened(account: Account, depth: int) -> Account:
    """An account of the queue that is above its own so many levels below the root; 0: of its own."""
    parts = account.queue.split("/")
    return account._replace(queue="/".join(parts[:depth])) if 0 < depth < len(parts) else account


def step_of(wait_ms: int) -> int:
    """The step that a wait is in; it grows with the wait."""
    shift = max(0, wait_ms.bit_length() - _BITS - 1)
    return (shift << _BITS) + (wait_ms >> shift)


def wait_of(step: int) -> int:
    """The shortest wait of a step, in milliseconds."""
    if step < 2 << _BITS:
        return step
    shift = (step >> _BITS) - 1
    return ((step & (1 << _BITS) - 1) + (1 << _BITS)) << shift


def percentile_ms(waits: Mapping[int, int], percent: int) -> int | None:
    """The wait that so many percent of launches did not exceed, as the middle of its step; None: there were none."""
    whole = sum(waits.values())
    rank = (whole * percent + 99) // 100
    seen = 0
    for step in sorted(waits):
        seen += waits[step]
        if seen >= rank:
            return (wait_of(step) + wait_of(step + 1)) // 2
    return None


def jain_percent(served: Sequence[int], owed: Sequence[int]) -> int | None:
    """How evenly amounts are served by what is owed, by Jain: 100: each had the same part of it; None: nobody was
    owed anything. Of `owed`, zeros are left out."""
    parts = [(a, b) for a, b in zip(served, owed, strict=True) if b > 0]
    # With x = a / b: (sum x)^2 / (n * sum x^2), over one denominator: the product of all b would be too large to be of
    # use, so x is taken in millionths.
    xs = [a * 1_000_000 // b for a, b in parts]
    squares = sum(x * x for x in xs)
    return 100 * sum(xs) ** 2 // (len(xs) * squares) if squares else None
