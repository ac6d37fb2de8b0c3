"""Status updates from Mesos: their effects on tasks, jobs and nodes."""

from dataclasses import replace
from typing import Any

from mesos_gpu.engine.changed import changed
from mesos_gpu.engine.effects import Acknowledge, Disbelieve, Kill, Shutdown
from mesos_gpu.engine.gpus import covers
from mesos_gpu.engine.gpus.cards import on_reported
from mesos_gpu.engine.gpus.unnamed import is_unnamed, with_held
from mesos_gpu.engine.tasks import volumes, worked
from mesos_gpu.engine.tasks.evictions import on_broken
from mesos_gpu.engine.tasks.excess import on_uses
from mesos_gpu.engine.tasks.gangs import on_changed
from mesos_gpu.engine.tasks.notices import ends_in_time, noted, on_checkpoint, on_told
from mesos_gpu.engine.tasks.resizing import on_resized
from mesos_gpu.engine.tasks.starting import on_first_word
from mesos_gpu.engine.tasks.unknown import hold, is_monitor, state_to_hold
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.healthcheck import Checked
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory, Program, numbered
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.saves import ForgetTask
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.model.tasks.listening import Listening
from mesos_gpu.model.tasks.status import Status
from mesos_gpu.model.tasks.task import ENDED, Action, Task, TaskState, actions_of
from mesos_gpu.policy.explain.silence import unfit
from mesos_gpu.policy.queueing.backoff import delay_s
from mesos_gpu.policy.tasks.blame import next_state
from mesos_gpu.policy.tasks.limits import in_words
from mesos_gpu.policy.tasks.trust import doubt, is_echo, is_left_over
from mesos_gpu.wire.hosts.checked import decode_checked
from mesos_gpu.wire.hosts.listening import decode_listening
from mesos_gpu.wire.hosts.program import decode_program
from mesos_gpu.wire.mesos import assignment, report
from mesos_gpu.wire.mesos.sound import sound


def on_status(turn: Turn, status: Status) -> None:
    """Apply a status update by the table of the life cycle, then acknowledge it."""
    task = turn.state.work.tasks.get(status.task_id)
    if task is None:
        _on_unknown(turn, status)
    else:
        _on_known(turn, task, status)
    if status.uuid is not None and status.agent_id is not None:
        turn.effects.append(Acknowledge(status.agent_id, status.task_id, status.uuid))


def _on_unknown(turn: Turn, status: Status) -> None:
    """Handle an update of a task that the state does not know, as the state may be older than the task.

    Tasks of jobs are held and not ended; a monitor is killed, as another one is launched anyway.
    """
    new = state_to_hold(status)
    if new is None:
        return
    if covers.card_of(status.task_id) is not None:
        covers.adopt(turn, status.task_id, status.agent_id, new)
    elif is_monitor(status.task_id):
        turn.effects.append(Kill(status.task_id, status.agent_id))
    elif status.agent_id is not None:
        hold(turn, status.task_id, status.agent_id, new)


def _on_known(turn: Turn, task: Task, status: Status) -> None:
    """Handle an update of a known task, unless its seal or its place makes it untrustworthy."""
    if why := doubt(task, status):
        disbelieve(turn, status, why)
        return
    outcome = _outcome(status)
    job = turn.state.work.current(task)
    if job is not None:
        status, outcome = in_words(status, outcome, job.spec.mem_mib)
    in_time = ends_in_time(task, status)
    new = next_state(
        status,
        outcome,
        kill_requested=job is not None and job.kill_requested,
        sick_gpu=bool(task.evicted) or in_time or _has_sick_gpu(turn, task),
        at_fault=bool(task.excess) and task.kill_sent_at is not None,
    )
    if outcome is not None and outcome.unhealthy and job is not None:
        task = changed(task, unhealthy=task.unhealthy or outcome.unhealthy)
        if job.app_version is not None and new is TaskState.FAILED:
            new = TaskState.KILLED  # as in Marathon, this is no failure that delays the next launch
    if in_time and new is TaskState.LOST:
        task = noted(task)
    task = _record_update(turn, task, new, status)
    # States of later Mesos versions are unknown, and ignoring them loses nothing. An echo is what the master heard
    # of an end: the agent sends the executor's own update later. Executors of cover tasks report nothing more.
    if new is None or (is_echo(task, status) and task.covers is None):
        return
    alone = task.covers is None  # a keeper may run other cover tasks
    if alone and new is TaskState.LOST and not task.ended and is_left_over(task, status):
        turn.effects.append(Shutdown(task.agent_id, task.executor_id))
    on_first_word(turn, task, new, status)
    move(turn, task, new, status, outcome)
    if new is TaskState.RUNNING:
        _on_running(turn, task, job, status)
    elif new is TaskState.KILLING and status.data:
        on_checkpoint(turn, turn.state.work.tasks[task.id], status)


