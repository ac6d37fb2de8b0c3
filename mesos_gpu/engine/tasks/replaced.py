"""Launches of agents that never come back: their hosts have other agents now.

Mesos says of a task on an agent that was lost before another one came from its host, with an empty work directory, that
it is unreachable for as long as the master remembers. What was given up holds its cards until its agent is back, so
that no card has two owners: here it gives them up. Should it run on after all, the host's ledger refuses others.
"""

from dataclasses import replace

from mesos_gpu.engine.tasks.statuses import move
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task, TaskState


def on_tick(turn: Turn) -> None:
    """End what was given up on such agents, and take them for lost."""
    restless = map(turn.state.tasks.__getitem__, turn.state.restless.tasks)
    given_up = [task for task in restless if _is_given_up(turn, task)]
    if not given_up:
        return
    # A cover comes last: what has shares of its card goes before it.
    for task in sorted(given_up, key=lambda task: (task.covers is not None, task.id)):
        successor = _successor(turn, task)
        if successor is None:
            continue
        why = f"{task.hostname} has another agent now: {successor.id}"
        move(turn, task, TaskState.LOST, Status(task.id, "TASK_LOST", message=why), None)
        node = turn.state.nodes.get(task.agent_id)
        if node is not None and node.lost_at is None:
            turn.put_node(replace(node, lost_at=turn.now))


def _is_given_up(turn: Turn, task: Task) -> bool:
    """A cover is never abandoned: it is given up when others would be."""
    if task.covers is None or task.state is not TaskState.UNREACHABLE:
        return task.state is TaskState.ABANDONED
    limit_s = turn.settings.unreachable_timeout_s
    return task.unreachable_since is not None and turn.now - task.unreachable_since >= limit_s


def _successor(turn: Turn, task: Task) -> Node | None:
    """The other agent of its host, whose monitor reported all cards that it holds after it was cut off; None: none."""
    since = task.unreachable_since
    for node in turn.state.nodes.values():
        if node.id == task.agent_id or node.hostname != task.hostname or node.lost_at is not None:
            continue
        reported = {gpu.id for gpu in node.gpus}
        if since is not None and (node.reported_at or 0.0) > since and reported >= set(task.gpus):
            return node
    return None
