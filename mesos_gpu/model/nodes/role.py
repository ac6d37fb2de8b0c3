"""Mesos roles, as a master reports them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

GPUS: Final = "gpus"
Amounts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Role:
    """A Mesos role. Amounts are by resource name.

    Attributes:
        name: Name of the role.
        weight: Weight relative to other roles; 1 if not set.
        limits: Upper limits of its frameworks; resources that are not listed have no limit.
        guarantees: Amounts that the master sets aside for the role.
        used: Amounts allocated to and reserved for the role.
        frameworks: Ids of the frameworks subscribed with the role.
    """

    name: str
    weight: float = 1.0
    limits: Amounts = field(default_factory=dict)
    guarantees: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    frameworks: tuple[str, ...] = ()

    @property
    def gpus_left(self) -> float:
        """Number of GPUs up to the limit of the role, which also bounds offers to it; infinite without a limit."""
        most = self.limits.get(GPUS)
        return inf if most is None else max(most - self.used.get(GPUS, 0.0), 0.0)
