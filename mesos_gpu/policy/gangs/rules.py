"""Rules between the tasks of a gang, from the constraints of its job. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence

from mesos_gpu.model.jobs.constraint import Constraint, Operator
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.policy.cluster.constraints import Placed
from mesos_gpu.policy.gangs.near import Near
from mesos_gpu.policy.gangs.search import Even, Groups, Most, Rule, Together
from mesos_gpu.policy.nodes.fields import value_of


def rules_of(constraints: Sequence[Constraint], placed: Sequence[Placed], tasks: int) -> Iterator[Rule]:
    """Yield the rules that follow from constraints, for tasks that start together.

    Args:
        constraints: Constraints of the job; those that do not compare tasks are skipped.
        placed: Tasks of the job's app that already have a place, the oldest first.
        tasks: Number of tasks of the app, including waiting ones.
    """
    for constraint in constraints:
        if not constraint.compares:
            continue
        values = (value_of(constraint.field, placed_task.node) for placed_task in placed)
        held = Counter(value for value in values if value is not None)
        match constraint.operator:
            case Operator.UNIQUE:
                yield Most(constraint.field, 1, held)
            case Operator.MAX_PER:
                yield Most(constraint.field, int(constraint.value), held)
            case Operator.CLUSTER:
                yield Together(constraint.field)
            case _ if constraint.value:
                yield Groups(constraint.field, int(constraint.value), tasks, held)
            case _:
                yield Even(constraint.field, held)


def level_field(level: str) -> str:
    """Return the name of the field that has a node's group at a level; no attribute has such a name."""
    return f"level {level}"


def level_rules(spec: JobSpec, levels: Sequence[str]) -> Iterator[Rule]:
    """Yield the rule that follows from the fabric level of a gang; none if it names no known level.

    Args:
        spec: Request of the gang.
        levels: Names of the levels of the fabric, the outermost first and the node last.
    """
    topology = spec.topology
    if topology is None or topology.level not in levels:
        return
    at = levels.index(topology.level)
    fields = [level_field(level) for level in levels]
    above, below = tuple(reversed(fields[:at])), tuple(fields[at + 1 : -1])
    segment = spec.segment or (spec.tasks if topology.is_required else 1)
    yield Near(fields[at], above, below, segment, topology.is_required)
