"""Launch windows and back-off of agents: updated when the executor of a launch has registered, or did not in time."""

from typing import Final

from mesos_gpu.engine.changed import changed
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.queueing import launch_window
from mesos_gpu.policy.queueing.launch_window import Window

#: Mesos' slave/slave.cpp, Slave::registerExecutorTimeout: "Executor did not register within 1mins".
TIMED_OUT: Final = "REASON_EXECUTOR_REGISTRATION_TIMEOUT"
_BY_EXECUTOR: Final = (TaskState.STARTING, TaskState.RUNNING, TaskState.FINISHED, TaskState.FAILED)


def on_first_word(turn: Turn, task: Task, new: TaskState, status: Status) -> None:
    """Update the launch window of a task's agent, if `status` is the first status update after the task's launch.

    Args:
        turn: Turn of the engine; the node and its window are changed in it.
        task: The task before the update.
        new: State of the task after the update.
        status: The status update from Mesos.
    """
    node = turn.state.cluster.nodes.get(task.agent_id)
    if node is None or task.ended:
        return
    window = turn.state.cluster.windows.get(node.id, Window())
    if status.reason == TIMED_OUT:
        _back_off(turn, node, window, task.launched_at)
    elif task.state is TaskState.LAUNCHED and new in _BY_EXECUTOR:
        under_way = len(turn.state.work.restless.under_way.get(node.id, ()))
        updated = launch_window.registered(window, task.launched_at, turn.now, under_way)
        turn.state.cluster.windows[node.id] = updated
        if node.timeouts and task.launched_at >= window.shrunk_at:
            turn.put_node(changed(node, timeouts=0, launch_not_before=0.0))


def _back_off(turn: Turn, node: Node, window: Window, launched_at: float) -> None:
    """Give an agent no launches for some time.

    A timeout of an executor that was launched before the last back-off began neither extends it nor begins another
    one. After a restart windows are new; then this holds while the back-off lasts.
    """
    until = node.launch_not_before
    if until <= turn.now and launched_at > window.backed_off_at:
        turn.state.cluster.windows[node.id], until = launch_window.timed_out(window, turn.now)
    turn.put_node(changed(node, timeouts=node.timeouts + 1, launch_not_before=until))
