"""What other hours change for a queue, and for a job that waits in it. It changes nothing."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from mesos_gpu.engine.explain.coming import Coming
from mesos_gpu.engine.journal import STATES
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.queue.forecast import Forecast, offered_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.seats import seat
from mesos_gpu.engine.tenancy.shares import standing_of
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.jobs.queue import Estimate
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.model.tenancy import DEFAULT_POOL, Guarantee
from mesos_gpu.model.words import clock, counted
from mesos_gpu.policy.tenancy.tree import lineage
from mesos_gpu.policy.times.hours import Span, changed, span_at

_MAX_SPANS: Final = 16  # that are looked at
_WORDS: Final = {
    "guarantee_gpus": "is guaranteed",
    "limit_gpus": "may hold",
    "borrow_limit_gpus": "may borrow",
    "lend_limit_gpus": "lends",
    "weight": "has the weight",
    "band": "is of band",
}


def next_hours(state: State, path: str) -> Span | None:
    """The next hours in which figures of a queue, or of one above it, are others; None: there are none."""
    now = span = state.quota.hours.span
    for _ in range(_MAX_SPANS if state.quota.tree.has_hours(path) else 0):
        if span.until == float("inf"):
            return None
        span = span_at(state.quota.queues, span.until)
        if changed(now.document, span.document).keys() & {*lineage(path)}:
            return span
    return None


def hours_words(state: State, path: str, now: float) -> str:
    """What the next hours change for a queue, in words; "": nothing does."""
    span = next_hours(state, path)
    if span is None:
        return ""
    figures = changed(state.quota.hours.span.document, span.document)
    said = "; ".join(
        f"queue {each} {' and '.join(_said(state, each, figures[each]))}"
        for each in lineage(path)
        if each in figures
    )
    return f"from {clock(span.since, now)} on {said}"


def _said(state: State, path: str, figures: Any) -> Iterator[str]:
    before = state.quota.hours.span.document.queues[path]
    for name, value in figures.items():
        if not isinstance(value, dict):
            yield f"{_WORDS[name]} {value}"
            continue
        old = getattr(before, name)
        for pool, amount in value.items():
            if old.get(pool) != amount:
                milli = amount.milli if isinstance(amount, Guarantee) else amount
                of_pool = "" if pool == DEFAULT_POOL else f" of pool {pool}"
                yield f"{_WORDS[name]} {counted(number_of(milli), 'GPU')}{of_pool}"


def estimate_then(state: State, settings: Settings, now: float, job: Job) -> Estimate | None:
    """When a job may start in the next hours that change anything for it; None: nobody knows.

    Args:
        state: The engine's; it is tried on a copy.
        settings: The operator's.
        now: Seconds since the epoch.
        job: One that waits.
    """
    span = next_hours(state, job.spec.queue)
    if span is None:
        return None
    then = STATES.duplicate(state)
    then.quota.hours_at = span.since
    standing = standing_of(then, settings, now)
    backlog = Backlog(then, settings, now, offered_of(then), reading=True, standing=standing)
    seating = seat(Turn(then, settings, span.since), backlog.barriers.may_be_seated)
    then.quota.seats_given = seating.given
    forecast = Forecast(then, settings, now, standing, Coming(then, settings, now), until=job.id)
    forecast.before(job.id)
    made = forecast.estimate(then.work.jobs[job.id])
    if made.at is None:
        return None
    basis = f"{made.basis}, with the hours from {clock(span.since, now)} on"
    return replace(made, at=max(made.at, span.since), basis=basis)
