"""A placement constraint, as Marathon 1.11 has it: a field of the node, an operator, perhaps a value."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

HOSTNAME: Final = ("hostname", "@hostname")
REGION: Final = "@region"
ZONE: Final = "@zone"
HOST: Final = "host"  # the innermost level of a fabric: the node itself


class Operator(Enum):
    """What is asked of the field. All but LIKE, UNLIKE, IS and CLUSTER with a value look at the app's jobs."""

    UNIQUE = "UNIQUE"  # each job of the app has another value
    CLUSTER = "CLUSTER"  # the value, or without one: that of the app's first job
    GROUP_BY = "GROUP_BY"  # evenly over the values; with a number: over so many values, and no others
    LIKE = "LIKE"  # a regular expression, of the whole value
    UNLIKE = "UNLIKE"
    MAX_PER = "MAX_PER"  # so many jobs of the app a value
    IS = "IS"  # the same text, or the same number to three decimals


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint of a job; all must hold. `field` is hostname, @hostname, @region, @zone or an attribute's name."""

    field: str
    operator: Operator
    value: str = ""  # "" is none

    @property
    def compares(self) -> bool:
        """Whether it looks at the app's other jobs."""
        if self.operator is Operator.CLUSTER:
            return not self.value
        return self.operator in (Operator.UNIQUE, Operator.GROUP_BY, Operator.MAX_PER)

    @property
    def is_even(self) -> bool:
        """Whether tasks go to the value of the field that has the fewest, of those with room: a preference."""
        return self.operator is Operator.GROUP_BY and not self.value

    def as_list(self) -> list[str]:
        """Write the constraint as Marathon does."""
        return [self.field, self.operator.value, *([self.value] if self.value else [])]

    def __str__(self) -> str:
        """Write the constraint for people."""
        return " ".join(self.as_list())


@dataclass(frozen=True, slots=True)
class Topology:
    """A level of the fabric at which the tasks of a job, or of its app, are to be together.

    Attributes:
        level: Name of the level.
        is_required: Whether tasks that do not fit so must wait, rather than take more groups of the level.
    """

    level: str
    is_required: bool

    @property
    def key(self) -> str:
        """The name of the wish in a request: "required" or "preferred"."""
        return "required" if self.is_required else "preferred"

    def __str__(self) -> str:
        """Write the wish as options do, "required:rack"."""
        return f"{self.key}:{self.level}"


def scalar_text(value: float) -> str:
    """Java's DecimalFormat("0.###"): at most three decimals, half to even, no zeros at the end."""
    return f"{value:.3f}".rstrip("0").rstrip(".")
