"""What a constraint asks of a node by itself, whatever runs where. Pure.

The rules are those of Marathon 1.11 (Constraints.scala), whose text form of attributes `Node.attributes` has.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from mesos_gpu.model.jobs.constraint import HOSTNAME, REGION, ZONE, Constraint, Operator, scalar_text
from mesos_gpu.model.jobs.pattern import matches

Judge = Callable[[str, str], bool | None]  # whether an expression matches a value; None: it is not known yet
#: Why a node will not do as long as it is not known whether it could.
UNDECIDED: Final = "it is still to be compared with this agent"


class Place(Protocol):
    """Where an agent is, and what it says of itself."""

    @property
    def hostname(self) -> str:
        """The name of its host."""

    @property
    def region(self) -> str | None:
        """A part of its fault domain; None: it has none."""

    @property
    def zone(self) -> str | None:
        """A part of its fault domain; None: it has none."""

    @property
    def attributes(self) -> Mapping[str, str]:
        """By name, in Marathon's text form."""


def value_of(field: str, node: Place) -> str | None:
    """The node's value of a constraint's field; None: it has none."""
    if field in HOSTNAME:
        return node.hostname
    if field == REGION:
        return node.region
    return node.zone if field == ZONE else node.attributes.get(field)


def excluded(constraint: Constraint, node: Place, judge: Judge = matches) -> str:
    """Why the node could never do, whatever runs where; "": it could; UNDECIDED: `judge` does not say."""
    value = value_of(constraint.field, node)
    if value is None:
        # Marathon: an absent value is unlike everything, and meets no other operator.
        return "" if constraint.operator is Operator.UNLIKE else f"it has no {constraint.field}"
    if constraint.operator in (Operator.LIKE, Operator.UNLIKE):
        is_like = judge(constraint.value, value)
        if is_like is None:
            return UNDECIDED
        fits = is_like is (constraint.operator is Operator.LIKE)
    else:
        fits = constraint.compares or _fits(constraint, value)
    return "" if fits else f"{constraint.field} is {value}"


def _fits(constraint: Constraint, value: str) -> bool:
    match constraint.operator:
        case Operator.IS:
            return value == _canonical(constraint.value)
        case _:
            return value == constraint.value


def _canonical(value: str) -> str:
    """A number as a scalar attribute has it: `1.0` is `1`. Marathon sees no number in a sign or an exponent."""
    whole, _, rest = value.partition(".")
    if not _digits(whole) or ("." in value and not _digits(rest)):
        return value
    return scalar_text(float(value))


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
