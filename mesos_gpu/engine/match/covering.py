"""Cover tasks, which hold shared GPUs in Mesos: launched with the first share of a GPU, and again when one was lost."""

import json
from collections.abc import Iterable, Mapping, Sequence

from mesos_gpu.engine.effects import LaunchTask
from mesos_gpu.engine.gpus import covers
from mesos_gpu.engine.match.ledger import Ledger
from mesos_gpu.engine.match.remains import AssignedResources, FreeOffers, Launches, Pace
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.wire.mesos.v1 import executor_info


def open_cards(
    turn: Turn, takes: Sequence[Take], remains: FreeOffers
) -> Mapping[Take, tuple[LaunchTask, ...]]:
    """Create a cover task for each GPU that assignments open to shares; return the launches by assignment.

    The assignment that starts the keeper (executor of cover tasks) comes first, as other cover tasks of its agent
    join it.
    """
    opened: dict[Take, tuple[LaunchTask, ...]] = {}
    for take in sorted(takes, key=lambda take: not remains.carved(take).keeper) if _opens(takes) else ():
        opened[take] = _tasks(turn, take.agent_id, take.opens, remains.carved(take))
    return opened


def _opens(takes: Iterable[Take]) -> bool:
    """Return whether any assignment opens a GPU to shares."""
    return any(take.opens for take in takes)


def cover_again(turn: Turn, ledger: Ledger, remains: FreeOffers, launches: Launches, pace: Pace) -> None:
    """Launch cover tasks for GPUs whose shares still run without one, as far as GPUs are offered."""
    if not covers.is_uncovered(turn.state):
        return
    for agent_id in remains:
        for gpu in turn.state.cluster.nodes[agent_id].gpus:
            uncovered = gpu.id in turn.state.gpus.sharers and gpu.id not in turn.state.gpus.covers
            if uncovered and not pace.is_full(agent_id):
                _cover(turn, agent_id, gpu.id, ledger, remains, launches)


def _cover(
    turn: Turn, agent_id: AgentId, gpu_id: GpuId, ledger: Ledger, remains: FreeOffers, launches: Launches
) -> None:
    """Launch a cover task for one GPU if the offers of its agent have enough for it."""
    state, settings = turn.state, turn.settings
    need = covers.cost_of_cover(state, settings, agent_id, turn.now)
    need += covers.cost_of_keeper(state, settings, agent_id, remains.keeper_role(agent_id))
    if not remains.for_covers(agent_id).covers(need):
        return
    take = Take(agent_id, covers=gpu_id)
    ledger.take(take)
    launches.fill(take, *_tasks(turn, agent_id, (gpu_id,), remains.carved(take)))


def _tasks(
    turn: Turn, agent_id: AgentId, gpu_ids: Sequence[GpuId], carved: AssignedResources
) -> tuple[LaunchTask, ...]:
    """Create cover tasks for GPUs of an agent; return their launches. The first one may start the keeper."""
    if not gpu_ids:
        return ()
    executor_id, keeper = _keeper(turn, agent_id, carved)
    items = []
    for i, (gpu_id, scalars) in enumerate(zip(gpu_ids, carved.covers, strict=True)):
        task = _task(turn, agent_id, gpu_id, executor_id, keeper)
        turn.put_task(task)
        items.append(LaunchTask(task, None, scalars, () if i else carved.keeper))
    return tuple(items)


def _keeper(turn: Turn, agent_id: AgentId, carved: AssignedResources) -> tuple[str, str]:
    """Return the executor id and the ExecutorInfo (JSON) of the keeper of an agent: an existing or a new one."""
    scalars, role = carved.keeper, carved.keeper_role
    if not scalars:
        cover = covers.keeper_of(turn.state, agent_id, role)
        assert cover is not None, f"nothing was taken for a keeper on {agent_id}, and it has none"
        return cover.executor_id, cover.keeper
    settings, executor_id = turn.settings, covers.new_keeper_id(turn.state, agent_id)
    name = "mesos-gpu keeper of shared GPUs"
    labels = {covers.ROLE_LABEL: role} if role else {}
    info = executor_info(
        executor_id, name, settings.programs.keeper_command, scalars, settings.programs.executor_env, labels
    )
    return executor_id, json.dumps(info, separators=(",", ":"))


def _task(turn: Turn, agent_id: AgentId, gpu_id: GpuId, executor_id: str, keeper: str) -> Task:
    """Return a new cover task."""
    node = turn.state.cluster.nodes[agent_id]
    return Task(
        id=covers.new_cover_id(turn.state, gpu_id),
        agent_id=agent_id,
        executor_id=executor_id,
        job_id=None,
        state=TaskState.LAUNCHED,
        launched_at=turn.now,
        hostname=node.hostname,
        agent_url=node.agent_url,
        sealed=turn.settings.programs.sealed,
        covers=gpu_id,
        keeper=keeper,
    )
