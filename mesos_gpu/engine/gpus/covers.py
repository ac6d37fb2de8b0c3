"""Cover tasks: each holds one shared card in Mesos, for all that have shares of it, so that nobody else is offered it.

They run in the keeper of their agent, an executor that does nothing. A task that has a share takes no GPU in Mesos.
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

PREFIX: Final = "gpu-cover."  # of the ids of cover tasks; a job's has a dash behind its name
_ID: Final = re.compile(r"gpu-cover\.[0-9]+\.[0-9]+\.(.+)", re.DOTALL)
_OPEN: Final = (TaskState.LAUNCHED, TaskState.STARTING, TaskState.RUNNING)
ROLE_LABEL: Final = "mesos_gpu.role"  # of keepers of queues' own roles
_REMEMBERED: Final = 1000  # cover tasks that have ended
STEADY_S: Final = 10.0  # what lived so long did not fail at its start: a keeper, or a monitor


# --- ids: a card can be taken up by them when the state does not know its task


def new_cover_id(state: State, gpu_id: GpuId) -> TaskId:
    """An id that no task had before, of a task that covers the card."""
    state.gpus.keepers += 1
    # The start of this scheduler makes it new even if it counts from 0 again.
    return TaskId(f"{PREFIX}{round(state.started_at * 1000)}.{state.gpus.keepers}.{gpu_id}")


def new_keeper_id(state: State, agent_id: AgentId) -> str:
    """An executor id that no keeper had before."""
    state.gpus.keepers += 1
    return f"gpu-keeper.{agent_id}.{round(state.started_at * 1000)}.{state.gpus.keepers}"


def card_of(task_id: TaskId) -> GpuId | None:
    """The card that a cover task holds, by its id; None: it is another's task."""
    match = _ID.fullmatch(task_id)
    return GpuId(match[1]) if match else None


# --- what is open


def is_open(task: Task) -> bool:
    """Whether more shares may be placed on the card that a cover task holds."""
    return task.state in _OPEN and task.kill_sent_at is None


def is_free(state: State, gpu_id: GpuId) -> bool:
    """Whether something of a card may be free: nobody holds it wholly, and if it is shared, it is held in Mesos."""
    if gpu_id in state.gpus.holders:
        return False
    cover = state.gpus.covers.get(gpu_id)
    return gpu_id not in state.gpus.sharers if cover is None else is_open(state.work.tasks[cover])


def is_closing(state: State, gpu_id: GpuId) -> bool:
    """Whether a card is about to be a whole one again: nobody has a share of it, and its task is being ended."""
    cover = state.gpus.covers.get(gpu_id)
    if cover is None or gpu_id in state.gpus.sharers:
        return False
    task = state.work.tasks[cover]
    return task.kill_sent_at is not None and task.state is not TaskState.UNREACHABLE


def open_parts(state: State, node: Node, settings: Settings) -> tuple[GpuPart, ...]:
    """What is free of each card of a node that is open to shares."""
    if not state.gpus.covers:
        return ()
    cards = (gpu for gpu in node.gpus if gpu.id in state.gpus.covers and is_free(state, gpu.id))
    return tuple([_part(state, gpu, settings) for gpu in cards])


def uncovered_parts(state: State, node: Node, settings: Settings, most: int) -> tuple[GpuPart, ...]:
    """What is free of a node's cards that have shares, and that no task holds in Mesos. They are held again with the
    GPUs that are free there: so many of them are looked at."""
    if not state.gpus.sharers:
        return ()
    cards = [gpu for gpu in node.gpus if gpu.id in state.gpus.sharers and gpu.id not in state.gpus.covers]
    return tuple([_part(state, gpu, settings) for gpu in cards[: max(most, 0)]])


def _part(state: State, gpu: Gpu, settings: Settings) -> GpuPart:
    return unshared(gpu, compute_milli(settings)).less(*state.gpus.sharers.get(gpu.id, {}).values())


def compute_milli(settings: Settings) -> int:
    """Thousandths of a card's compute that all its shares together may have."""
    return round(WHOLE * settings.placing.gpu_compute_overcommit)


# --- what opening takes


def keeper_of(state: State, agent_id: AgentId, label: str | None = None) -> Task | None:
    """A cover task whose keeper another one can join; None: a keeper is to be started. `label`: what the keeper says of
    its role, for Mesos lets no executor have resources of two; None: of whichever."""
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
    """The role that a keeper, ExecutorInfo as JSON, names as its own; "": none, it has the framework's default one."""
    if ROLE_LABEL not in keeper:
        return ""
    labels = json.loads(keeper).get("labels", {}).get("labels", ())
    return next((str(each["value"]) for each in labels if each["key"] == ROLE_LABEL), "")


def may_cover(state: State, agent_id: AgentId, now: float) -> bool:
    """Whether a card may be covered there now: a keeper that does not start is not started again and again."""
    failed = state.gpus.keeper_failures.get(agent_id)
    return failed is None or failed[1] <= now


