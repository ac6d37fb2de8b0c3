"""Why the jobs of a queue wait, as others see it. Amounts are thousandths of cost where nothing else is said."""

from dataclasses import dataclass

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.why import Why
from mesos_gpu.model.queue_share import QueueShare


@dataclass(frozen=True, slots=True)
class QueuePool:
    """What a queue has of a pool, with all below it.

    Attributes:
        share: What it is guaranteed, due, holds, lends and waits for.
        seated: What its jobs hold within guarantees: nobody outside of their queue stops these.
    """

    share: QueueShare
    seated: int


@dataclass(frozen=True, slots=True)
class WaitGroup:
    """Jobs that wait for the same kind of thing.

    Attributes:
        reason: A stage of the funnel; `gpus`: for room on nodes; `pace`: for their turn on nodes with room;
            `retry`: for their next launch; `secrets`.
        jobs: How many.
        gpus_milli: Thousandths of GPUs that they ask for.
        first: Of them, in the line.
        words: Why that one waits; "": for room, its own explanation says more.
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
    first: Why | None  # of the first of its jobs in the line; None: none waits
