"""Test of nodes against the placement constraints of a job. Pure.

The rules are those of Marathon 1.11 (Constraints.scala); `Node.attributes` has attributes in the text form used there.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.pattern import matches
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.policy.nodes.fields import Judge, excluded, value_of


@dataclass(frozen=True, slots=True)
class Placed:
    """Job of the app that has a place on a node now."""

    name: str  # name to show in reasons
    node: Node


def violated(
    constraint: Constraint, node: Node, placed: Sequence[Placed], instances: int, judge: Judge = matches
) -> str:
    """Return why a constraint excludes a node now; "" if it does not.

    Args:
        constraint: Constraint of the job.
        node: Candidate for the job's task.
        placed: Jobs of its app that have a place, the oldest first.
        instances: Number of jobs of its app, including waiting ones.
        judge: Function that matches a value against an expression.
    """
    why = excluded(constraint, node, judge)
    value = value_of(constraint.field, node)
    if why or value is None or not constraint.compares or not placed:
        return why
    same = [p for p in placed if value_of(constraint.field, p.node) == value]
    match constraint.operator:
        case Operator.UNIQUE:
            return _runs(same, node, constraint, value) if same else ""
        case Operator.MAX_PER:
            return _runs(same, node, constraint, value) if len(same) >= int(constraint.value) else ""
        case Operator.GROUP_BY:
            return _grouped(constraint, placed, value, instances)
        case _:
            first = value_of(constraint.field, placed[0].node)
            return "" if first == value else f"{placed[0].name} runs where {constraint.field} is {first}"


def _runs(same: Sequence[Placed], node: Node, constraint: Constraint, value: str) -> str:
    """Return which jobs run on the node, or at the value of the constraint's field, as text."""
    names = ", ".join(p.name for p in same[:3]) + (f" and {len(same) - 3} more" if len(same) > 3 else "")
    verb = "runs" if len(same) == 1 else "run"
    here = all(p.node.hostname == node.hostname for p in same)
    return f"{names} {verb} " + ("here" if here else f"where {constraint.field} is {value}")


def _grouped(constraint: Constraint, placed: Sequence[Placed], value: str, instances: int) -> str:
    """Return why GROUP_BY excludes a value: its group has its share of the instances.

    Each of N groups gets an equal share of all instances, and the remainder goes to groups one by one. Without a
    number, GROUP_BY only prefers the value with the fewest, and excludes none.
    """
    if constraint.is_even:
        return ""
    counts = Counter(value_of(constraint.field, p.node) for p in placed)
    have, groups = counts[value], int(constraint.value)
    if not have:
        return "" if len(counts) < groups else f"the app has its {groups} groups already"
    share, remainder = divmod(instances, groups)
    beyond = sum(max(0, count - share) for count in counts.values())
    if have < share or (have == share and remainder > beyond):
        return ""
    return f"{have} of the app's {instances} run there, which is its share of {groups} groups"
