"""Rolling replacement of monitors that run an earlier program: first one alone, then a few at a time.

Tasks of jobs go on, as a monitor only reports. An old monitor is killed, the next match starts a new one from the
resources that it held, and the node is done with the first good report. A new monitor without a good report stops the
roll.
"""

from dataclasses import dataclass, replace
from typing import Final

from mesos_gpu.engine.effects import Kill
from mesos_gpu.engine.gpus.covers import STEADY_S
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.roll import MonitorReplacement
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.policy.explain.silence import unfit

MAX_STARTS: Final = 3  # starts of new monitors without a good report, on one node
_PART: Final = 100  # one of this many nodes is without a monitor at a time


@dataclass(frozen=True, slots=True)
class Rolling:
    """Progress of the rolling replacement of monitors.

    Attributes:
        outdated: Nodes whose monitors are to be replaced, each with the reason.
        under_way: Nodes whose monitors are being replaced.
        done: Number of monitors replaced since this scheduler started.
        problems: Nodes on which the replacement is stuck, each with the reason.
    """

    outdated: tuple[tuple[AgentId, str], ...]
    under_way: tuple[AgentId, ...]
    done: int
    problems: tuple[tuple[AgentId, str], ...]


def on_tick(turn: Turn) -> None:
    """Follow the replacements in progress, and begin the next ones if those before went well."""
    state = turn.state
    for agent_id, roll in list(state.cluster.rolls.under_way.items()):
        _follow(turn, agent_id, roll)
    if turn.now - state.cluster.rolls.looked_at < turn.settings.tasks.roll_interval_s:
        return
    state.cluster.rolls.looked_at = turn.now
    if (
        state.mesos.reconciliation is not None
        or state.mesos.doubtful
        or problems_of(state, turn.settings.tasks.roll_timeout_s, turn.now)
    ):
        return
    max_at_once = max(1, len(state.cluster.nodes) // _PART) if state.cluster.rolls.done else 1
    if len(state.cluster.rolls.under_way) >= max_at_once:
        return
    made_by, stale_s = turn.settings.programs.monitor_made_by, turn.settings.programs.report_stale_s
    old = [node for node in state.cluster.nodes.values() if outdated(state, node, made_by)]
    due = [node for node in old if _may_begin(state, node, turn.now, stale_s)]
    for node in sorted(due, key=lambda node: (node.hostname, node.id))[
        : max_at_once - len(state.cluster.rolls.under_way)
    ]:
        _begin(turn, node)


def rolling(state: State, settings: Settings, now: float) -> Rolling:
    """Return the progress for readers."""
    nodes = sorted(state.cluster.nodes.values(), key=lambda node: (node.hostname, node.id))
    made_by = settings.programs.monitor_made_by
    return Rolling(
        outdated=tuple((node.id, why) for node in nodes if (why := outdated(state, node, made_by))),
        under_way=tuple(node.id for node in nodes if node.id in state.cluster.rolls.under_way),
        done=state.cluster.rolls.done,
        problems=problems_of(state, settings.tasks.roll_timeout_s, now),
    )


def outdated(state: State, node: Node, made_by: str) -> str:
    """Return why the monitor of a node is to be replaced; "" if it is up to date, or if the node has no monitor.

    Args:
        state: State of the engine.
        node: Node with the monitor.
        made_by: `Settings.monitor_made_by`, computed once for thousands of nodes.
    """
    task = state.work.tasks.get(node.monitor) if node.monitor is not None else None
    if task is None:
        return ""
    if task.made_by != made_by:
        return "it was started by an earlier scheduler, or with other settings"
    program = node.inventory.program if node.inventory is not None else None
    return "its program on the host was replaced" if program is not None and program.replaced else ""


def _may_begin(state: State, node: Node, now: float, stale_s: float) -> bool:
    """Return whether the monitor of a node runs well; one that fails is restarted anyway."""
    task = state.work.tasks.get(node.monitor) if node.monitor is not None else None
    if task is None or node.lost_at is not None or node.id in state.cluster.rolls.under_way:
        return False
    runs = task.state is TaskState.RUNNING and now - task.launched_at >= STEADY_S
    reports = node.reported_at is not None and now - node.reported_at <= stale_s
    return runs and reports


def _begin(turn: Turn, node: Node) -> None:
    """Kill the monitor of a node, so that a match starts a new one."""
    assert node.monitor is not None, "it is outdated"
    well = tuple(gpu.id for gpu in node.gpus if gpu.health is Health.OK)
    turn.state.cluster.rolls.under_way[node.id] = MonitorReplacement(
        node.monitor, turn.now, turn.now, node.monitor_launches, well
    )
    turn.effects.append(Kill(node.monitor, node.id))


def _follow(turn: Turn, agent_id: AgentId, roll: MonitorReplacement) -> None:
    """Follow the replacement of one monitor: repeat the kill, finish, or try again after a fix."""
    state = turn.state
    node = state.cluster.nodes.get(agent_id)
    if node is None or node.lost_at is not None:  # the next monitor of a lost node is a new one anyway
        del state.cluster.rolls.under_way[agent_id]
    elif node.monitor == roll.old:
        if turn.now - roll.asked_at >= turn.settings.tasks.kill_resend_s:
            roll.asked_at = turn.now
            turn.effects.append(Kill(roll.old, agent_id))
    elif not _lacking(state, node, roll):
        del state.cluster.rolls.under_way[agent_id]
        state.cluster.rolls.done += 1
    elif node.monitor is not None and outdated(state, node, turn.settings.programs.monitor_made_by):
        # The program on the host was replaced again, perhaps by one that works.
        launched_at = state.work.tasks[node.monitor].launched_at
        if turn.now - launched_at >= STEADY_S:
            again = replace(roll, old=node.monitor, since=turn.now, asked_at=turn.now, failed="")
            state.cluster.rolls.under_way[agent_id] = replace(again, launches=node.monitor_launches)
            turn.effects.append(Kill(node.monitor, agent_id))


def _lacking(state: State, node: Node, roll: MonitorReplacement) -> str:
    """Return the first condition that the new monitor does not meet yet, in words; "" if it meets all."""
    task = state.work.tasks.get(node.monitor) if node.monitor is not None else None
    if task is None:
        return "no new monitor runs there" + (f": its last message: {roll.failed}" if roll.failed else "")
    if node.reported_at is None or node.reported_at <= task.launched_at:
        return "its new monitor has not reported"
    if why := unfit(node):
        return why
    gpus = {gpu.id: gpu for gpu in node.gpus}
    for gpu_id in roll.well:
        gpu = gpus.get(gpu_id)
        if gpu is None:
            return f"its new monitor does not find {gpu_id}, which was healthy"
        if gpu.health is Health.UNKNOWN:
            return f"its new monitor cannot read {gpu_id}, which was healthy: {gpu.reason}"
    return ""


def problems_of(state: State, timeout_s: float, now: float) -> tuple[tuple[AgentId, str], ...]:
    """Return replacements that take longer than `timeout_s` or failed too often, with the reason.

    While there are any, no further replacement begins.
    """
    problems = []
    for agent_id, roll in state.cluster.rolls.under_way.items():
        node = state.cluster.nodes.get(agent_id)
        if node is None:
            continue
        late = now - roll.since > timeout_s
        if node.monitor == roll.old:
            if late:
                problems.append((agent_id, "its monitor does not end"))
        elif late or unfit(node) or node.monitor_launches - roll.launches > MAX_STARTS:
            problems.append((agent_id, _lacking(state, node, roll)))
    return tuple(problems)
