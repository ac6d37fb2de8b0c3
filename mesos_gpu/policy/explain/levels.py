"""Levels of the fabric in an explanation: the group with the most room for a gang, and what it lacks. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mesos_gpu.model.ids import AgentId
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.explain.funnel import Passage
from mesos_gpu.policy.explain.hurdles import asked_for
from mesos_gpu.policy.explain.never import could, is_unreported, tasks_on


@dataclass(frozen=True, slots=True)
class NeededLevel:
    """Level of the fabric that a gang requires.

    Attributes:
        name: Name of the level.
        segment: Number of tasks that must be in one group.
        groups: Group of each node that the gang may use.
    """

    name: str
    segment: int
    groups: Mapping[AgentId, str]


def never_at(level: NeededLevel, request: Request, nodes: Sequence[NodeCapacity]) -> str:
    """Return why the groups of a fabric level are too small for a gang even if empty.

    Args:
        level: Level that the gang requires.
        request: Requirements of one task, with the number of tasks.
        nodes: Nodes that the gang may use.

    Returns:
        "" if they are large enough, or if that is unknown.
    """
    if not request.gpu.count or is_unreported(nodes):
        return ""
    segments, best = request.tasks // level.segment, Counter[str]()
    for variant in request.each_model():
        rooms = _empty(level, variant, nodes)
        if sum(room // level.segment for room in rooms.values()) >= segments:
            return ""
        best |= rooms
    if not best:
        return ""
    group, room = _largest(best)
    asks = f"asks for {level.segment} tasks of {asked_for(request.gpu)} each in one {level.name}"
    times = "" if segments == 1 else f", {segments} times"
    largest = f"the largest {level.name}, {group}, has room for {room}"
    return f"{asks}{times}, and {largest}, even when nothing else runs there"


def _empty(level: NeededLevel, request: Request, nodes: Sequence[NodeCapacity]) -> Counter[str]:
    """Return how many tasks each group has GPUs for if it were empty and healthy; empty for tasks without GPUs."""
    rooms = Counter[str]()
    for node in nodes if request.gpu.count else ():
        if node.agent_id in level.groups and could(request, node):
            rooms[level.groups[node.agent_id]] += tasks_on(request, node)
    return rooms


def most_room(level: NeededLevel, request: Request, passages: Sequence[Passage]) -> str:
    """Return which group of a fabric level has the most room for unplaced tasks, and what it lacks; "" without groups.

    Args:
        level: Level that the gang requires.
        request: Requirements of one task, with the number of tasks.
        passages: Nodes with the room that they have for tasks.
    """
    left, placed = Counter[str](), Counter[str]()
    for passage in passages:
        if (group := level.groups.get(passage.node.agent_id)) is not None:
            left[group] += passage.alone - passage.room
            placed[group] += passage.room
    if not left:
        return ""
    fits = ""
    if level.segment < request.tasks:
        fits = f"{placed.total() // level.segment} of {request.tasks // level.segment} segments fit; "
    elif placed.total():
        left = placed  # the most tasks that fit in one group
    empty = _empty(level, request, [passage.node for passage in passages])
    group = min(left, key=lambda group: (-left[group], -empty[group], group))
    lacks = level.segment - min(left[group], level.segment - 1)
    return f"{fits}{level.name} {group} has the most room: it lacks room for {lacks} of {level.segment} tasks"


def _largest(rooms: Mapping[str, int]) -> tuple[str, int]:
    return min(rooms.items(), key=lambda item: (-item[1], item[0]))
