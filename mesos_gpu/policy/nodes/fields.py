"""Constraints of a job that depend on a single node, whatever runs elsewhere. Pure.

The rules are those of Marathon 1.11 (Constraints.scala); `Node.attributes` has attributes in the text form used there.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from mesos_gpu.model.jobs.constraint import HOSTNAME, REGION, ZONE, Constraint, Operator, scalar_text
from mesos_gpu.model.jobs.pattern import matches

Judge = Callable[[str, str], bool | None]  # whether an expression matches a value; None if not known yet
#: Reason against a node while it is not known yet whether a constraint holds.
UNDECIDED: Final = "it has not been compared with this agent yet"


class Place(Protocol):
    """Location and attributes of an agent."""

    @property
    def hostname(self) -> str:
        """Name of the agent's host."""

    @property
    def region(self) -> str | None:
        """Region of its fault domain; None without one."""

    @property
    def zone(self) -> str | None:
        """Zone of its fault domain; None without one."""

    @property
    def attributes(self) -> Mapping[str, str]:
        """Attributes by name, in Marathon's text form."""


def value_of(field: str, node: Place) -> str | None:
    """Return a node's value of a constraint's field; None without a value."""
    if field in HOSTNAME:
        return node.hostname
    if field == REGION:
        return node.region
    return node.zone if field == ZONE else node.attributes.get(field)


def excluded(constraint: Constraint, node: Place, judge: Judge = matches) -> str:
    """Return why a node never meets a constraint, whatever runs where.

    "" if it may meet it; UNDECIDED if `judge` does not know yet.
    """
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
    """Return whether a value equals that of the constraint; IS also accepts other forms of a number."""
    match constraint.operator:
        case Operator.IS:
            return value == _canonical(constraint.value)
        case _:
            return value == constraint.value


def _canonical(value: str) -> str:
    """Return a number in the form of scalar attributes, `1` for `1.0`; like Marathon, without signs and exponents."""
    whole, _, rest = value.partition(".")
    if not _digits(whole) or ("." in value and not _digits(rest)):
        return value
    return scalar_text(float(value))


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
