"""What Mesos lets the scheduler's role have, and the size of agents whose offers that shrinks.

A role with a limit of GPUs is offered no more than it may have still (docs/quota.md of Mesos 1.11): an agent with four
may offer three for as long as others of the role's GPUs are used.
"""

from dataclasses import replace

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.effects import ReadRole
from mesos_gpu.engine.indexes.memory import Capacity
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.role import GPUS
from mesos_gpu.model.resources import Resources

ASK_AGAIN_S = 30.0


def on_tick(turn: Turn) -> None:
    """Ask for it while jobs wait."""
    state = turn.state
    if state.queue and turn.now - state.role_asked_at >= ASK_AGAIN_S:
        state.role_asked_at = turn.now
        turn.effects.append(ReadRole())


def on_read(turn: Turn, event: ev.RoleRead) -> None:
    """Keep what the master says."""
    turn.state.role = event.role


def waits_for_role(state: State, job: Job) -> str:
    """What Mesos does not let the role have for a job, in words; "": it has enough."""
    role = state.role
    need = 0 if job.spec.is_share else job.spec.gpus_in_all
    if role is None or need <= role.gpus_left:
        return ""
    return (
        f"by Mesos' quota the role {role.name} may have {role.limits[GPUS]:g} GPUs, "
        f"and {role.used.get(GPUS, 0.0):g} are used"
    )


def most_seen(
    state: State, settings: Settings, now: float, node: Node, seen: Resources, *, reading: bool
) -> Resources:
    """The most of an agent that was seen of late; while its offers may be shrunk, the GPUs that its host reports, too.

    Args:
        state: Remembers it.
        settings: The operator's.
        now: Seconds since the epoch.
        node: Of the agent.
        seen: What it offers and what is held of it, now.
        reading: The state is to remember nothing.
    """
    if state.role is not None and state.role.gpus_left < len(node.gpus):
        seen = seen.most(Resources(gpus=len(node.gpus)))
    old, span_s = state.capacities.get(node.id), settings.offer_return_s / 2
    if old is None or now - old.since > 2 * span_s:
        new = Capacity(now, seen, seen)
    elif now - old.since > span_s:
        new = Capacity(now, seen, old.latest)
    else:
        most = old.latest.most(seen)
        new = old if most == old.latest else replace(old, latest=most)
    if not reading:
        state.capacities[node.id] = new
    return new.latest.most(new.before)
