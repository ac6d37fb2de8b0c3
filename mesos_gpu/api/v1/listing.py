"""Lists of jobs: filters and order of a request."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from heapq import merge
from typing import Final

from starlette.requests import Request

from mesos_gpu.api.http import arrays
from mesos_gpu.api.http import requests as asked
from mesos_gpu.api.http.answers import invalid
from mesos_gpu.api.sight.jobs import Sight
from mesos_gpu.api.spec import shapes
from mesos_gpu.api.v1 import views
from mesos_gpu.engine.reading.jobs import round_of
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.quota import owner_of
from mesos_gpu.wire.checking import Problem
from mesos_gpu.wire.listing.filters import MAX_LENGTH, MAX_PATTERNS, By, Values, labels_of, passes

ACTIVE = "active"  # stands for all states of jobs that have not ended


#: Filters by patterns, by name in the query. Their fields are visible to all who see the job.
PATTERNS: Final[Mapping[str, By]] = {by.field: by for by in (By.NAME, By.USER, By.QUEUE, By.APP, By.NODE)}


class Order(StrEnum):
    """Order of listed jobs."""

    NEWEST = "newest"
    ACTIVITY = "activity"  # running, waiting, ended; each the newest first


@dataclass(frozen=True, slots=True)
class Listing:
    """A request for a list of jobs. Empty filters match all jobs.

    Attributes:
        states: States, or `ACTIVE`.
        name: Part of the name.
        patterns: Patterns by field.
        search: Part of a job's id, name, owner, queue or host, in lower case.
        no_instances: Whether instances of apps are left out.
        fold_arrays: Whether arrays are listed instead of their tasks.
        order: Order of the list.
        skip: Number of jobs that are skipped at the beginning.
        limit: Maximum number of jobs.
        sight: Visibility for the caller.
    """

    states: frozenset[str]
    name: str
    patterns: Mapping[By, Sequence[str]]
    search: str
    no_instances: bool
    fold_arrays: bool
    order: Order
    skip: int
    limit: int
    sight: Sight

    @classmethod
    def of(cls, request: Request) -> "Listing":
        """Return the listing that a query describes.

        Raises:
            Refusal: A state, the order or a number is not valid, or there are too many patterns.
        """
        query = request.query_params
        states, order = frozenset(query.getlist("state")), query.get("order", Order.NEWEST)
        known_states, orders = [ACTIVE, *(state.value for state in JobState)], list(Order)
        unknown = states - set(known_states)
        if unknown:
            raise invalid(
                Problem("/state", f"{min(unknown)!r} is not a state; states are {', '.join(known_states)}")
            )
        if order not in orders:
            raise invalid(Problem("/order", f"{order!r} is not an order; orders are {', '.join(orders)}"))
        return cls(
            states,
            name=query.get("name", ""),
            patterns=patterns_of(request, {**PATTERNS, "label": By.LABEL}),
            search=query.get("search", "").strip().lower(),
            no_instances=asked.NO_INSTANCES.of(request),
            fold_arrays=asked.FOLD_ARRAYS.of(request),
            order=Order(order),
            skip=int(asked.SKIP.of(request)),
            limit=int(asked.MAX_LISTED.of(request)),
            sight=Sight.of(request),
        )

    def select(self, view: View) -> shapes.Jobs:
        """Return up to `limit` of the matching jobs, and the number of all."""
        newest = self._newest(view)
        matching: list[Job] = [
            job for job in newest if self._matches(view, job) and self._is_searched(view, job)
        ]
        if self.order is Order.ACTIVITY:
            matching = by_activity(matching)
        return {
            "jobs": [views.job(view, job, self.sight) for job in matching[self.skip :][: self.limit]],
            "total": len(matching),
        }

    def _newest(self, view: View) -> Iterable[Job]:
        """Return all jobs, the newest first; with arrays instead of their tasks if requested."""
        newest: Iterable[Job] = reversed(view.jobs.values())  # type: ignore[call-overload]
        if not (self.fold_arrays and view.arrays):
            return newest
        alone = (job for job in newest if job.array not in view.arrays)
        folded = (arrays.shown(view, array) for array in reversed(view.arrays.values()))  # type: ignore[call-overload]
        return merge(alone, folded, key=lambda job: -job.submitted_at)

    def _is_searched(self, view: View, job: Job) -> bool:
        """Return whether a job contains the searched text.

        Hosts of its tasks are checked last, as they take longest.
        """
        if not self.search:
            return True
        words = (job.id, job.spec.name, owner_of(job), job.spec.queue)
        if any(self.search in word.lower() for word in words):
            return True
        return any(self.search in host.lower() for host in _hosts(view, job))

    def _matches(self, view: View, job: Job) -> bool:
        """Return whether a job passes all filters but the search."""
        if self.no_instances and job.app_version is not None:
            return False
        if (
            self.states
            and job.state.value not in self.states
            and not (ACTIVE in self.states and not job.state.ended)
        ):
            return False
        if self.name not in job.spec.name or not self.sight.sees(job):
            return False
        if By.LABEL in self.patterns and not self.sight.reads(job):
            return False
        return not self.patterns or passes(self.patterns, _values(view, job))


def patterns_of(request: Request, known: Mapping[str, By]) -> dict[By, list[str]]:
    """Return the patterns in a query. `known`: filters by name in the query.

    Raises:
        Refusal: There are too many patterns, or too long ones.
    """
    patterns = {by: given for key, by in known.items() if (given := request.query_params.getlist(key))}
    for key, by in known.items():
        given = patterns.get(by, [])
        if len(given) > MAX_PATTERNS or any(len(pattern) > MAX_LENGTH for pattern in given):
            why = f"must be at most {MAX_PATTERNS} patterns of at most {MAX_LENGTH} characters each"
            raise invalid(Problem(f"/{key}", why))
    return patterns


def of_nodes(request: Request) -> Callable[[str], bool]:
    """Return a function that tells whether a query's patterns match a host name.

    Raises:
        Refusal: There are too many patterns, or too long ones.
    """
    patterns = patterns_of(request, {"node": By.NODE})
    if not patterns:
        return lambda _: True
    return cache(lambda hostname: passes(patterns, {By.NODE: (hostname,)}))


def _values(view: View, job: Job) -> Values:
    """Return the values of a job's fields that patterns can match."""
    return {
        By.NAME: (job.spec.name,) if job.array is None else (job.spec.name, job.spec.name.rpartition(".")[0]),
        By.USER: (owner_of(job),),
        By.QUEUE: (job.spec.queue,),
        By.APP: (job.spec.app,) if job.spec.app else (),
        By.LABEL: labels_of(job.spec.labels),
        By.NODE: _hosts(view, job),
    }


def _hosts(view: View, job: Job) -> set[str]:
    return set() if job.state is JobState.PENDING else {task.hostname for task in round_of(view, job)}


def by_activity(jobs: Sequence[Job]) -> list[Job]:
    """Return running jobs first, then waiting, then ended ones, each in the given order."""
    groups: tuple[list[Job], list[Job], list[Job]] = ([], [], [])
    for job in jobs:
        groups[2 if job.state.ended else 1 if job.state is JobState.PENDING else 0].append(job)
    return [job for group in groups for job in group]
