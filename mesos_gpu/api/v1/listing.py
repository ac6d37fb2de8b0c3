"""Which jobs a request lists, and in which order."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from starlette.requests import Request

from mesos_gpu.api.http import requests as asked
from mesos_gpu.api.http.answers import invalid
from mesos_gpu.api.scheduler_api import View
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.spec import shapes
from mesos_gpu.api.v1 import views
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.wire.checking import Problem

ACTIVE = "active"  # as a state: all that have not ended


class Order(StrEnum):
    """How jobs are listed."""

    NEWEST = "newest"
    ACTIVITY = "activity"  # what runs before what waits before what has ended; of each the newest first


@dataclass(frozen=True, slots=True)
class Listing:
    """A request for a list of jobs. Empty filters let everything through; `labels` are keys or `key=value`."""

    states: frozenset[str]
    labels: tuple[str, ...]
    name: str
    order: Order
    limit: int
    sight: Sight

    @classmethod
    def of(cls, request: Request) -> "Listing":
        """What a query asks for.

        Raises:
            Refusal: A state or an order that there is not, or a limit that is none.
        """
        query = request.query_params
        states, order = frozenset(query.getlist("state")), query.get("order", Order.NEWEST)
        known_states, orders = [ACTIVE, *(state.value for state in JobState)], list(Order)
        unknown = states - set(known_states)
        if unknown:
            raise invalid(
                Problem("/state", f"{min(unknown)!r} is no state; there are {', '.join(known_states)}")
            )
        if order not in orders:
            raise invalid(Problem("/order", f"{order!r} is no order; there are {', '.join(orders)}"))
        labels, name = tuple(query.getlist("label")), query.get("name", "")
        return cls(states, labels, name, Order(order), int(asked.MOST_LISTED.of(request)), Sight.of(request))

    def select(self, view: View) -> shapes.Jobs:
        """The first `limit` of the jobs that match, and how many match."""
        newest = reversed(view.jobs.values())  # type: ignore[call-overload]
        matching: list[Job] = [job for job in newest if self._matches(job)]
        if self.order is Order.ACTIVITY:
            matching = by_activity(matching)
        return {
            "jobs": [views.job(view, job, self.sight) for job in matching[: self.limit]],
            "total": len(matching),
        }

    def _matches(self, job: Job) -> bool:
        if (
            self.states
            and job.state.value not in self.states
            and not (ACTIVE in self.states and not job.state.ended)
        ):
            return False
        if self.name not in job.spec.name or not self.sight.sees(job):
            return False
        if self.labels and not self.sight.reads(job):
            return False
        for label in self.labels:
            key, equals, value = label.partition("=")
            if key not in job.spec.labels or (equals and job.spec.labels[key] != value):
                return False
        return True


def by_activity(jobs: Sequence[Job]) -> list[Job]:
    """What runs, or is about to, first; then what waits, then what has ended; else in the order given."""
    groups: tuple[list[Job], list[Job], list[Job]] = ([], [], [])
    for job in jobs:
        groups[2 if job.state.ended else 1 if job.state is JobState.PENDING else 0].append(job)
    return [job for group in groups for job in group]
