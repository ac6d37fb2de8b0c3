"""Policies of `mesos-gpu simulate jobs`: the order of jobs, and whether running ones are preempted. Pure.

fifo, srtf and srsf are the usual baselines. srtf and srsf know how long each job will run, which no real scheduler
does; las and mesos-gpu know only what a scheduler sees.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from mesos_gpu.policy.tenancy.las import HOUR_MS, STEPS, Rank, Steps


@dataclass(slots=True)
class Known:
    """Facts about a job that a scheduler knows.

    `served_ms` is its run time; it starts at 0 again when the job is lifted to the front after a long wait.
    """

    milli: int  # thousandths of GPUs
    submitted_ms: int
    served_ms: int = 0
    lifted: bool = False  # whether it was moved to the front after it had waited for `lift_after_ms`


class Order(Protocol):
    """Policy: the lowest rank runs first; among equal ranks the first submitted, then the smallest, then by name."""

    @property
    def knows_durations(self) -> bool:
        """Whether `rank` gets the remaining run time of a job."""

    @property
    def preempts(self) -> bool:
        """Whether running jobs may be preempted."""

    @property
    def strict(self) -> bool:
        """Whether no job may overtake a job that does not fit."""

    @property
    def lift_after_ms(self) -> int | None:
        """Uninterrupted wait after which a job goes before all others, with no service counted; None for never."""

    def rank(self, known: Known, left_ms: int) -> Rank:
        """Return the rank of a job. `left_ms` is its remaining run time; 0 unless `knows_durations`."""

    def changes_in_ms(self, known: Known) -> int | None:
        """Return the further run time in ms after which the rank changes by itself; None for never."""


@dataclass(frozen=True, slots=True)
class Fifo:
    """Policy fifo: order of submission, without preemption and without overtaking."""

    knows_durations: bool = False
    preempts: bool = False
    strict: bool = True
    lift_after_ms: int | None = None

    def rank(self, known: Known, left_ms: int) -> Rank:
        """Return the same rank for all jobs, so that the submission decides."""
        return ()

    def changes_in_ms(self, known: Known) -> int | None:
        """Return None: the rank never changes."""
        return None


@dataclass(frozen=True, slots=True)
class Shortest:
    """Policies srtf, shortest remaining time, and srsf (`by_service`), shortest remaining GPU time."""

    by_service: bool
    knows_durations: bool = True
    preempts: bool = True
    strict: bool = False
    lift_after_ms: int | None = None

    def rank(self, known: Known, left_ms: int) -> Rank:
        """Return the remaining time or GPU time."""
        return (left_ms * known.milli if self.by_service else left_ms,)

    def changes_in_ms(self, known: Known) -> int | None:
        """Return None: a running job only improves its rank, so no other overtakes it in the meantime."""
        return None


@dataclass(frozen=True, slots=True)
class Levels:
    """Policies las and mesos-gpu: least attained service in levels, as in a queue with `order: las`."""

    steps: Steps
    knows_durations: bool = False
    preempts: bool = True
    strict: bool = False

    @property
    def lift_after_ms(self) -> int | None:
        """Uninterrupted wait after which a job goes before all others, with no service counted; None for never."""
        return self.steps.lift_after_ms

    def rank(self, known: Known, left_ms: int) -> Rank:
        """Return the level of the attained service, then the size."""
        return self.steps.rank_of(known.served_ms * known.milli, known.milli, lifted=known.lifted)

    def changes_in_ms(self, known: Known) -> int | None:
        """Return the further run time in ms until the next level."""
        _, until = self.steps.level(known.served_ms * known.milli)
        return -(-until // known.milli) - known.served_ms


ORDERS: Final[Mapping[str, Order]] = {
    "fifo": Fifo(),
    "srtf": Shortest(by_service=False),
    "srsf": Shortest(by_service=True),
    "las": Levels(Steps(HOUR_MS, 2)),
    "mesos-gpu": Levels(STEPS),
}

# Default costs of preemption in seconds, by policy: see `mesos_gpu.simulate.jobs.Prices`.
RESTARTS_S: Final[Mapping[str, float]] = {"mesos-gpu": 30.0}
PAUSES_S: Final[Mapping[str, float]] = {"srtf": 10.0, "srsf": 10.0, "las": 10.0}
