"""Cases for reasons of queues and users, and the waits that follow from them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.policy.admission.limits import Count, Scope, Wait, needs_seat
from mesos_gpu.policy.admission.reasons import ClassLeftQueue, NoSeat, QueueOnHold, ScopeLimit
from mesos_gpu.policy.tenancy.tree import Tree


@dataclass
class InQueue:
    """Job in its queue."""

    tree: Tree
    spec: JobSpec
    seated: bool

    @property
    def lacks_seat(self) -> bool:
        return not self.seated and needs_seat(self.tree, self.spec)


@dataclass
class InScopes:
    """Job below limits of queues and users."""

    scopes: Sequence[Scope]
    least: int
    jobs: Count
    gpus: Count

    def running(self, path: str, user: str) -> int:
        return self.jobs(path, user)

    def held(self, path: str, user: str) -> int:
        return self.gpus(path, user)


def wait_of_queue(tree: Tree, spec: JobSpec, *, seated: bool) -> Wait | None:
    """Return the first reason of a queue, a class or a guarantee."""
    case = InQueue(tree, spec, seated)
    reasons = chain(QueueOnHold.decide(case), ClassLeftQueue.decide(case), NoSeat.decide(case))
    return next((each.wait() for each in reasons), None)


def waits_of_scopes(scopes: Sequence[Scope], cost_milli: int, running: Count, held: Count) -> Iterator[Wait]:
    """Yield all reasons of limits of queues and users."""
    return (each.wait() for each in ScopeLimit.decide(InScopes(scopes, cost_milli, running, held)))
