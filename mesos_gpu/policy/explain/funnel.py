"""Number of nodes that each reason excludes for a job, in the order of stages. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.why import GuaranteeShare, PendingReclaim, Removed, Stage
from mesos_gpu.model.words import counted
from mesos_gpu.policy.capacity.fit import beside_all, room_for
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.explain.hurdles import Hurdle, free_here, hurdles
from mesos_gpu.policy.explain.owed import owed_words

_ORDER = tuple(Stage)
#: Stages of nodes whose free GPUs a job may use, now or later; nodes of pools that it may not use are left out.
_FROM_GPUS = frozenset(_ORDER[_ORDER.index(Stage.GPUS) :]) - {Stage.POOL}
Apart = Callable[[Mapping[AgentId, int]], Mapping[AgentId, int]]  # restricts the number of tasks by node


@dataclass(frozen=True, slots=True)
class Passage:
    """Node with everything that keeps the job off it."""

    node: NodeCapacity
    hurdles: tuple[Hurdle, ...]  # in order of stages; empty if a task could start there now
    room: int = 0  # number of the job's tasks that fit
    alone: int = 0  # number of the job's tasks that fit, ignoring constraints with its tasks on other nodes
    free: int | None = None  # suitable free GPUs; None if an earlier stage than GPUs excludes the node

    @property
    def stage(self) -> Stage | None:
        """Stage that excludes the node; None if none does."""
        return self.hurdles[0].stage if self.hurdles else None


@dataclass(frozen=True, slots=True)
class Funnel:
    """All nodes, with the number that each stage excludes."""

    passages: tuple[Passage, ...] = ()
    stages: tuple[Removed, ...] = ()
    tasks_fit: int = 0  # number of the job's tasks that fit, ignoring limits of its queue
    left: int = 0  # number of nodes where it could start now
    scattered: str = ""  # text on the free GPUs if they suffice in total but are too scattered; else ""
    free: tuple[int, ...] = ()  # suitable free GPUs of each node that has any


def funnel(
    request: Request,
    nodes: Sequence[NodeCapacity],
    *,
    now: float,
    limit: str = "",
    stage: Stage = Stage.QUEUE_LIMIT,
    apart: Apart | None = None,
    owed: GuaranteeShare | None = None,
) -> Funnel:
    """Find the stage that excludes each node for a job, and count the nodes by stage.

    Args:
        request: Requirements of one task.
        nodes: Nodes that are known.
        now: Seconds since the epoch.
        limit: Description of a limit or rule of its queue, user or class that keeps the job waiting; "" without one.
        stage: Stage of that limit.
        apart: Function that restricts the room for tasks by the job's constraints between its own tasks; None without
            any.
        owed: Guarantee that applies to the job; None if none does.
    """
    tasks = request.tasks
    passages = _passages(request, sorted(nodes, key=lambda node: node.hostname), now)
    if apart is not None:
        room = apart({passage.node.agent_id: passage.room for passage in passages if passage.room})
        passages = [replace(passage, room=room.get(passage.node.agent_id, 0)) for passage in passages]
    free = _scattered(request, passages)
    if free:
        passages = [_as_fragment(passage) for passage in passages]
    fit = min(sum(passage.room for passage in passages), tasks)
    if fit < tasks:
        passages = [_without_others(passage, fit, tasks) for passage in passages]
    scattered, idle = _free_words(free), _free(request, passages)
    if owed is not None and owed.room is not None:
        passages = [_to_reclaim(passage, owed.room) for passage in passages]
    stages = _stages(passages, scattered, owed_words(owed, idle, now) if owed is not None else "")
    left = sum(passage.stage is None for passage in passages)
    if left and limit:
        stages.append(Removed(stage, left, 0, limit))
        left = 0
    return Funnel(tuple(passages), tuple(stages), fit, left, scattered, tuple(idle))


def _passages(request: Request, nodes: Sequence[NodeCapacity], now: float) -> list[Passage]:
    """Return a passage for each node, with room for the model of which most tasks fit."""
    passages = [_passage(request, node, now) for node in nodes]
    best: list[Passage] = passages
    # A gang whose job names models gets GPUs of one of them: try each.
    for variant in request.each_model() if request.tasks > 1 else [request]:
        tried = [_with_room(variant, passage) for passage in passages]
        if sum(passage.room for passage in tried) > sum(passage.room for passage in best):
            best = tried
    return best


def _passage(request: Request, node: NodeCapacity, now: float) -> Passage:
    """Return a node with its hurdles and, if it is not excluded before its GPUs, their free number."""
    against = tuple(hurdles(request, node, now=now))
    reaches_gpus = not against or against[0].stage in _FROM_GPUS
    return Passage(node, against, free=free_here(request.gpu, node) if reaches_gpus else None)


def _with_room(request: Request, passage: Passage) -> Passage:
    """Return a node without hurdles with the number of tasks that fit."""
    if passage.hurdles:
        return passage
    room = min(room_for(request, beside_all(passage.node)).slots, request.tasks)
    return replace(passage, room=room, alone=room)


def _scattered(request: Request, passages: Sequence[Passage]) -> list[int]:
    """Return the free GPUs by node if they suffice for the job in total, but not where they are; else an empty list."""
    size, tasks = request.gpu.count, request.tasks
    if not size or request.gpu.share is not None:
        return []
    free = _free(request, passages)
    fit = max(sum(number // size for number in free), sum(passage.room for passage in passages))
    if sum(free) < size * tasks or fit >= tasks:
        return []
    return free


def _free(request: Request, passages: Sequence[Passage]) -> list[int]:
    """Return the suitable free GPUs of each node that has any."""
    if not request.gpu.count:
        return []
    return [passage.free for passage in passages if passage.free]


def _to_reclaim(passage: Passage, room: PendingReclaim) -> Passage:
    """Mark a node on which other jobs make room: what is lacking there is guaranteed, and still in use."""
    if not passage.hurdles or passage.node.agent_id not in room.on:
        return passage
    first, *others = passage.hurdles
    return replace(passage, hurdles=(replace(first, stage=Stage.GUARANTEE), *others))


def _as_fragment(passage: Passage) -> Passage:
    """Change the stage of a node whose free GPUs do not suffice to fragmentation."""
    if passage.stage is not Stage.GPUS or not passage.free:
        return passage
    first, *others = passage.hurdles
    return replace(passage, hurdles=(replace(first, stage=Stage.FRAGMENTATION), *others))


def _without_others(passage: Passage, fit: int, tasks: int) -> Passage:
    """Exclude a node with room for tasks, because not all tasks of the job have room."""
    if passage.hurdles:
        return passage
    words = f"has room for {passage.room} of its {tasks} tasks; there is room for {fit} in all"
    return replace(passage, hurdles=(Hurdle(Stage.TASKS, words),))


def _free_words(free: Sequence[int]) -> str:
    """Return the number of scattered free GPUs as text; "" without any."""
    return (
        f"{sum(free)} are free, on {counted(len(free), 'node')} with at most {max(free)} each" if free else ""
    )


def _stages(passages: Sequence[Passage], scattered: str, owed: str) -> list[Removed]:
    """Count the nodes that each stage excludes, with an example for each."""
    rows, left = [], len(passages)
    by_stage: dict[Stage | None, list[Passage]] = {}
    for passage in passages:
        by_stage.setdefault(passage.stage, []).append(passage)
    for stage in Stage:
        removed = by_stage.get(stage, ())
        if removed:
            left -= len(removed)
            example = f"{removed[0].node.hostname} {removed[0].hurdles[0].words}"
            if stage is Stage.FRAGMENTATION:
                example = f"{scattered}; {example}"
            elif stage is Stage.GUARANTEE:
                example = owed
            rows.append(Removed(stage, len(removed), left, example))
    return rows
