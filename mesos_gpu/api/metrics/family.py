"""What a family of samples is, that is measured of the state."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mesos_gpu.engine.reading.view import View

Values = Iterable[tuple[tuple[str, ...], float]]  # of the labels, in their order, and the number
Measured = Mapping[Callable[[View], Any], Any]  # what cannot change any more, by what measured it


@dataclass(frozen=True, slots=True)
class Family:
    """A family of samples.

    Attributes:
        name: As Prometheus has it.
        kind: "counter" or "gauge".
        help: What it says, in one sentence.
        measure: What it takes from the engine, on the engine's thread; those that share it share one measurement.
        samples: What that is as samples, on another thread.
        labels: The names of what tells its samples from each other.
    """

    name: str
    kind: str
    help: str
    measure: Callable[[View], Any]
    samples: Callable[[Any], Values]
    labels: tuple[str, ...] = ()
