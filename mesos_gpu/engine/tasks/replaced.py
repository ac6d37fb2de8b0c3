"""Loss of launches on agents that never come back, because their hosts have other agents now.

If an agent is lost before another one comes from its host with an empty work directory, Mesos reports its tasks as
unreachable for as long as the master remembers them. A launch that was given up holds its GPUs until its agent is
back, so that no GPU has two owners; here the launch is ended. Should its task run on after all, the ledger of the
host refuses others.

No two agents have one address. A master that sees a new agent at a known address takes the tasks of the other one for
lost at once. A new master, however, waits ten minutes or more for agents that it read in its registry
(`--agent_reregister_timeout`), and reports nothing of their tasks. Here they are lost as with any other master.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf

from mesos_gpu.engine.tasks.statuses import move
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task, TaskState


def on_tick(turn: Turn) -> None:
    """Mark such agents as lost, and end launches that were given up on them or run at the address of a later agent."""
    _end(turn, _given_up(turn))
    displaced = dict(_displaced(turn))
    for agent_id in displaced:
        _lose(turn, agent_id)
    if displaced:
        live = map(turn.state.work.tasks.__getitem__, turn.state.work.live)
        _end(
            turn, [(task, displaced[task.agent_id]) for task in live if _is_displaced(turn, task, displaced)]
        )


def _end(turn: Turn, pairs: Iterable[tuple[Task, Node]]) -> None:
    """Mark tasks as lost, each for another agent; cover tasks come last, after the shares of their GPUs."""
    for task, successor in sorted(pairs, key=lambda pair: (pair[0].covers is not None, pair[0].id)):
        why = f"{task.hostname} has another agent now: {successor.id}"
        move(turn, task, TaskState.LOST, Status(task.id, "TASK_LOST", message=why), None)
        _lose(turn, task.agent_id)


def _lose(turn: Turn, agent_id: AgentId) -> None:
    """Mark an agent as lost."""
    node = turn.state.cluster.nodes.get(agent_id)
    if node is not None and node.lost_at is None:
        turn.put_node(replace(node, lost_at=turn.now))


def _given_up(turn: Turn) -> list[tuple[Task, Node]]:
    """Return launches that were given up and whose host has another agent, each with that agent."""
    restless = map(turn.state.work.tasks.__getitem__, turn.state.work.restless.tasks)
    successors = ((task, _successor(turn, task)) for task in restless if _is_given_up(turn, task))
    return [(task, successor) for task, successor in successors if successor is not None]


def _is_given_up(turn: Turn, task: Task) -> bool:
    """Return whether a launch was given up; cover tasks are never abandoned, but count once others would be."""
    if task.covers is None or task.state is not TaskState.UNREACHABLE:
        return task.state is TaskState.ABANDONED
    limit_s = turn.settings.mesos.unreachable_timeout_s
    return task.unreachable_since is not None and turn.now - task.unreachable_since >= limit_s


def _successor(turn: Turn, task: Task) -> Node | None:
    """Return the other agent of a task's host whose monitor reported all its GPUs after the task was cut off.

    None without one.
    """
    since = task.unreachable_since
    for node in turn.state.cluster.nodes.values():
        if node.id == task.agent_id or node.hostname != task.hostname or node.lost_at is not None:
            continue
        if since is not None and _has_reported(node, since, task):
            return node
    return None


def _has_reported(node: Node, since: float, task: Task) -> bool:
    """Return whether a node's monitor has reported all GPUs of a task after a time."""
    return (node.reported_at or 0.0) > since and {gpu.id for gpu in node.gpus} >= set(task.gpus)


def _displaced(turn: Turn) -> Iterator[tuple[AgentId, Node]]:
    """Yield agents at whose address another one has started its monitor since they were last seen, with that other."""
    for place in turn.state.cluster.agents.crowded:
        nodes = [turn.state.cluster.nodes[agent_id] for agent_id in turn.state.cluster.agents.places[place]]
        came_at = {node.id: at for node in nodes if (at := _came_at(turn, node)) is not None}
        if not came_at:
            continue
        latest = max(came_at, key=came_at.__getitem__)
        for node in nodes:
            if node.id != latest and _seen_at(turn, node) < came_at[latest]:
                yield node.id, turn.state.cluster.nodes[latest]


def _came_at(turn: Turn, node: Node) -> float | None:
    """Return the launch time of the monitor that runs on a node, whose agent was there then; None without one."""
    monitor = (
        None if node.monitor is None or node.lost_at is not None else turn.state.work.tasks.get(node.monitor)
    )
    return monitor.launched_at if monitor is not None and monitor.state is TaskState.RUNNING else None


def _seen_at(turn: Turn, node: Node) -> float:
    """Return when an agent was last known to be there; infinity if it may just have come."""
    monitor = None if node.monitor is None else turn.state.work.tasks.get(node.monitor)
    times = [node.reported_at, None if monitor is None else monitor.launched_at]
    return max((at for at in times if at is not None), default=inf if node.lost_at is None else 0.0)


def _is_displaced(turn: Turn, task: Task, displaced: dict[AgentId, Node]) -> bool:
    """Return whether a task's agent is displaced and the task may end now.

    Tasks that Mesos reports as unreachable are given up first.
    """
    successor = displaced.get(task.agent_id)
    if successor is None or task.state in (TaskState.UNREACHABLE, TaskState.ABANDONED):
        return False
    came_at = _came_at(turn, successor)
    return came_at is not None and task.launched_at < came_at and _has_reported(successor, came_at, task)
