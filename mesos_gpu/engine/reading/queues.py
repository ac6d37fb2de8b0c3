"""Readers of queues, budgets and bookings."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from mesos_gpu.engine.bookings.documents import beside_bookings, refuse_unusable
from mesos_gpu.engine.calendar.booked import booking_called
from mesos_gpu.engine.explain import shares
from mesos_gpu.engine.explain.queue_why import queue_why
from mesos_gpu.engine.explain.trial import Trial
from mesos_gpu.engine.queue.budgets import all_periods, all_standing
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.tenancy import accounts
from mesos_gpu.engine.tenancy.document import found_of, refuse_homeless
from mesos_gpu.engine.tenancy.planned import planned
from mesos_gpu.model.bookings.booking import Booking
from mesos_gpu.model.jobs.permits import Permits
from mesos_gpu.model.queue_plan import QueuePlan
from mesos_gpu.model.queue_share import PathShare, QueueShare
from mesos_gpu.model.queue_why import QueueWhy
from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.policy.accounts.budget import Standing
from mesos_gpu.policy.accounts.sums import Row
from mesos_gpu.policy.tenancy.checks import Findings
from mesos_gpu.policy.times.hours import Span, span_at
from mesos_gpu.wire.checking import escaped


def queue_shares(view: View) -> Sequence[QueueShare]:
    """Return each queue of the tree in each pool that has GPUs, or nothing without a tree."""
    return shares.queue_shares(view.state, view.settings, view.now)


def path_share(view: View, path: str) -> PathShare:
    """Return the shares of a queue and of those above it, with the numbers from which they follow.

    Raises:
        NotFound: The queue does not exist.
    """
    return shares.path_share(view.state, view.settings, path, view.now)


def explain_queue(view: View, path: str) -> QueueWhy:
    """Return why jobs of a queue wait.

    Raises:
        NotFound: There is no such queue.
    """
    return queue_why(view.state, view.settings, path, view.now)


def check_queues(view: View, document: QueueDocument) -> Findings:
    """Check a document of queues against the present jobs, bookings and nodes.

    Raises:
        Conflict: Jobs would be in no leaf, or a booking would be unusable.
    """
    refuse_homeless(view.state, view.settings, document)
    refuse_unusable(view.state, document)
    of_queues = found_of(view.state, view.settings, document, view.now)
    findings = beside_bookings(view.state, document, of_queues, view.now)
    return replace(findings, faults=(*findings.faults, *_without_store(view, document)))


def _without_store(view: View, document: QueueDocument) -> Iterator[tuple[str, str]]:
    """Yield the queues whose image secret cannot be read, as the scheduler has no secret store for it."""
    permits = Permits(secrets=view.settings.secret_store.secrets)
    for path, spec in document.queues.items():
        if spec.image_secret and (why := permits.problem_of_secrets([spec.image_secret])):
            yield f"/queues/{escaped(path)}/image_secret", why


def hours_of(view: View, document: QueueDocument) -> tuple[Span, Span | None]:
    """Return the hours of a document that hold now, and the next ones; None if no others follow."""
    now = span_at(document, view.now)
    return now, None if now.until == inf else span_at(document, now.until)


def plan_queues(view: View, document: QueueDocument) -> QueuePlan:
    """Return the changes to jobs and queues that would follow if a document became the next version."""
    trial = Trial(view.state, view.settings, document, view.now)
    plan = planned(view.state, document, view.now)
    return replace(plan, reclaims=trial.reclaims(), blocks=trial.blocks())


def budget_standings(view: View) -> Sequence[Standing]:
    """Return the state of each budget of a queue, and of those that users have paid from."""
    return all_standing(view.state, view.now)


def budget_periods(view: View) -> Sequence[Standing]:
    """Return the state of each budget at the end of its saved periods, and now."""
    return all_periods(view.state, view.now)


def unmet_demand(view: View) -> Sequence[Row]:
    """Return the demand of jobs that have not started."""
    return accounts.unmet(view.state, view.now)


def find_booking(view: View, name: str) -> Booking | None:
    """Return the booking of that id, or of that name if it has not ended, or None."""
    return booking_called(view.state, name)
