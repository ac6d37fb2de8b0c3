"""Definition of a family of samples that is measured from the state."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mesos_gpu.engine.reading.view import View

Values = Iterable[tuple[tuple[str, ...], float]]  # values of the labels, in their order, and the number
Measured = Mapping[Callable[[View], Any], Any]  # immutable results, by the function that measured them


@dataclass(frozen=True, slots=True)
class Family:
    """A family of samples.

    Attributes:
        name: Name for Prometheus.
        kind: "counter" or "gauge".
        help: Meaning, in one sentence.
        measure: Function that measures the state on the engine's thread; families with the same function share its
            result.
        samples: Function that converts the result to samples on another thread.
        labels: Names of the labels.
    """

    name: str
    kind: str
    help: str
    measure: Callable[[View], Any]
    samples: Callable[[Any], Values]
    labels: tuple[str, ...] = ()
