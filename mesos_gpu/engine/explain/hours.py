"""Effects of the next hours of queues on a queue and on its pending jobs. It does not change the state."""

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

_MAX_SPANS: Final = 16  # number of changes of hours that are examined
_WORDS: Final = {
    "guarantee_gpus": "is guaranteed",
    "limit_gpus": "may hold",
    "borrow_limit_gpus": "may borrow",
    "lend_limit_gpus": "lends",
    "weight": "has the weight",
    "band": "is of band",
}


def next_hours(state: State, path: str) -> Span | None:
    """Return the next hours that change figures of a queue or of one above it; None without such hours."""
    now = span = state.quota.hours.span
    for _ in range(_MAX_SPANS if state.quota.tree.has_hours(path) else 0):
        if span.until == float("inf"):
            return None
        span = span_at(state.quota.queues, span.until)
        if changed(now.document, span.document).keys() & {*lineage(path)}:
            return span
    return None


def hours_words(state: State, path: str, now: float) -> str:
    """Return what the next hours change for a queue, in words; "" if nothing."""
    span = next_hours(state, path)
    if span is None:
        return ""
    figures = changed(state.quota.hours.span.document, span.document)
    changes = "; ".join(
        f"queue {queue} {' and '.join(_figure_words(state, queue, figures[queue]))}"
        for queue in lineage(path)
        if queue in figures
    )
    return f"from {clock(span.since, now)} on {changes}"


def _figure_words(state: State, path: str, figures: Any) -> Iterator[str]:
    """Yield the figures of a queue that the next hours change, in words."""
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
    """Return when a job may start in the next hours that matter to it; None if that is not known.

    Args:
        state: State of the engine, which is copied for the trial.
        settings: Settings of the scheduler.
        now: Time, in seconds since the epoch.
        job: Job that waits.
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
    estimate = forecast.estimate(then.work.jobs[job.id])
    if estimate.at is None:
        return None
    basis = f"{estimate.basis}, with the hours from {clock(span.since, now)} on"
    return replace(estimate, at=max(estimate.at, span.since), basis=basis)
