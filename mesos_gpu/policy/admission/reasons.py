"""Reasons of queues, classes and users that block a job before any node is examined. Pure.

A reason is a class with three functions: it decides for a case, it explains itself, and it tells which running work
would have to end before it stops blocking. The list of all of them is in `mesos_gpu.engine.queue.reasons`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.model.tenancy import JobClass, Stop
from mesos_gpu.model.words import counted
from mesos_gpu.policy.admission.limits import (
    Count,
    Lack,
    Scope,
    Wait,
    class_of,
    max_gpus_milli,
    never_seated,
    takes_queue,
)
from mesos_gpu.policy.tenancy.tree import Tree, lineage

C_contra = TypeVar("C_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason(ABC, Generic[C_contra]):
    """Reason that blocks a job before any node is examined.

    Attributes:
        stage: Kind of the reason, as users see it.
        until: Time at which it ends by itself, seconds since the epoch; None if it does not, or if that is unknown.
    """

    stage: Stage
    until: float | None = None

    @classmethod
    def concerns(cls, tree: Tree) -> bool:
        """Return whether the reason can block any job under a document."""
        return True

    @classmethod
    @abstractmethod
    def decide(cls, case: C_contra) -> Iterator[Self]:
        """Yield each instance of the reason that blocks a job; nothing if it does not block it."""

    @abstractmethod
    def explain(self) -> str:
        """Return the reason as text for users."""

    @abstractmethod
    def lack(self) -> Lack | None:
        """Return the usage that running jobs must free before the reason ends; None if the end of no job helps."""

    def wait(self) -> Wait:
        """Return the reason in the form that matches and readers keep."""
        return Wait(self.stage, self.explain(), self.until, self.lack())


class QueueCase(Protocol):
    """Job in its queue.

    Attributes:
        tree: Queues of the document.
        spec: Request of the job.
        lacks_seat: Whether it may start only with a place in its queue's guarantee (a seat), and has none.
    """

    tree: Tree
    spec: JobSpec

    @property
    def lacks_seat(self) -> bool:
        """Whether the job may start only with a place in its queue's guarantee (a seat), and has none."""