def cost_of_cover(state: State, settings: Settings, agent_id: AgentId, now: float) -> Resources:
    """What holding one more card takes; where none may be covered now, more GPUs than there are."""
    return (
        settings.programs.cover
        if may_cover(state, agent_id, now)
        else settings.programs.cover.with_gpus(UNLIMITED)
    )


def cost_of_keeper(
    state: State, settings: Settings, agent_id: AgentId, label: str | None = None
) -> Resources:
    """What the keeper takes beside that; NOTHING: one is there that a task can join. `label` as of `keeper_of`."""
    return settings.programs.keeper if keeper_of(state, agent_id, label) is None else NOTHING


def held_for_covers(
    state: State, settings: Settings, on_agent: Iterable[Task]
) -> tuple[Resources, Resources]:
    """What cover tasks hold for longer, with their keepers, and what those hold whose cards are about to be whole ones
    again. `on_agent`: all tasks of one agent."""
    covers = [(task, task.covers) for task in on_agent if task.covers is not None]
    if not covers:
        return NOTHING, NOTHING
    stay = [task for task, gpu_id in covers if not is_closing(state, gpu_id)]
    keepers = len({task.executor_id for task in stay})
    closing = settings.programs.cover.scaled(len(covers) - len(stay))
    return settings.programs.cover.scaled(len(stay)) + settings.programs.keeper.scaled(keepers), closing


# --- their life


def adopt(turn: Turn, task_id: TaskId, agent_id: AgentId | None, state: TaskState) -> None:
    """Take up a cover task that the state does not know. One that nobody needs is ended: another one has its card."""
    gpu_id, known = card_of(task_id), turn.state
    is_held = gpu_id in known.gpus.covers or gpu_id in known.gpus.holders
    # What was said before an end may arrive after it.
    if gpu_id is None or agent_id is None or is_held or task_id in known.gpus.gone_covers:
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
    """Forget one that has ended; if nobody told it to, the next one may have to wait."""
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
        # The master drops an operation that it does not allow, and then what needs its resources.
        state.mesos.reserve_from = turn.now + turn.settings.mesos.reserve_again_s
    failures = 1
    if turn.now - task.launched_at < STEADY_S:
        failures += state.gpus.keeper_failures.get(task.agent_id, NO_FAILURES)[0]
    wait_s = delay_s(failures, first_s=0.1, most_s=30.0)
    state.gpus.keeper_failures[task.agent_id] = failures, turn.now + wait_s


def _give_back_offers(turn: Turn, agent_id: AgentId) -> None:
    """Let all that an agent has come in one offer: a GPU alone is less than masters offer
    (--min_allocatable_resources), and what it came with may be held."""
    held = tuple(offer.id for offer in turn.state.cluster.offers.values() if offer.agent_id == agent_id)
    if held:
        turn.effects.append(Decline(held, 0.0))
        for offer_id in held:
            turn.state.cluster.drop_offer(offer_id)


def _forget(turn: Turn, task: Task) -> None:
    state = turn.state
    del state.work.tasks[task.id]
    state.gpus.gone_covers[task.id] = None
    for task_id in list(state.gpus.gone_covers)[:-_REMEMBERED]:
        del state.gpus.gone_covers[task_id]
    turn.effects.append(ForgetTask(task.id))


def _give_up(turn: Turn, task: Task) -> None:
    """Let a card go that nobody has a share of, and whose agent is cut off; should its task be back, it is ended."""
    task = replace(task, state=TaskState.LOST, ended_at=turn.now)
    turn.put_task(task)
    _forget(turn, task)


def close(turn: Turn, task: Task) -> None:
    """Give its card back to Mesos."""
    turn.put_task(replace(task, kill_sent_at=turn.now))
    turn.effects.append(Kill(task.id, task.agent_id))


def is_uncovered(state: State) -> bool:
    """Whether a card has shares, and no task holds it in Mesos."""
    return len(state.gpus.sharers.keys() - state.gpus.covers.keys()) > 0


def on_tick(turn: Turn) -> None:
    """Note which cards are idle or uncovered; close the idle ones in time, and repeat what was not heard."""
    state, settings = turn.state, turn.settings
    for known, now_so in (
        (state.gpus.idle, state.gpus.covers.keys() - state.gpus.sharers.keys()),
        (state.gpus.uncovered, state.gpus.sharers.keys() - state.gpus.covers.keys()),
    ):
        for gpu_id in known.keys() - now_so:
            del known[gpu_id]
        for gpu_id in sorted(now_so - known.keys()):
            known[gpu_id] = turn.now
    if not state.mesos.connected:
        return
    for task in [state.work.tasks[task_id] for task_id in state.gpus.covers.values()]:
        assert task.covers is not None, "covers has cover tasks"
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
    """Whether nobody is to have a share of its card from now on: it is drained, or chosen for a booking."""
    if state.cluster.drain_of(task.hostname, task.covers) is not None:
        return True
    return any(each.state.has_nodes and task.covers in each.gpus for each in state.calendar.bookings.values())
