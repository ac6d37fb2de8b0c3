"""Who runs, and who is put off for whom: the policies of `mesos-gpu simulate jobs`. Pure.

fifo, srtf and srsf are what others compare with: the last two know how long each job will run, which no
scheduler does. las and mesos-gpu know only what a scheduler sees.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from mesos_gpu.policy.tenancy.las import HOUR_MS, STEPS, Rank, Steps


@dataclass(slots=True)
class Known:
    """What a scheduler knows of a job. `served_ms`: for how long it has run, since it was lifted."""

    milli: int  # thousandths of GPUs
    submitted_ms: int
    served_ms: int = 0
    lifted: bool = False  # it had waited for `lift_after_ms`


class Order(Protocol):
    """A policy: the lowest rank first. A tie goes to who came first, then to who asks for less, then by name."""

    @property
    def knows_durations(self) -> bool:
        """Whether `rank` is told how long a job will run."""

    @property
    def preempts(self) -> bool:
        """Whether who runs may be put off for another."""

    @property
    def strict(self) -> bool:
        """Whether nobody passes one who has no room."""

    @property
    def lift_after_ms(self) -> int | None:
        """Who waits so long at a stretch starts anew, before all others; None: no such thing."""

    def rank(self, known: Known, left_ms: int) -> Rank:
        """Where the job stands. `left_ms`: the rest of its run; 0 unless `knows_durations`."""

    def changes_in_ms(self, known: Known) -> int | None:
        """The service, ms, after which `rank` changes by itself; None: never."""


@dataclass(frozen=True, slots=True)
class Fifo:
    """First come, first served: nobody is put off, nobody passes."""

    knows_durations: bool = False
    preempts: bool = False
    strict: bool = True
    lift_after_ms: int | None = None

    def rank(self, known: Known, left_ms: int) -> Rank:
        """All the same: the tie decides."""
        return ()

    def changes_in_ms(self, known: Known) -> int | None:
        """None: a rank by arrival never changes."""
        return None


@dataclass(frozen=True, slots=True)
class Shortest:
    """Shortest remaining time (srtf); with `by_service` shortest remaining service, GPU time (srsf)."""

    by_service: bool
    knows_durations: bool = True
    preempts: bool = True
    strict: bool = False
    lift_after_ms: int | None = None

    def rank(self, known: Known, left_ms: int) -> Rank:
        """What is left."""
        return (left_ms * known.milli if self.by_service else left_ms,)

    def changes_in_ms(self, known: Known) -> int | None:
        """None: what is left shrinks while others run as well, and that only moves a runner forward."""
        return None


@dataclass(frozen=True, slots=True)
class Levels:
    """Least attained service, in steps: the order of a queue of the scheduler with `order: las`."""

    steps: Steps
    knows_durations: bool = False
    preempts: bool = True
    strict: bool = False

    @property
    def lift_after_ms(self) -> int | None:
        """Who waits so long at a stretch starts anew, before all others; None: nobody."""
        return self.steps.lift_after_ms

    def rank(self, known: Known, left_ms: int) -> Rank:
        """The level, then by size."""
        return self.steps.rank_of(known.served_ms * known.milli, known.milli, lifted=known.lifted)

    def changes_in_ms(self, known: Known) -> int | None:
        """The service, ms, until the next level."""
        _, until = self.steps.level(known.served_ms * known.milli)
        return -(-until // known.milli) - known.served_ms


ORDERS: Final[Mapping[str, Order]] = {
    "fifo": Fifo(),
    "srtf": Shortest(by_service=False),
    "srsf": Shortest(by_service=True),
    "las": Levels(Steps(HOUR_MS, 2)),
    "mesos-gpu": Levels(STEPS),
}

# What preemption costs if nobody says otherwise: see `mesos_gpu.simulate.jobs.Prices`.
RESTARTS_S: Final[Mapping[str, float]] = {"mesos-gpu": 30.0}
PAUSES_S: Final[Mapping[str, float]] = {"srtf": 10.0, "srsf": 10.0, "las": 10.0}
