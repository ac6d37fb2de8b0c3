"""Reasons why a node cannot be used now, as text. Pure."""

from datetime import UTC, datetime
from typing import Final

from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.wires import OLDEST, WIRE, spoken

#: Starts of a node monitor without a report that are too many; a slow host needs one or two.
_MANY_STARTS: Final = 3


def unknown(node: Node, now: float, stale_s: float) -> str:
    """Return why a node's resources cannot be used; "" if they can."""
    return lost(node, now) or unfit(node) or silent(node, now, stale_s)


def unfit(node: Node) -> str:
    """Return why nothing can be launched on a node whose programs share no message version with this one; ""
    otherwise."""
    program = node.inventory.program if node.inventory is not None else None
    if program is None or node.wire:
        return ""
    newer = program.oldest > WIRE
    remedy = (
        "start a newer scheduler, or this one's programs on the host"
        if newer
        else "start programs of this release on the host: see mesos-gpu upgrade plan"
    )
    return (
        f"its node monitor (release {program.version}) speaks {spoken(program.wire, program.oldest)}, and this "
        f"scheduler {spoken(WIRE, OLDEST)}: {remedy}"
    )


def lost(node: Node, now: float) -> str:
    """Return since when the master has lost a node's agent; "" if it has not."""
    if node.lost_at is None:
        return ""
    return f"the master lost this agent {now - node.lost_at:.0f} s ago"


def backed_off(node: Node) -> str:
    """Return why an agent is backed off, and until when in UTC; "" if it is not backed off.

    If the time has passed, the agent gets a few launches to find out whether its executors register again.
    """
    if not node.launch_not_before:
        return ""
    until = datetime.fromtimestamp(node.launch_not_before, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    executors = "1 executor" if node.timeouts == 1 else f"{node.timeouts} executors"
    return f"{executors} did not register in time, so it gets no launches before {until}"


def paced(node: Node, under_way: int, room: int | None, tasks: int, now: float) -> str:
    """Return why tasks that fit a node must wait for other launches there; "" if they need not wait.

    Args:
        node: Node that the tasks fit.
        under_way: Number of launches under way on the node.
        room: Number of further launches that the node may have; None if there is no limit.
        tasks: Number of tasks that start together.
        now: Current time, in seconds since the epoch.
    """
    if node.launch_not_before > now:
        return backed_off(node)
    if room is None or room >= tasks or (tasks > 1 and not under_way):
        return ""
    return "1 launch is under way" if under_way == 1 else f"{under_way} launches are under way"


def never_reported(node: Node) -> str:
    """Return why an agent whose node monitor was started again and again has no GPUs; "" if that is not so."""
    if node.reported_at is not None or node.lost_at is not None or node.monitor_launches < _MANY_STARTS:
        return ""
    return (
        f"its node monitor was started {node.monitor_launches} times and has reported nothing: mesos-gpu-monitor must "
        "be on the PATH of the agent, or the scheduler needs --executor-archive; see stderr in the monitor's sandbox"
    )


def silent(node: Node, now: float, stale_s: float) -> str:
    """Return why a node's GPUs are unknown; "" if they are known.

    Args:
        node: Node with its last report.
        now: Seconds since the epoch.
        stale_s: Age in seconds up to which a report counts.
    """
    if node.reported_at is None and not node.monitor_launches:
        return ""  # it has never offered a GPU, so there is nothing to monitor
    if node.reported_at is None:
        return never_reported(node) or "its node monitor has not reported its GPUs yet"
    age_s = now - node.reported_at
    if age_s > stale_s:
        return f"its node monitor has been silent for {age_s:.0f} s"
    return ""
