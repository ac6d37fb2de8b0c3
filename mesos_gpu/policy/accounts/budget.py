"""Budgets: payers, remaining amounts, and the time at which a budget will be used up. Pure, whole numbers only.

Amounts are thousandths of cost times milliseconds. Open spans (of jobs that run now) are not summed again each time:
for all spans charged to one budget, a meter keeps the sum of their rates, and the sum of the rates times the times of
their begin.
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
#: Periods kept for each budget: a year of months, and those that refunds may still affect.
MAX_PERIODS: Final = 14


@dataclass(slots=True)
class Meter:
    """Charge of all open spans of a budget as a function of time.

    Attributes:
        rate: Thousandths of cost that are charged.
        moment: Sum over the spans of rate times begin, so that the use at t is `rate` * t - `moment`.
    """

    rate: int = 0
    moment: int = 0

    def add(self, milli: int, begins_ms: int, sign: int) -> None:
        """Add a span (`sign` 1) or remove it (-1); it is charged `milli` thousandths of cost since `begins_ms`."""
        self.rate += sign * milli
        self.moment += sign * milli * begins_ms

    def at(self, now_ms: int) -> int:
        """Return the usage of all open spans up to a time."""
        return max(0, self.rate * now_ms - self.moment)


@dataclass(slots=True)
class Meters:
    """Meters of all budgets of a tree, and the time of the next check.

    Attributes:
        tree: Tree of queues.
        of: Meters by queue and user.
        due_ms: Time at which a budget must be checked next, in ms since the epoch.
    """

    tree: Tree
    of: dict[Key, Meter] = field(default_factory=dict)
    due_ms: int = 0


@dataclass(slots=True)
class Book:
    """Use of budgets, derived from the kept periods and the open spans."""

    uses: dict[Key, dict[int, BudgetUse]] = field(default_factory=dict)  # kept periods by budget and index
    meters: Meters | None = None  # None until computed


@dataclass(frozen=True, slots=True)
class Standing:
    """State of a budget at a time.

    Attributes:
        budget: Budget as written in the document.
        use: Current period of the budget.
        used: Amount used in that period, including open spans.
        rate: Thousandths of cost that are charged to it now.
        total: Amount of the budget, with carried over, granted and set aside amounts.
        now_ms: Time of this state.
    """

    budget: Budget
    use: BudgetUse
    used: int
    rate: int
    total: int
    now_ms: int

    @property
    def left(self) -> int:
        """Remaining amount; negative if the budget is overdrawn."""
        return self.total - self.used

    @property
    def outside(self) -> bool:
        """Whether a budget for a single period is before or after that period, in which case nothing may be used."""
        return not self.use.begins_ms <= self.now_ms < self.use.ends_ms and self.budget.period is Period.ONCE

    @property
    def empty(self) -> bool:
        """Whether nothing is left."""
        return self.left <= 0 or self.outside

    @property
    def percent(self) -> int:
        """Used part in percent; 100 for a budget of 0."""
        return self.used * WHOLE // self.total if self.total > 0 else WHOLE

    def reached(self) -> int:
        """Return the highest threshold that is reached, in percent; 0 if none is."""
        percents = (*self.budget.warn_at, WHOLE)
        return max((percent for percent in percents if self.used * WHOLE >= percent * self.total), default=0)

    def next_ms(self) -> int:
        """Return when the budget must be checked: at its next threshold at this rate, or when its period ends."""
        ends_ms = self.use.ends_ms if self.use.ends_ms > self.now_ms else NEVER_MS
        if self.outside and self.now_ms < self.use.begins_ms:
            return self.use.begins_ms
        targets = [-(-percent * self.total // WHOLE) for percent in (*self.budget.warn_at, WHOLE)]
        ahead = min((amount for amount in targets if amount > self.used), default=None)
        if ahead is None or not self.rate:
            return ends_ms
        return min(ends_ms, self.now_ms - (self.used - ahead) // self.rate)

    def empty_at_ms(self) -> int | None:
        """Return when the budget will be used up at this rate; None if not before its period ends, or if it is
        empty."""
        if self.empty or not self.rate:
            return None
        at_ms = self.now_ms + -(-self.left // self.rate)
        return at_ms if at_ms < self.use.ends_ms else None


def budgets_of(tree: Tree) -> Mapping[Key, Budget]:
    """Return all budgets of a tree by queue and user; a user with the budget of "*" is added when first charged."""
    return {
        (path, user): budget
        for path, spec in tree.document.queues.items()
        for user, budget in ((EVERYBODY, spec.budget), *spec.user_budgets.items())
        if budget is not None and not (user == EVERYBODY and budget is not spec.budget)
    }


def paid_by(tree: Tree, queue: str, user: str) -> Iterator[tuple[Key, Budget]]:
    """Yield the budgets charged for a user's jobs in a queue.

    These are the budgets of the queue and of its ancestors, and the user's own budgets in each of them.
    """
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
    """Return the user that pays for a span, whether or not the name was authenticated."""
    return span.owner.removesuffix(PROOFLESS)


def terms_of(budget: Budget) -> str:
    """Return the settings that define the periods of a budget, as text."""
    return " ".join(filter(None, (budget.period.value, budget.zone, budget.begins, budget.ends)))


def period_of(budget: Budget, now_ms: int) -> periods.Span:
    """Return the period that contains a time; of a budget for a single period, that one."""
    if budget.period is Period.ONCE:
        return periods.once(budget.begins, budget.ends, budget.zone)
    return periods.period_at(budget.period, budget.zone, now_ms / MS)


def opened(key: Key, budget: Budget, last: BudgetUse | None, left: int, now_ms: int) -> BudgetUse | None:
    """Return the next period of a budget if the last one is over; None otherwise, also if the clock was set back.

    Periods follow each other without a gap, even while no scheduler runs: call this until it returns None. If more have
    passed than are kept, only the latest are opened.

    Args:
        key: Queue and user of the budget.
        budget: Budget as written in the document.
        last: Latest period; with None, or one of other terms, the use so far does not count.
        left: Remaining amount of that period.
        now_ms: Current time in ms since the epoch.
    """
    terms = terms_of(budget)
    previous = last if last is not None and last.terms == terms else None
    if previous is not None and (now_ms < previous.ends_ms or budget.period is Period.ONCE):
        return None
    span = period_of(budget, now_ms)
    if previous is None:
        begins_ms = max(now_ms, span.begins * MS)
        index = span.index if last is None else max(span.index, last.index + 1)
        return BudgetUse(*key, index, begins_ms, span.ends * MS, terms)
    oldest_ms = now_ms - MAX_PERIODS * (span.ends - span.begins) * MS
    span = period_of(budget, max(previous.ends_ms, oldest_ms))
    carried = max(0, left) * budget.carry_over_percent // WHOLE
    index = max(previous.index + 1, span.index)
    return BudgetUse(
        *key, index, max(span.begins * MS, previous.ends_ms), span.ends * MS, terms, carried=carried
    )


def total_of(budget: Budget, use: BudgetUse) -> int:
    """Return the amount that may be used in a period: the budget with what was carried over and granted."""
    return budget.milli_s * MS + use.carried + use.granted


def charge_of(record: Closed, use: BudgetUse) -> int:
    """Return the part of a record that a period pays, without the refunded time, which is the last of the record."""
    paid_until_ms = record.ends_ms - record.refunded_ms
    return record.span.charged_milli * overlap_ms(
        record.span.begins_ms, paid_until_ms, use.begins_ms, use.ends_ms
    )


def must_borrow(standing: Standing) -> bool:
    """Return whether jobs charged to the budget may run only as borrowers, as it is used up."""
    return standing.empty and standing.budget.on_empty is OnEmpty.BORROW


def may_not_start(standing: Standing) -> bool:
    """Return whether jobs charged to the budget must wait until it has funds again."""
    return standing.empty and standing.budget.on_empty in (OnEmpty.NO_START, OnEmpty.STOP)
