"""A role of Mesos, as a master knows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

GPUS: Final = "gpus"
Amounts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Role:
    """A role. Amounts by the name of a resource.

    Attributes:
        name: Of it.
        weight: Beside others; 1 if nobody has set it.
        limits: What its frameworks may have at most; a resource that is not named has no limit.
        guarantees: What the master holds back for it.
        used: What is allocated to it and reserved for it.
        frameworks: Ids of those that are subscribed with it.
    """

    name: str
    weight: float = 1.0
    limits: Amounts = field(default_factory=dict)
    guarantees: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    frameworks: tuple[str, ...] = ()

    @property
    def gpus_left(self) -> float:
        """How many GPUs more it may have; endless without a limit. An offer to it has no more than that."""
        most = self.limits.get(GPUS)
        return inf if most is None else max(most - self.used.get(GPUS, 0.0), 0.0)
