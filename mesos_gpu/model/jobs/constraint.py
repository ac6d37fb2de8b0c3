"""Placement constraints as in Marathon 1.11: a field of the node, an operator, and an optional value."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

HOSTNAME: Final = ("hostname", "@hostname")
REGION: Final = "@region"
ZONE: Final = "@zone"
HOST: Final = "host"  # the innermost level of a fabric: the node itself


class Operator(Enum):
    """Condition of a constraint. UNIQUE, GROUP_BY, MAX_PER and CLUSTER without value compare the app's jobs."""

    UNIQUE = "UNIQUE"  # each job of the app has a different value
    CLUSTER = "CLUSTER"  # the given value, or else that of the app's first job
    GROUP_BY = "GROUP_BY"  # evenly over the values; with a number, over that many values only
    LIKE = "LIKE"  # a regular expression that matches the whole value
    UNLIKE = "UNLIKE"
    MAX_PER = "MAX_PER"  # at most that many jobs of the app per value
    IS = "IS"  # equal text, or a number equal to three decimals


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint of a job; all must hold. `field` is hostname, @hostname, @region, @zone or the name of an
    attribute."""

    field: str
    operator: Operator
    value: str = ""  # "" for no value

    @property
    def compares(self) -> bool:
        """Whether it compares the app's other jobs."""
        if self.operator is Operator.CLUSTER:
            return not self.value
        return self.operator in (Operator.UNIQUE, Operator.GROUP_BY, Operator.MAX_PER)

    @property
    def is_even(self) -> bool:
        """Whether it only prefers the value of the field with the fewest tasks, among values with free capacity."""
        return self.operator is Operator.GROUP_BY and not self.value

    def as_list(self) -> list[str]:
        """Return the constraint as a list, as in Marathon."""
        return [self.field, self.operator.value, *([self.value] if self.value else [])]

    def __str__(self) -> str:
        """Return the constraint as text for people."""
        return " ".join(self.as_list())


@dataclass(frozen=True, slots=True)
class Topology:
    """A level of the network fabric within one group of which the tasks of a job or an app should run.

    Attributes:
        level: Name of the level.
        is_required: Whether tasks wait for one group, instead of using several groups of the level.
    """

    level: str
    is_required: bool

    @property
    def key(self) -> str:
        """Name of the wish in a request: "required" or "preferred"."""
        return "required" if self.is_required else "preferred"

    def __str__(self) -> str:
        """Return the wish in the form of command line options, such as "required:rack"."""
        return f"{self.key}:{self.level}"


def scalar_text(value: float) -> str:
    """Format a number like Java's DecimalFormat("0.###"): at most 3 decimals, half to even, no zeros at the end."""
    return f"{value:.3f}".rstrip("0").rstrip(".")