def _on_running(turn: Turn, task: Task, job: Job | None, status: Status) -> None:
    """Apply the data of an update of a running task: a monitor's report, or what an executor reports of its task."""
    if job is not None:
        volumes.on_running(turn, job)
    if not status.data:
        return
    if task.job_id is None and task.covers is None:
        _on_report(turn, task, status)
        return
    on_resized(turn, turn.state.work.tasks[task.id], status)
    on_told(turn, turn.state.work.tasks[task.id], status)
    _on_listening(turn, turn.state.work.tasks[task.id], status)
    if (checked := _checked(status)) is not None:
        turn.state.apps.checked[task.id] = checked
    on_checkpoint(turn, turn.state.work.tasks[task.id], status)


def _record_update(turn: Turn, task: Task, new: TaskState | None, status: Status) -> Task:
    """Record the time, health and seal of an update. Health needs no match, and the executor ends an unhealthy task."""
    has_changed = new is TaskState.RUNNING and not task.ended and status.healthy not in (None, task.healthy)
    task = changed(
        task,
        heard_at=turn.now,
        healthy=status.healthy if has_changed else task.healthy,
        proof=max(task.proof, status.proof or 0),
    )
    if has_changed:
        turn.show_task(task)
    else:
        turn.state.set_task(task)
    return task


def move(turn: Turn, task: Task, new: TaskState, status: Status, outcome: Outcome | None) -> None:
    """Do what the table of the life cycle demands for a change from `task.state` to `new`.

    Raises:
        ValueError: The table has no such transition.
    """
    actions = actions_of(task.state, new)
    if actions is None:
        raise ValueError(f"task {task.id} cannot go from {task.state.value} to {new.value}")
    if Action.KILL in actions:
        turn.effects.append(Kill(task.id, task.agent_id))
    if Action.SAVE not in actions:
        return
    job = turn.state.work.current(task)
    message = task.evicted or status.message or task.message
    more: dict[str, Any] = {}
    if new in (TaskState.STARTING, TaskState.RUNNING) and task.program is None and status.data:
        more |= {"program": _program(status), "listening": _listening(status)}
    if new is TaskState.RUNNING and task.started_at is None:
        more["started_at"] = _when(turn, task, status)
    if new is TaskState.UNREACHABLE:
        more["unreachable_since"] = turn.now
    if new in ENDED:
        more["ended_at"] = _when(turn, task, status)
    task = changed(task, state=new, message=message, **more)
    turn.put_task(task)
    if outcome is not None:
        for gpu in outcome.refused_gpus:
            turn.state.gpus.contested[gpu] = turn.now + turn.settings.placing.contested_s
    if task.covers is not None:
        covers.on_changed(turn, task, status)
    elif task.unknown is not None or job is None:
        _on_jobless(turn, task)
    else:
        on_changed(turn, job, task, actions, status, outcome)


def _when(turn: Turn, task: Task, status: Status) -> float:
    """Return when an update's event happened, as the scheduler may have been away since.

    The time is kept within possible bounds, as the host's clock may be wrong. Answers to reconciliation have the time
    at which the master wrote them, so the present time is used for them.
    """
    if status.at is None or status.reason == "REASON_RECONCILIATION":
        return turn.now
    return min(max(status.at, task.started_at or task.launched_at), turn.now)


def _on_jobless(turn: Turn, task: Task) -> None:
    """Handle a change of a monitor, of a task that is held, or of a task whose job has another launch by now."""
    if task.job_id is None:
        _on_monitor(turn, task)
    elif task.unknown is not None and task.ended:
        turn.state.work.forget_task(task)
        turn.effects.append(ForgetTask(task.id))


def abandon(turn: Turn, task: Task, why: str) -> None:
    """Give up a launch that is unreachable; if it comes back, it is killed."""
    move(turn, task, TaskState.ABANDONED, Status(task.id, "TASK_UNREACHABLE", message=why), None)


def _on_monitor(turn: Turn, task: Task) -> None:
    """Forget a monitor that ended or was given up; another is started on the next offer of its agent."""
    node = turn.state.cluster.nodes.get(task.agent_id)
    if not task.ended and task.state is not TaskState.ABANDONED:
        return
    if task.ended:
        del turn.state.work.tasks[task.id]
        turn.effects.append(ForgetTask(task.id))
    if node is not None and node.monitor == task.id:
        lived_s, roll = turn.now - task.launched_at, turn.state.cluster.rolls.under_way.get(node.id)
        if roll is not None and roll.old != task.id:
            roll.failed = task.message
        failures = 1 if lived_s >= covers.STEADY_S else node.monitor_launches
        wait_s = delay_s(failures, first_s=0.2, most_s=30.0)
        turn.put_node(replace(node, monitor=None, monitor_not_before=turn.now + wait_s))


def disbelieve(turn: Turn, status: Status, why: str) -> None:
    """Ignore an untrustworthy update, count it and log it."""
    turn.state.mesos.disbelieved += 1
    turn.effects.append(Disbelieve(status.task_id, status.state, why))


