"""Explanation why jobs of a queue wait. Amounts are thousandths of cost unless stated otherwise."""

from dataclasses import dataclass

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.why import Why
from mesos_gpu.model.queue_share import QueueShare


@dataclass(frozen=True, slots=True)
class QueuePool:
    """Figures of a queue and all queues below it in one pool.

    Attributes:
        share: Guarantee, fair share, held and lent amounts, and demand.
        seated: Amount that its jobs hold within guarantees; jobs of other queues do not preempt these.
    """

    share: QueueShare
    seated: int


@dataclass(frozen=True, slots=True)
class WaitGroup:
    """Waiting jobs with one kind of reason.

    Attributes:
        reason: A stage of the admission checks; `gpus` for capacity on nodes; `pace` for their turn on nodes with free
            capacity; `retry` for their next launch; `secrets`.
        jobs: Number of jobs.
        gpus_milli: GPUs that they request, in thousandths.
        first: First of the jobs in queue order.
        words: Reason why `first` waits; "" if it waits for capacity, as its own explanation has more.
    """

    reason: str
    jobs: int
    gpus_milli: int
    first: JobId
    words: str


@dataclass(frozen=True, slots=True)
class QueueWhy:
    """The answer to "why does nothing of this queue start"."""

    path: str
    summary: str  # one sentence
    pools: tuple[QueuePool, ...]
    waits: tuple[WaitGroup, ...]  # in the order of their first jobs
    first: Why | None  # of its first waiting job; None if no job waits