class ScopeCase(Protocol):
    """Job with the limits of queues and users that apply to it."""

    @property
    def scopes(self) -> Sequence[Scope]:
        """Scopes whose limits apply to the job, the closest first."""

    @property
    def least(self) -> int:
        """Least cost of all its tasks, in thousandths."""

    def running(self, path: str, user: str) -> int:
        """Return the number of jobs of a queue and user that hold any resources."""

    def held(self, path: str, user: str) -> int:
        """Return the usage of all pools together by a queue and user, in thousandths of cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOnHold(Reason[QueueCase]):
    """Hold of the queue of a job, or of an ancestor.

    Attributes:
        path: Path of the queue on hold.
    """

    path: str
    stage: Stage = Stage.HOLD

    @classmethod
    def decide(cls, case: QueueCase) -> Iterator[Self]:
        """Yield the closest queue on hold."""
        queue = case.tree.queues.get(case.spec.queue)
        if queue is not None and queue.stop is not Stop.NONE:
            above = lineage(case.spec.queue)
            yield cls(path=next(path for path in above if case.tree.specs[path].stop is not Stop.NONE))

    def explain(self) -> str:
        """Return which queue is on hold."""
        return f"queue {self.path} is on hold"

    def lack(self) -> Lack | None:
        """Return None, as a hold ends by a change of the document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLeftQueue(Reason[QueueCase]):
    """Class of a job that no longer exists, or that is for other queues now.

    Attributes:
        name: Name of the class.
        known: Definition of the class; None if it no longer exists.
    """

    name: str
    known: JobClass | None
    stage: Stage = Stage.CLASS

    @classmethod
    def decide(cls, case: QueueCase) -> Iterator[Self]:
        """Yield the job's class if it does not exist, or excludes the job's queue."""
        name = case.spec.job_class
        if name is not None:
            job_class = class_of(case.tree, name)
            if job_class is None or not takes_queue(job_class, case.spec.queue):
                yield cls(name=name, known=job_class)

    def explain(self) -> str:
        """Return which class is gone, or which queues it is for."""
        if self.known is None:
            return f"there is no class {self.name} any more"
        return f"class {self.name} is for queues {', '.join(self.known.queues)} now"

    def lack(self) -> Lack | None:
        """Return None, as the reason ends only by a change of the document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSeat(Reason[QueueCase]):
    """Missing place in a guarantee for a job that may not borrow. It does not block what is booked for the job.

    Attributes:
        never: Reason why the job never gets such a place, as text; "" if it may get one.
    """

    never: str
    stage: Stage = Stage.GUARANTEE

    @classmethod
    def concerns(cls, tree: Tree) -> bool:
        """Return whether any queue has a guarantee."""
        return tree.is_guaranteed

    @classmethod
    def decide(cls, case: QueueCase) -> Iterator[Self]:
        """Yield the reason if the job lacks a place in its queue's guarantee."""
        if case.lacks_seat:
            has_hours = case.tree.has_hours(case.spec.queue)
            never = "" if has_hours else never_seated(case.tree, case.spec, case.spec.counted_milli)
            yield cls(never=never)

    def explain(self) -> str:
        """Return that the guarantee is in use, or why it never has room for the job."""
        why = "it is not preemptible, so it starts only within what its queue is guaranteed"
        return self.never or f"{why}; nothing of that is free for it"

    def lack(self) -> Lack | None:
        """Return None, as seats cannot be added up: reclaim tests for each plan whether one would be free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeLimit(Reason[ScopeCase]):
    """Limit of a queue or a user over all pools together.

    Attributes:
        scope: Owner of the limit.
        most: The limit: number of running jobs if `counts_jobs`, else thousandths of cost.
        has: Amount that the owner has now.
        wanted: Amount that the job requests.
        counts_jobs: Whether the limit is a number of jobs.
    """

    scope: Scope
    most: int
    has: int
    wanted: int
    counts_jobs: bool = False

    @classmethod
    def decide(cls, case: ScopeCase) -> Iterator[Self]:
        """Yield the limits that the job would exceed."""
        for scope in case.scopes:
            most = scope.limits.max_running
            if most is not None and (has := case.running(scope.path, scope.user)) >= most:
                yield cls(stage=scope.stage, scope=scope, most=most, has=has, wanted=1, counts_jobs=True)
            yield from cls.of_gpus(scope, case.least, case.held)

    @classmethod
    def of_gpus(cls, scope: Scope, cost_milli: int, held: Count) -> Iterator[Self]:
        """Yield the limit of GPUs of an owner if a request would exceed it.

        Args:
            scope: Owner of the limit.
            cost_milli: Requested thousandths of cost.
            held: Function that returns the thousandths of cost held in all pools together.
        """
        most = max_gpus_milli(scope.limits)
        if most is not None and cost_milli and (has := held(scope.path, scope.user)) + cost_milli > most:
            yield cls(stage=scope.stage, scope=scope, most=most, has=has, wanted=cost_milli)

    def explain(self) -> str:
        """Return the owner, the limit, and what the owner has."""
        if self.counts_jobs:
            return f"{self.scope.words} may have {counted(self.most, 'job')} that run, and has {self.has}"
        most = counted(number_of(self.most), "GPU")
        return f"{self.scope.words} may hold {most}, and holds {number_of(self.has)}"

    def lack(self) -> Lack | None:
        """Return the usage that the owner's jobs must free; None if the job alone exceeds the limit."""
        if self.wanted > self.most:
            return None
        excess = self.has + self.wanted - self.most
        return Lack(excess, self.scope.path, user=self.scope.user, counts_jobs=self.counts_jobs)