def _on_report(turn: Turn, task: Task, status: Status) -> None:
    """Apply a monitor's report on the GPUs of its own agent."""
    node = turn.state.cluster.nodes.get(task.agent_id)
    if node is None:
        return
    if node.monitor != task.id:
        disbelieve(turn, status, f"the monitor of {node.hostname} is {node.monitor or 'none'}")
        return
    inventory = _read(turn, node, status.data)
    if why := _claims_of_others(turn, node, inventory):
        disbelieve(turn, status, why)
        return
    unchanged, before = inventory is node.inventory, node
    inventory = inventory if unchanged else with_held(turn, node, inventory)
    node = changed(node, inventory=inventory, reported_at=turn.now, lost_at=None)
    if not unchanged:
        worked.on_report(turn, before, node)
    turn.put_node(node)
    volumes.on_reported(turn, node)
    on_uses(turn, node)
    if not unchanged and inventory.task_uses:
        turn.state.gpus.gpu_work.reported.add(node.id)
    for gpu in node.gpus:
        if unchanged and gpu.health is Health.OK:
            continue
        if not unchanged:
            on_reported(turn, gpu)
        if gpu.health.broken:
            on_broken(turn, node, gpu)


def _read(turn: Turn, node: Node, data: bytes) -> Inventory:
    """Return the inventory of a report; a report with the bytes of the latest one is not decoded again.

    A monitor whose messages this scheduler cannot read counts with its program alone.
    """
    agents = turn.state.cluster.agents
    if (same := agents.read_as(node, data)) is not None:
        return same
    try:
        inventory = sound(report.decode(data))
        inventory = replace(inventory, gpus=numbered(inventory.gpus))  # older monitors report no index
    except ValueError as error:
        return _unread(turn, node, f"unreadable report: {error}")
    if why := unfit(replace(node, inventory=inventory)):
        return replace(_unread(turn, node, why), program=inventory.program)
    agents.note_report(node.id, data, inventory)
    return inventory


def _unread(turn: Turn, node: Node, why: str) -> Inventory:
    """Return an inventory with the known GPUs of a node, all of unknown health."""
    gpus = tuple(_unknown(gpu, why, turn.now) for gpu in node.gpus)
    return Inventory(gpus, source=node.inventory.source if node.inventory else "none")


def _claims_of_others(turn: Turn, node: Node, inventory: Inventory) -> str:
    """Return which reported GPU belongs to another agent by a report that still counts, in words; "" if none does."""
    agents = turn.state.cluster.agents
    if inventory is node.inventory and not agents.named_twice:
        return ""
    named = {gpu.id for gpu in inventory.gpus}
    if not agents.others_naming(node, named):
        return ""  # the usual case; a thousand agents report in ten seconds
    oldest = turn.now - turn.settings.programs.report_stale_s
    for other in turn.state.cluster.nodes.values():
        counts = other.lost_at is None and (other.reported_at or 0.0) > oldest
        if other.id != node.id and counts and (claimed := sorted(named & _claimed(other))):
            return f"it names {claimed[0]}, which is a card of {other.hostname} (agent {other.id})"
    return ""


def _claimed(node: Node) -> set[GpuId]:
    """Return the GPUs that a node's report names itself."""
    return {gpu.id for gpu in node.gpus if not is_unnamed(gpu)}


def _unknown(gpu: Gpu, why: str, now: float) -> Gpu:
    """Return a GPU with unknown health for a reason."""
    if is_unnamed(gpu):
        return gpu
    since = gpu.since if gpu.health is Health.UNKNOWN else now
    return replace(gpu, health=Health.UNKNOWN, reason=why, since=since)


def _outcome(status: Status) -> Outcome | None:
    """Return the executor's report of a task's end; None without a report."""
    if not status.data or status.state not in ("TASK_FINISHED", "TASK_FAILED", "TASK_KILLED"):
        return None
    try:
        return sound(assignment.decode_outcome(status.data))
    except ValueError:
        return None  # data of a foreign executor: the state alone decides


def _program(status: Status) -> Program | None:
    """Return the program of an executor, as its data says; None without it."""
    try:
        program = decode_program(status.data)
    except ValueError:
        return None  # it is only shown; the version of messages is known from the launch
    return None if program is None else sound(program)


def _listening(status: Status) -> Listening | None:
    """Return the ports at which a task listens, as the executor's data says; None without them."""
    try:
        listening = decode_listening(status.data)
    except ValueError:
        return None  # the data has another format: an executor of another project wrote it
    return None if listening is None else sound(listening)


def _checked(status: Status) -> Checked | None:
    """Return the result of a check that is only shown, from the executor's data; None without one."""
    try:
        return decode_checked(status.data)
    except ValueError:
        return None  # the data has another format: an executor of another project wrote it


def _on_listening(turn: Turn, task: Task, status: Status) -> None:
    """Store the ports at which a task listens, from the data of a status update."""
    listening = _listening(status)
    if listening is not None and listening != task.listening:
        turn.show_task(replace(task, listening=listening))


def _has_sick_gpu(turn: Turn, task: Task) -> bool:
    """Return whether a GPU of a task is broken."""
    node = turn.state.cluster.nodes.get(task.agent_id)
    if node is None:
        return False
    gpus = (node.gpu(gpu_id) for gpu_id in task.gpus)
    return any(gpu is not None and gpu.health.broken for gpu in gpus)
