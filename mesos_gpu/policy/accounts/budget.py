"""Budgets: who pays, what is left of them now, and when they will be empty. Pure, and in whole numbers.

Amounts are thousandths of cost times milliseconds. Spans that are open are not added up anew each time: of all that pay
from one budget a meter keeps what they are charged together, and that times when each began.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.model.jobs.quota import PROOFLESS
from mesos_gpu.model.tenancy import EVERYBODY, Budget, OnEmpty, Period
from mesos_gpu.model.usage import MS, NEVER_MS, BudgetUse, Closed, Span
from mesos_gpu.policy.accounts.sums import overlap_ms
from mesos_gpu.policy.tenancy import periods
from mesos_gpu.policy.tenancy.tree import Tree, lineage

Key = tuple[str, str]  # a queue and a user
WHOLE: Final = 100  # percent
MAX_PERIODS: Final = (
    14  # that are kept of a budget: a year of months, and what refunds of the last may still go to
)


@dataclass(slots=True)
class Meter:
    """What open spans add to a budget while time passes."""

    rate: int = 0  # thousandths of cost that are charged
    moment: int = 0  # the sum of each span's part of that times when it began

    def add(self, milli: int, begins_ms: int, sign: int) -> None:
        """Count a span in, or out. `sign`: 1 or -1."""
        self.rate += sign * milli
        self.moment += sign * milli * begins_ms

    def at(self, now_ms: int) -> int:
        """What all of them have used."""
        return max(0, self.rate * now_ms - self.moment)


@dataclass(slots=True)
class Meters:
    """The meters of all budgets of a tree, and when one of them has next to be looked at."""

    tree: Tree
    of: dict[Key, Meter] = field(default_factory=dict)
    due_ms: int = 0


@dataclass(slots=True)
class Book:
    """What follows from the periods that are kept, and from the spans that are open."""

    uses: dict[Key, dict[int, BudgetUse]] = field(default_factory=dict)  # by period
    meters: Meters | None = None  # None: they are to be made


@dataclass(frozen=True, slots=True)
class Standing:
    """How a budget stands.

    Attributes:
        budget: As it is written.
        use: Its current period.
        used: In that, those included that run.
        rate: Thousandths of cost that are charged to it now.
        total: Its amount, with what was carried over, granted and set aside.
        now_ms: When that is so.
    """

    budget: Budget
    use: BudgetUse
    used: int
    rate: int
    total: int
    now_ms: int

    @property
    def left(self) -> int:
        """What may be used still; negative: so much is used beyond it."""
        return self.total - self.used

    @property
    def outside(self) -> bool:
        """Whether it is none of its days: before them, and after them, there is nothing to be used."""
        return not self.use.begins_ms <= self.now_ms < self.use.ends_ms and self.budget.period is Period.ONCE

    @property
    def empty(self) -> bool:
        """Whether nothing is left."""
        return self.left <= 0 or self.outside

    @property
    def percent(self) -> int:
        """How much of it is used; 100 of one of nothing."""
        return self.used * WHOLE // self.total if self.total > 0 else WHOLE

    def reached(self) -> int:
        """The highest of its thresholds that is reached; 0: none is."""
        percents = (*self.budget.warn_at, WHOLE)
        return max((each for each in percents if self.used * WHOLE >= each * self.total), default=0)

    def next_ms(self) -> int:
        """When it has to be looked at: at its next threshold at this rate, or when its period ends."""
        ends_ms = self.use.ends_ms if self.use.ends_ms > self.now_ms else NEVER_MS
        if self.outside and self.now_ms < self.use.begins_ms:
            return self.use.begins_ms
        targets = [-(-each * self.total // WHOLE) for each in (*self.budget.warn_at, WHOLE)]
        ahead = min((each for each in targets if each > self.used), default=None)
        if ahead is None or not self.rate:
            return ends_ms
        return min(ends_ms, self.now_ms - (self.used - ahead) // self.rate)

    def empty_at_ms(self) -> int | None:
        """When it will be empty at this rate; None: not before its period ends, or it is already."""
        if self.empty or not self.rate:
            return None
        at_ms = self.now_ms + -(-self.left // self.rate)
        return at_ms if at_ms < self.use.ends_ms else None


def budgets_of(tree: Tree) -> Mapping[Key, Budget]:
    """All budgets of a tree; of a user who is not named, that of "*" is made when he first pays."""
    return {
        (path, user): budget
        for path, spec in tree.document.queues.items()
        for user, budget in ((EVERYBODY, spec.budget), *spec.user_budgets.items())
        if budget is not None and not (user == EVERYBODY and budget is not spec.budget)
    }


def paid_by(tree: Tree, queue: str, user: str) -> Iterator[tuple[Key, Budget]]:
    """The budgets that a user's jobs in a queue are charged to: of the queue, those above, and his own in them."""
    for path in lineage(queue):
        spec = tree.document.queues.get(path)
        if spec is None:
            continue
        if spec.budget is not None:
            yield (path, EVERYBODY), spec.budget
        own = spec.user_budgets.get(user) or spec.user_budgets.get(EVERYBODY)
        if own is not None and user not in ("", EVERYBODY):
            yield (path, user), own


