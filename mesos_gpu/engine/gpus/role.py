"""Limits of Mesos on the roles of the scheduler, and the size of agents whose offers these limits shrink.

A role with a limit of GPUs is offered no more than it may still get (docs/quota.md of Mesos 1.11): an agent with four
GPUs may offer three as long as other GPUs of the role are in use.
"""

from dataclasses import replace

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.effects import ReadRole
from mesos_gpu.engine.indexes.memory import Capacity
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.offer import Offer, Scalar
from mesos_gpu.model.nodes.role import GPUS
from mesos_gpu.model.resources import Resources
from mesos_gpu.wire.mesos.reservations import ANY_ROLE, role_of

ASK_AGAIN_S = 30.0


def on_tick(turn: Turn) -> None:
    """Request the state of the roles from the master while jobs wait."""
    state = turn.state
    if state.work.queue and turn.now - state.mesos.role_asked_at >= ASK_AGAIN_S:
        state.mesos.role_asked_at = turn.now
        turn.effects.append(ReadRole())


def on_read(turn: Turn, event: ev.RoleRead) -> None:
    """Store the state of a role."""
    turn.state.mesos.roles.known[event.role.name] = event.role


def waits_for_role(state: State, settings: Settings, job: Job) -> str:
    """Return why Mesos does not let a job's role have what the job needs, in words; "" if it does."""
    name = settings.mesos.role_for(job.spec.queue)
    role = state.mesos.roles.known.get(name)
    need = 0 if job.spec.is_share else job.spec.gpus_in_all
    if role is None or need <= role.gpus_left:
        has_offers = not settings.mesos.role_of or any(
            is_of(settings, offer, name) for offer in state.cluster.offers.values()
        )
        return (
            ""
            if has_offers or not is_asked(state, name)
            else f"Mesos offers nothing to its queue's role {name}"
        )
    return (
        f"by Mesos' quota the role {role.name} may have {role.limits[GPUS]:g} GPUs, "
        f"and {role.used.get(GPUS, 0.0):g} are used"
    )


def is_of(settings: Settings, offer: Offer, role: str) -> bool:
    """Return whether an offer was made to a role; an offer without a role counts for the default role."""
    return (offer.role or settings.mesos.role) == role


def is_for_others(state: State, settings: Settings, job: Job, agent_id: AgentId) -> bool:
    """Return whether what an agent offers is reserved for other roles than a job's, as far as held offers show.

    For a job with GPUs only the GPUs count.
    """
    scalars = _offered(state, agent_id)
    if job.spec.gpus:
        scalars = [scalar for scalar in scalars if scalar.name == GPUS]
    may_have = ANY_ROLE, settings.mesos.role_for(job.spec.queue)
    return bool(scalars) and all(role_of(scalar) not in may_have for scalar in scalars)


def reserved_for_others(state: State, role: str, agent_id: AgentId) -> int:
    """Return how many GPUs of an agent are reserved for other roles, as far as held offers show."""
    gpus = (scalar for scalar in _offered(state, agent_id) if scalar.name == GPUS)
    return round(sum(scalar.amount for scalar in gpus if role_of(scalar) not in (ANY_ROLE, role)))


def _offered(state: State, agent_id: AgentId) -> list[Scalar]:
    """Return the resources of all held offers of an agent."""
    held = state.cluster.agents.offers.get(agent_id, {}).values()
    return [scalar for held_offer in held for scalar in held_offer.offer.resources]


def is_asked(state: State, role: str) -> bool:
    """Return whether offers to a role are requested from the master."""
    return (
        state.mesos.connected and not state.mesos.suppressed and role in (state.mesos.roles.asked or (role,))
    )


def most_seen(
    state: State, settings: Settings, now: float, node: Node, seen: Resources, *, reading: bool
) -> Resources:
    """Return the highest resources of an agent seen of late.

    While a limit of a role may shrink offers, GPUs that the host reports count too.

    Args:
        state: State of the engine, which remembers the result.
        settings: Settings of the scheduler.
        now: Time, in seconds since the epoch.
        node: Node of the agent.
        seen: Offered and held resources now.
        reading: Whether the state must not remember the result.
    """
    if any(role.gpus_left < len(node.gpus) for role in state.mesos.roles.known.values()):
        seen = seen.most(Resources(gpus=len(node.gpus)))
    old, span_s = state.cluster.capacities.get(node.id), settings.mesos.offer_return_s / 2
    if old is None or now - old.since > 2 * span_s:
        new = Capacity(now, seen, seen)
    elif now - old.since > span_s:
        new = Capacity(now, seen, old.latest)
    else:
        most = old.latest.most(seen)
        new = old if most == old.latest else replace(old, latest=most)
    if not reading:
        state.cluster.capacities[node.id] = new
    return new.latest.most(new.before)
