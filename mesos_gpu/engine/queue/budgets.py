"""State of budgets for a match and for readers, and the reasons by which a budget blocks a job."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Protocol, Self
from zoneinfo import ZoneInfo

from mesos_gpu.engine.state import State
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tenancy import EVERYBODY, Budget, OnEmpty, Period
from mesos_gpu.model.usage import MS, BudgetUse, Span, charged
from mesos_gpu.policy.accounts.budget import (
    WHOLE,
    Book,
    Key,
    Meter,
    Meters,
    Standing,
    budgets_of,
    may_not_start,
    must_borrow,
    opened,
    paid_by,
    terms_of,
    total_of,
    user_of,
)
from mesos_gpu.policy.accounts.sums import overlap_ms
from mesos_gpu.policy.admission.limits import Lack, charge_percent
from mesos_gpu.policy.admission.reasons import Reason
from mesos_gpu.policy.tenancy.tree import Tree

Taken = Callable[[str], Iterable[tuple[Job, Charge]]]  # charges by a match so far for a queue and those below
_HOUR = 1000 * MS * 3600  # a GPU hour, in thousandths of cost times milliseconds


def book_of(state: State) -> Book:
    """Return the index of the saved periods, which is made on the first call."""
    book = state.ledger.budget_book
    if book is None:
        book = state.ledger.budget_book = Book()
        for (queue, user, index), use in state.ledger.budget_uses.items():
            book.uses.setdefault((queue, user), {})[index] = use
    return book


def uses_of(state: State, key: Key) -> list[BudgetUse]:
    """Return the saved periods of a budget, the latest last."""
    return [use for _, use in sorted(book_of(state).uses.get(key, {}).items())]


def latest_of(state: State, key: Key) -> BudgetUse | None:
    """Return the latest period of a budget; None before the first one."""
    uses = book_of(state).uses.get(key)
    return uses[max(uses)] if uses else None


def meters_of(state: State, tree: Tree) -> Meters:
    """Return the meters of budgets: sums and rates of use by open spans.

    They are made again with each document, and when a period has begun.
    """
    book = book_of(state)
    meters = book.meters
    if meters is not None and meters.tree is tree:
        return meters
    meters = book.meters = Meters(tree)
    if tree.has_budgets:
        for span in state.ledger.spans.values():
            for key, _ in paid_by(tree, span.queue, user_of(span)):
                count(state, meters, key, span.charged_milli, span.begins_ms)
    return meters


def count(state: State, meters: Meters, key: Key, milli: int, begins_ms: int, sign: int = 1) -> None:
    """Add the use of a span to a meter (sign 1), or subtract it (-1), from the begin of the period on."""
    use = latest_of(state, key)
    meters.of.setdefault(key, Meter()).add(milli, max(begins_ms, use.begins_ms if use else 0), sign)


def standing_of(state: State, tree: Tree, key: Key, budget: Budget, now_ms: int) -> Standing | None:
    """Return the state of a budget; None if its period has not been opened yet."""
    use = latest_of(state, key)
    if use is None or use.terms != terms_of(budget):
        return None
    meter = meters_of(state, tree).of.get(key, Meter())
    at_ms = min(max(now_ms, use.begins_ms), use.ends_ms)
    return Standing(budget, use, use.used + meter.at(at_ms), meter.rate, total_of(budget, use), now_ms)


def all_standing(state: State, now: float) -> list[Standing]:
    """Return the state of all budgets of queues, and of those that users have paid from."""
    tree = state.quota.tree
    standings = (standing_of(state, tree, key, budget, int(now * MS)) for key, budget in _known(state, tree))
    return [standing for standing in standings if standing is not None]


def all_periods(state: State, now: float) -> list[Standing]:
    """Return the saved past periods of all budgets, and the current ones; for each budget the latest last."""
    tree = state.quota.tree
    periods, now_ms = list[Standing](), int(now * MS)
    for key, budget in _known(state, tree):
        current = standing_of(state, tree, key, budget, now_ms)
        if current is not None:
            spans = paying(state, tree, key)
            *past, _ = uses_of(state, key)
            periods += [
                Standing(
                    budget, use, use.used + used_in(use, spans, now_ms), 0, total_of(budget, use), use.ends_ms
                )
                for use in past
            ]
            periods.append(current)
    return periods


def _known(state: State, tree: Tree) -> list[tuple[Key, Budget]]:
    """Return the budgets of queues, and those that users have paid from, by queue and user."""
    keys = dict(budgets_of(tree))
    for queue, user, _ in state.ledger.budget_uses:
        if user != EVERYBODY:
            keys |= {key: budget for key, budget in paid_by(tree, queue, user) if key == (queue, user)}
    return sorted(keys.items(), key=itemgetter(0))


def paying(state: State, tree: Tree, key: Key) -> list[Span]:
    """Return the open spans that pay from a budget."""
    return [
        span for span in state.ledger.spans.values() if key in dict(paid_by(tree, span.queue, user_of(span)))
    ]


def used_in(use: BudgetUse, spans: Iterable[Span], until_ms: int) -> int:
    """Return the usage of open spans within a period up to a time, in thousandths of cost times milliseconds."""
    return sum(
        span.charged_milli * overlap_ms(span.begins_ms, until_ms, use.begins_ms, use.ends_ms)
        for span in spans
    )


class Budgets:
    """Standing of budgets during a match; time does not pass in it."""

    def __init__(self, state: State, now: float) -> None:
        self._state, self._tree, self._now_ms = state, state.quota.tree, int(now * MS)
        self._known: dict[Key, Standing | None] = {}
        self._promised: dict[Key, tuple[int, int]] = {}

    def must_borrow(self, job: Job) -> bool:
        """Return whether a budget of the job is empty and lets its jobs only borrow."""
        return any(must_borrow(standing) for standing in self.paid_by(job))

    def paid_by(self, job: Job) -> Iterator[Standing]:
        """Yield the standing of the budgets that pay for a job."""
        if not self._tree.has_budgets:
            return
        for key, budget in paid_by(self._tree, job.spec.queue, job.charged_to):
            if key not in self._known:
                standing = standing_of(self._state, self._tree, key, budget, self._now_ms)
                self._known[key] = standing or self._unpaid(key, budget)
            standing = self._known[key]
            if standing is not None:
                yield standing

    def _unpaid(self, key: Key, budget: Budget) -> Standing | None:
        """Return the state of a budget of a user who has not paid from it yet; the first payment opens its period."""
        use = opened(key, budget, latest_of(self._state, key), 0, self._now_ms)
        return None if use is None else Standing(budget, use, 0, 0, total_of(budget, use), self._now_ms)

    def demand(self, job: Job, cost_milli: int, standing: Standing, taken_below: Taken) -> "Demand":
        """Return the demand of a job on a budget by its time limit, beside all running jobs.

        Args:
            job: Job that waits, with a time limit.
            cost_milli: Cost of all its tasks at most, thousandths.
            standing: Standing of the budget.
            taken_below: Charges that this match has taken so far for a queue and those below it.
        """
        promised, later = self._of_running(standing)
        user = standing.use.user
        for other, charge in taken_below(standing.use.queue):
            if user in (EVERYBODY, charge.user):
                promised += charge.rate * self._longest_ms(other)
        percent = charge_percent(self._state.quota.queues, job.spec.job_class)
        return Demand(promised, later, charged(cost_milli, percent) * self._longest_ms(job))

    def _of_running(self, standing: Standing) -> tuple[int, int]:
        """Return the cost that running jobs may still cause by their time limits, and its part after the period."""
        key = standing.use.queue, standing.use.user
        promise = self._promised.get(key)
        if promise is None:
            rest = later = 0
            for span in self._state.ledger.spans.values():
                job = self._state.work.jobs.get(span.job_id)
                if job is not None and key in dict(paid_by(self._tree, span.queue, user_of(span))):
                    rest_ms = self._rest_ms(job)
                    rest += span.charged_milli * rest_ms
                    later += span.charged_milli * max(0, self._now_ms + rest_ms - standing.use.ends_ms)
            promise = self._promised[key] = rest, later
        return promise

    def _longest_ms(self, job: Job) -> int:
        """Return the longest time for which a job may run, in milliseconds."""
        return int(((job.spec.timeout_s or 0.0) + job.spec.kill_grace_s) * MS)

    def _rest_ms(self, job: Job) -> int:
        """Return the longest time for which a running job may still run, in milliseconds."""
        begun_ms = self._now_ms if job.started_at is None else int(job.started_at * MS)
        return max(0, begun_ms + self._longest_ms(job) - self._now_ms)


@dataclass(frozen=True, slots=True)
class Demand:
    """Use of a budget that time limits allow, in thousandths of cost times milliseconds.

    Attributes:
        promised: Use by running jobs.
        later: Part of `promised` that lies after the period.
        wanted: Use by the job that waits.
    """

    promised: int
    later: int
    wanted: int


# --- reasons


class PaidCase(Protocol):
    """Job that budgets pay for.

    Attributes:
        job: Job that waits.
        budgets: Standing of budgets.
    """

    job: Job
    budgets: Budgets

    @property
    def lacks_seat(self) -> bool:
        """Whether the job starts only within a guarantee, and has no seat."""

    @property
    def most(self) -> int:
        """Highest cost of all its tasks, in thousandths."""

    def taken_below(self, queue: str) -> Iterable[tuple[Job, Charge]]:
        """Return the charges of this match so far for a queue and those below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetDeniesSeat(Reason[PaidCase]):
    """Reason: the budget is empty, so its jobs may only borrow, and this job may not borrow.

    Attributes:
        standing: State of the budget.
    """

    standing: Standing
    stage: Stage = Stage.BUDGET

    @classmethod
    def concerns(cls, tree: Tree) -> bool:
        """Return whether the tree has budgets and guarantees."""
        return tree.has_budgets and tree.is_guaranteed

    @classmethod
    def decide(cls, case: PaidCase) -> Iterator[Self]:
        """Yield each empty budget of a job that needs a seat."""
        if case.lacks_seat:
            for standing in case.budgets.paid_by(case.job):
                if must_borrow(standing):
                    yield cls(standing=standing, until=_opens_at(standing))

    def explain(self) -> str:
        """Return the text: which budget, and when it opens again."""
        empty = f"{_named(self.standing.use)} {_over(self.standing)}"
        words = "so its jobs borrow, and this one may not: it is not preemptible"
        return f"{empty}, {words}; {_again(self.standing)}"

    def lack(self) -> Lack | None:
        """Return None, as the end of a job gives nothing back to a budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSpent(Reason[PaidCase]):
    """Reason: a budget is used up, or a safe budget could be exceeded by the time limits of jobs.

    Attributes:
        standing: State of the budget.
        is_over: Whether the budget is used up, or its period is not now.
        demand: Use by time limits; None if the job has no time limit.
    """

    standing: Standing
    is_over: bool = False
    demand: Demand | None = None
    stage: Stage = Stage.BUDGET

    @classmethod
    def concerns(cls, tree: Tree) -> bool:
        """Return whether the tree has budgets."""
        return tree.has_budgets

    @classmethod
    def decide(cls, case: PaidCase) -> Iterator[Self]:
        """Yield each budget of the job that is used up, or that is safe and that time limits could exceed."""
        for standing in case.budgets.paid_by(case.job) if case.most else ():
            if may_not_start(standing):
                yield cls(standing=standing, is_over=True, until=_opens_at(standing))
            elif standing.budget.safe and case.job.spec.timeout_s is None:
                yield cls(standing=standing)
            elif standing.budget.safe:
                demand = case.budgets.demand(case.job, case.most, standing, case.taken_below)
                if demand.promised + demand.wanted > standing.left:
                    enough = demand.later + demand.wanted <= standing.budget.milli_s * MS
                    yield cls(standing=standing, demand=demand, until=_opens_at(standing) if enough else None)

    def explain(self) -> str:
        """Return the text: which budget, what it lacks, and when it opens again."""
        standing, name = self.standing, _named(self.standing.use)
        if self.is_over:
            return f"{name} {_over(standing)}; {_again(standing)}"
        if self.demand is None:
            return f"{name} starts only jobs with a time limit; set timeout_s for this job"
        promised, demanded = self.demand.promised, self.demand.wanted
        words = (
            f"{name} has {_hours(standing.left)} GPU hours left, of which running jobs may use {_hours(promised)} by "
            f"their time limits, and this one {_hours(demanded)}"
        )
        whole = _whole(standing.budget)
        if demanded > whole:
            return f"{words}; a whole period has {_hours(whole)} at most, so it waits for a grant"
        return f"{words}; {_again(standing)}"

    def lack(self) -> Lack | None:
        """Return None, as the end of a job gives nothing back to a budget."""


def _whole(budget: Budget) -> int:
    """Return the most that a period can have, with what is carried over."""
    return budget.milli_s * MS * (WHOLE + budget.carry_over_percent) // WHOLE


def _named(use: BudgetUse) -> str:
    """Return the name of a budget for messages."""
    whose = "" if use.user == EVERYBODY else f" of user {use.user}"
    return f"the budget{whose} of queue {use.queue}"


def _over(standing: Standing) -> str:
    """Return why a budget lets no job start, for messages."""
    if standing.outside:
        early = standing.now_ms < standing.use.begins_ms
        return "has not begun" if early else "has ended"
    return f"is used up: {_hours(standing.total)} GPU hours"


def _opens_at(standing: Standing) -> float | None:
    """Return when a budget has GPU hours again, in seconds since the epoch; None if it never has."""
    once, use = standing.budget.period is Period.ONCE, standing.use
    if once and standing.now_ms >= use.begins_ms:
        return None
    return (use.begins_ms if once else use.ends_ms) / MS


def _again(standing: Standing) -> str:
    """Return when a budget has GPU hours again, in words."""
    opens_at = _opens_at(standing)
    if opens_at is None:
        return "there is no other period"
    at = datetime.fromtimestamp(opens_at, ZoneInfo(standing.budget.zone)).strftime("%Y-%m-%d %H:%M %Z")
    return f"it begins {at}" if standing.budget.period is Period.ONCE else f"the next period opens {at}"


def _hours(amount: int) -> str:
    """Return an amount as GPU hours, in words."""
    return f"{amount / _HOUR:.10g}" if amount % (_HOUR // 1000) == 0 else f"{amount / _HOUR:.3f}"


def stops(standing: Standing) -> bool:
    """Return whether running jobs are ended now because the budget is empty."""
    return standing.empty and standing.budget.on_empty is OnEmpty.STOP


def words_of(standing: Standing) -> str:
    """Return why jobs are ended because of a budget, in words."""
    return f"{_named(standing.use)} {_over(standing)}"
