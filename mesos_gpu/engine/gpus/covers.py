"""Cover tasks: each holds one shared GPU in Mesos for all tasks with shares of it, so that Mesos offers it to no one.

They run in the keeper of their agent, an executor that does nothing. A task with a share takes no GPU in Mesos.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from mesos_gpu.engine.effects import Decline, Kill
from mesos_gpu.engine.indexes.memory import NO_FAILURES
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, GpuId, TaskId
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.resources import NOTHING, UNLIMITED, Resources
from mesos_gpu.model.saves import ForgetTask
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.queueing.backoff import delay_s
from mesos_gpu.policy.sharing.parts import GpuPart, unshared

PREFIX: Final = "gpu-cover."  # prefix of ids of cover tasks; ids of jobs have a dash after the name
_ID: Final = re.compile(r"gpu-cover\.[0-9]+\.[0-9]+\.(.+)", re.DOTALL)
_OPEN: Final = (TaskState.LAUNCHED, TaskState.STARTING, TaskState.RUNNING)
ROLE_LABEL: Final = "mesos_gpu.role"  # label of keepers with another role than the framework's default
_REMEMBERED: Final = 1000  # ended cover tasks that are remembered
STEADY_S: Final = 10.0  # a keeper or monitor that ran this long did not fail at its start


# --- ids: they name the GPU, so that an unknown cover task can be adopted


def new_cover_id(state: State, gpu_id: GpuId) -> TaskId:
    """Return a new id of a cover task for a GPU."""
    state.gpus.keepers += 1
    # The start time of this scheduler makes the id new even if the count begins at 0 again.
    return TaskId(f"{PREFIX}{round(state.started_at * 1000)}.{state.gpus.keepers}.{gpu_id}")


def new_keeper_id(state: State, agent_id: AgentId) -> str:
    """Return a new executor id of a keeper."""
    state.gpus.keepers += 1
    return f"gpu-keeper.{agent_id}.{round(state.started_at * 1000)}.{state.gpus.keepers}"


def card_of(task_id: TaskId) -> GpuId | None:
    """Return the GPU of a cover task by its id; None for other tasks."""
    match = _ID.fullmatch(task_id)
    return GpuId(match[1]) if match else None


# --- what is open


def is_open(task: Task) -> bool:
    """Return whether more shares may be placed on the GPU of a cover task."""
    return task.state in _OPEN and task.kill_sent_at is None


def is_free(state: State, gpu_id: GpuId) -> bool:
    """Return whether a GPU may have free capacity.

    A GPU that a task holds as a whole has none. A GPU with shares has some only while its cover task takes new ones.
    """
    if gpu_id in state.gpus.holders:
        return False
    cover = state.gpus.covers.get(gpu_id)
    return gpu_id not in state.gpus.sharers if cover is None else is_open(state.work.tasks[cover])


def is_closing(state: State, gpu_id: GpuId) -> bool:
    """Return whether a shared GPU is about to be whole again: it has no shares, and its cover task is being ended."""
    cover = state.gpus.covers.get(gpu_id)
    if cover is None or gpu_id in state.gpus.sharers:
        return False
    task = state.work.tasks[cover]
    return task.kill_sent_at is not None and task.state is not TaskState.UNREACHABLE


def open_parts(state: State, node: Node, settings: Settings) -> tuple[GpuPart, ...]:
    """Return the free parts of the GPUs of a node that are open to shares."""
    if not state.gpus.covers:
        return ()
    cards = (gpu for gpu in node.gpus if gpu.id in state.gpus.covers and is_free(state, gpu.id))
    return tuple([_part(state, gpu, settings) for gpu in cards])


def uncovered_parts(state: State, node: Node, settings: Settings, most: int) -> tuple[GpuPart, ...]:
    """Return the free parts of a node's GPUs that have shares but no cover task.

    Args:
        most: Free GPUs of the node, with which these GPUs will be covered again; more are not returned.
    """
    if not state.gpus.sharers:
        return ()
    cards = [gpu for gpu in node.gpus if gpu.id in state.gpus.sharers and gpu.id not in state.gpus.covers]
    return tuple([_part(state, gpu, settings) for gpu in cards[: max(most, 0)]])


def _part(state: State, gpu: Gpu, settings: Settings) -> GpuPart:
    """Return the free part of a shared GPU."""
    return unshared(gpu, compute_milli(settings)).less(*state.gpus.sharers.get(gpu.id, {}).values())


def compute_milli(settings: Settings) -> int:
    """Return the compute that all shares of a GPU together may have, in thousandths of the GPU."""
    return round(WHOLE * settings.placing.gpu_compute_overcommit)


# --- cost of opening a GPU to shares


def keeper_of(state: State, agent_id: AgentId, label: str | None = None) -> Task | None:
    """Return a cover task whose keeper another cover task can join; None if a keeper must be started.

    Args:
        label: Role of the keeper as of `role_label`, as Mesos lets no executor have resources of two roles; None for
            any.
    """
    if not state.gpus.covers:
        return None
    node = state.cluster.nodes.get(agent_id)
    covers = [state.gpus.covers[gpu.id] for gpu in (node.gpus if node else ()) if gpu.id in state.gpus.covers]
    tasks = map(state.work.tasks.__getitem__, covers)
    return next(
        (
            task
            for task in tasks
            if task.agent_id == agent_id
            and task.keeper
            and is_open(task)
            and label in (None, role_label(task.keeper))
        ),
        None,
    )


def role_label(keeper: str) -> str:
    """Return the role that a keeper (ExecutorInfo as JSON) names; "" for the default role of the framework."""
    if ROLE_LABEL not in keeper:
        return ""
    labels = json.loads(keeper).get("labels", {}).get("labels", ())
    return next((str(label["value"]) for label in labels if label["key"] == ROLE_LABEL), "")


def may_cover(state: State, agent_id: AgentId, now: float) -> bool:
    """Return whether a cover task may be launched on an agent now, after failures of its keeper to start."""
    failed = state.gpus.keeper_failures.get(agent_id)
    return failed is None or failed[1] <= now


def cost_of_cover(state: State, settings: Settings, agent_id: AgentId, now: float) -> Resources:
    """Return the resources of a cover task; more GPUs than exist where none may be launched now."""
    return (
        settings.programs.cover
        if may_cover(state, agent_id, now)
        else settings.programs.cover.with_gpus(UNLIMITED)
    )


def cost_of_keeper(
    state: State, settings: Settings, agent_id: AgentId, label: str | None = None
) -> Resources:
    """Return the resources of a keeper; `NOTHING` if a cover task can join a running one.

    Args:
        label: Role of the keeper, as of `keeper_of`.
    """
    return settings.programs.keeper if keeper_of(state, agent_id, label) is None else NOTHING


def held_for_covers(
    state: State, settings: Settings, on_agent: Iterable[Task]
) -> tuple[Resources, Resources]:
    """Return the resources of cover tasks and keepers of an agent, and those of cover tasks that are being closed.

    Args:
        on_agent: Live tasks of the agent.
    """
    covers = [(task, task.covers) for task in on_agent if task.covers is not None]
    if not covers:
        return NOTHING, NOTHING
    stay = [task for task, gpu_id in covers if not is_closing(state, gpu_id)]
    keepers = len({task.executor_id for task in stay})
    closing = settings.programs.cover.scaled(len(covers) - len(stay))
    return settings.programs.cover.scaled(len(stay)) + settings.programs.keeper.scaled(keepers), closing


# --- life of cover tasks


def adopt(turn: Turn, task_id: TaskId, agent_id: AgentId | None, state: TaskState) -> None:
    """Adopt a cover task that the state does not know, or kill it if its GPU does not need it."""
    gpu_id, state_now = card_of(task_id), turn.state
    is_held = gpu_id in state_now.gpus.covers or gpu_id in state_now.gpus.holders
    # A status update sent before the end of a task may arrive after it.
    if gpu_id is None or agent_id is None or is_held or task_id in state_now.gpus.gone_covers:
        turn.effects.append(Kill(task_id, agent_id))
        return
    node = turn.state.cluster.nodes.get(agent_id)
    turn.put_task(
        Task(
            id=task_id,
            agent_id=agent_id,
            executor_id="",
            job_id=None,
            state=state,
            launched_at=turn.now,
            heard_at=turn.now,
            hostname=node.hostname if node else "",
            agent_url=node.agent_url if node else "",
            covers=gpu_id,
        )
    )


def on_changed(turn: Turn, task: Task, status: Status) -> None:
    """Forget a cover task that has ended; if it failed, the next one may be delayed."""
    state = turn.state
    if task.state is TaskState.RUNNING and turn.now - task.launched_at >= STEADY_S:
        state.gpus.keeper_failures.pop(task.agent_id, None)
    if not task.ended:
        return
    _forget(turn, task)
    _give_back_offers(turn, task.agent_id)
    if task.kill_sent_at is not None:
        if task.started_at is not None:
            state.gpus.keeper_failures.pop(task.agent_id, None)
        return
    if status.state == "TASK_ERROR" and turn.settings.mesos.reserves:
        # The master drops an operation that it does not allow, and with it the tasks that need its resources.
        state.mesos.reserve_from = turn.now + turn.settings.mesos.reserve_again_s
    failures = 1
    if turn.now - task.launched_at < STEADY_S:
        failures += state.gpus.keeper_failures.get(task.agent_id, NO_FAILURES)[0]
    wait_s = delay_s(failures, first_s=0.1, most_s=30.0)
    state.gpus.keeper_failures[task.agent_id] = failures, turn.now + wait_s


def _give_back_offers(turn: Turn, agent_id: AgentId) -> None:
    """Give back the offers of an agent, so that all its resources come in one offer.

    A GPU alone is less than masters offer (--min_allocatable_resources), and the offer that it came with may be held.
    """
    held = tuple(offer.id for offer in turn.state.cluster.offers.values() if offer.agent_id == agent_id)
    if held:
        turn.effects.append(Decline(held, 0.0))
        for offer_id in held:
            turn.state.cluster.drop_offer(offer_id)


def _forget(turn: Turn, task: Task) -> None:
    """Remove a cover task from the state, and remember its id for late status updates."""
    state = turn.state
    del state.work.tasks[task.id]
    state.gpus.gone_covers[task.id] = None
    for task_id in list(state.gpus.gone_covers)[:-_REMEMBERED]:
        del state.gpus.gone_covers[task_id]
    turn.effects.append(ForgetTask(task.id))


def _give_up(turn: Turn, task: Task) -> None:
    """Remove the cover task of a GPU without shares on an unreachable agent; if the task returns, it is killed."""
    task = replace(task, state=TaskState.LOST, ended_at=turn.now)
    turn.put_task(task)
    _forget(turn, task)


def close(turn: Turn, task: Task) -> None:
    """Kill a cover task, which gives its GPU back to Mesos."""
    turn.put_task(replace(task, kill_sent_at=turn.now))
    turn.effects.append(Kill(task.id, task.agent_id))


def is_uncovered(state: State) -> bool:
    """Return whether any GPU has shares but no cover task."""
    return len(state.gpus.sharers.keys() - state.gpus.covers.keys()) > 0


def on_tick(turn: Turn) -> None:
    """Record idle and uncovered GPUs, close idle ones in time, and repeat kills."""
    state, settings = turn.state, turn.settings
    for since_by_gpu, gpus_now in (
        (state.gpus.idle, state.gpus.covers.keys() - state.gpus.sharers.keys()),
        (state.gpus.uncovered, state.gpus.sharers.keys() - state.gpus.covers.keys()),
    ):
        for gpu_id in since_by_gpu.keys() - gpus_now:
            del since_by_gpu[gpu_id]
        for gpu_id in sorted(gpus_now - since_by_gpu.keys()):
            since_by_gpu[gpu_id] = turn.now
    if not state.mesos.connected:
        return
    for task in [state.work.tasks[task_id] for task_id in state.gpus.covers.values()]:
        assert task.covers is not None, "`covers` has cover tasks only"
        cut_off_at = task.unreachable_since if task.state is TaskState.UNREACHABLE else None
        if cut_off_at is not None and task.covers in state.gpus.idle:
            if turn.now - cut_off_at >= settings.mesos.unreachable_timeout_s:
                _give_up(turn, task)
            continue
        if task.kill_sent_at is not None:
            if turn.now - task.kill_sent_at >= settings.tasks.kill_resend_s:
                close(turn, task)
            continue
        since = state.gpus.idle.get(task.covers)
        if since is not None and (
            turn.now - since >= settings.placing.cover_linger_s or _is_unwanted(state, task)
        ):
            close(turn, task)


def _is_unwanted(state: State, task: Task) -> bool:
    """Return whether no job may get a share of the task's GPU: it is drained, or belongs to a booking."""
    if state.cluster.drain_of(task.hostname, task.covers) is not None:
        return True
    return any(
        booking.state.has_nodes and task.covers in booking.gpus
        for booking in state.calendar.bookings.values()
    )
