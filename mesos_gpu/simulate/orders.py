"""Scheduling policies of `mesos-gpu simulate jobs`: the order of jobs, and whether running jobs are preempted. Pure.

fifo, srtf and srsf are common baselines; srtf and srsf know how long each job will run, which no real scheduler
does. las and mesos-gpu know only what a scheduler sees.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from mesos_gpu.policy.tenancy.las import HOUR_MS, STEPS, Rank, Steps


@dataclass(slots=True)
class Known:
    """Facts about a job that a scheduler can see."""

    milli: int  # thousandths of GPUs
    submitted_ms: int
    served_ms: int = 0  # run time, since the job was lifted if it was
    lifted: bool = False  # whether it was put before all others after a wait of `lift_after_ms`


class Order(Protocol):
    """A policy: the job of lowest rank goes first; ties by submission, then fewer GPUs, then job id."""

    @property
    def knows_durations(self) -> bool:
        """Whether `rank` gets the time that a job will still run."""

    @property
    def preempts(self) -> bool:
        """Whether running jobs may be preempted for others."""

    @property
    def strict(self) -> bool:
        """Whether a job that does not fit blocks all jobs behind it."""

    @property
    def lift_after_ms(self) -> int | None:
        """Uninterrupted wait after which a job goes before all others, as if it had not run; None for no such rule."""

    def rank(self, known: Known, left_ms: int) -> Rank:
        """Return the rank of a job. `left_ms`: the rest of its run time; 0 unless `knows_durations`."""

    def changes_in_ms(self, known: Known) -> int | None:
        """Return the further run time after which `rank` changes by itself, in ms; None if it never does."""


@dataclass(frozen=True, slots=True)
class Fifo:
    """First come, first served: no job is preempted, and none passes another."""

    knows_durations: bool = False
    preempts: bool = False
    strict: bool = True
    lift_after_ms: int | None = None

    def rank(self, known: Known, left_ms: int) -> Rank:
        """Return an equal rank for all jobs, so that the time of submission decides."""
        return ()

    def changes_in_ms(self, known: Known) -> int | None:
        """Return None, as a rank by submission never changes."""
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
        """Return the remaining time or service."""
        return (left_ms * known.milli if self.by_service else left_ms,)

    def changes_in_ms(self, known: Known) -> int | None:
        """Return None: the rest only shrinks while a job runs, which puts a running job further ahead."""
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
        """Uninterrupted wait after which a job goes before all others; None for no such rule."""
        return self.steps.lift_after_ms

    def rank(self, known: Known, left_ms: int) -> Rank:
        """Return the level of the attained service, then the size."""
        return self.steps.rank_of(known.served_ms * known.milli, known.milli, lifted=known.lifted)

    def changes_in_ms(self, known: Known) -> int | None:
        """Return the run time until the next level, in ms."""
        _, until = self.steps.level(known.served_ms * known.milli)
        return -(-until // known.milli) - known.served_ms


ORDERS: Final[Mapping[str, Order]] = {
    "fifo": Fifo(),
    "srtf": Shortest(by_service=False),
    "srsf": Shortest(by_service=True),
    "las": Levels(Steps(HOUR_MS, 2)),
    "mesos-gpu": Levels(STEPS),
}

#: Default costs of a restart and of a pause, by policy: see `mesos_gpu.simulate.jobs.Prices`.
RESTARTS_S: Final[Mapping[str, float]] = {"mesos-gpu": 30.0}
PAUSES_S: Final[Mapping[str, float]] = {"srtf": 10.0, "srsf": 10.0, "las": 10.0}