def user_of(span: Span) -> str:
    """Who pays for a span, be his name proved or not."""
    return span.owner.removesuffix(PROOFLESS)


def terms_of(budget: Budget) -> str:
    """What says when its periods are."""
    return " ".join(filter(None, (budget.period.value, budget.zone, budget.begins, budget.ends)))


def period_of(budget: Budget, now_ms: int) -> periods.Span:
    """The period that a time is in; of one that is there once, that."""
    if budget.period is Period.ONCE:
        return periods.once(budget.begins, budget.ends, budget.zone)
    return periods.period_at(budget.period, budget.zone, now_ms / MS)


def opened(key: Key, budget: Budget, last: BudgetUse | None, left: int, now_ms: int) -> BudgetUse | None:
    """The period that follows the last one, if that is over; None: it goes on. A clock that was set back opens none.

    Periods follow each other without a gap, also while no scheduler runs: call it until it returns None. Of more than
    are kept only the latest are opened.

    Args:
        key: Whose budget.
        budget: As it is written.
        last: Its latest period; None, or one with other terms: it has none, and what was used before does not count.
        left: What was left of that.
        now_ms: The time.
    """
    terms = terms_of(budget)
    known = last if last is not None and last.terms == terms else None
    if known is not None and (now_ms < known.ends_ms or budget.period is Period.ONCE):
        return None
    span = period_of(budget, now_ms)
    if known is None:
        begins_ms = max(now_ms, span.begins * MS)
        index = span.index if last is None else max(span.index, last.index + 1)
        return BudgetUse(*key, index, begins_ms, span.ends * MS, terms)
    oldest_ms = now_ms - MAX_PERIODS * (span.ends - span.begins) * MS
    span = period_of(budget, max(known.ends_ms, oldest_ms))
    carried = max(0, left) * budget.carry_over_percent // WHOLE
    index = max(known.index + 1, span.index)
    return BudgetUse(
        *key, index, max(span.begins * MS, known.ends_ms), span.ends * MS, terms, carried=carried
    )


def total_of(budget: Budget, use: BudgetUse) -> int:
    """What may be used in a period."""
    return budget.milli_s * MS + use.carried + use.granted


def charge_of(record: Closed, use: BudgetUse) -> int:
    """What of a record a period pays: not what is refunded, which is the last of it."""
    paid_until_ms = record.ends_ms - record.refunded_ms
    return record.span.charged_milli * overlap_ms(
        record.span.begins_ms, paid_until_ms, use.begins_ms, use.ends_ms
    )


def must_borrow(standing: Standing) -> bool:
    """Whether its jobs run as borrowers only."""
    return standing.empty and standing.budget.on_empty is OnEmpty.BORROW


def may_not_start(standing: Standing) -> bool:
    """Whether its jobs wait until there is more."""
    return standing.empty and standing.budget.on_empty in (OnEmpty.NO_START, OnEmpty.STOP)
