"""Upkeep by time: reconciliation, repeated kills, unreachable tasks, and old records."""

from dataclasses import replace

from mesos_gpu.engine import set_back
from mesos_gpu.engine.access import tokens
from mesos_gpu.engine.apps import deploying as apps
from mesos_gpu.engine.arrays import making as arrays
from mesos_gpu.engine.bookings import ticking as bookings
from mesos_gpu.engine.effects import Reconcile
from mesos_gpu.engine.gpus import cards, covers, role, rolling
from mesos_gpu.engine.indexes.memory import Reconciliation
from mesos_gpu.engine.preemption import recalls
from mesos_gpu.engine.queue import secrets
from mesos_gpu.engine.tasks import evictions, gangs, replaced, resizing, unknown, volumes
from mesos_gpu.engine.tasks.evictions import send_kill
from mesos_gpu.engine.tasks.statuses import abandon
from mesos_gpu.engine.tenancy import accounts, budgets, idle, notices, past_uses
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import TaskId
from mesos_gpu.model.saves import ForgetJob, ForgetNode
from mesos_gpu.model.tasks.task import TaskState
from mesos_gpu.policy.queueing.backoff import delay_s


def begin_reconciliation(turn: Turn) -> None:
    """Request the state of every live task from the master, until each has had an update since now."""
    turn.state.mesos.reconciliation = Reconciliation(started_at=turn.now, next_at=turn.now)
    _reconcile(turn)


def on_tick(turn: Turn) -> None:
    """Do all upkeep that is due."""
    set_back.on_tick(turn)
    if turn.state.mesos.connected:
        _reconcile(turn)
        evictions.on_tick(turn)
        _kill_where_others_ended(turn)
    cards.on_tick(turn)
    covers.on_tick(turn)
    # Each of the following looks at every task or app, and each request and message brings a tick.
    if turn.now - turn.state.work.tended_at >= turn.settings.tasks.tend_interval_s:
        turn.state.work.tended_at = turn.now
        _tend(turn)
    elif turn.state.apps.ended_instances:
        apps.on_tick(turn)  # before the match, so that a replacement gets what the instance held


def _tend(turn: Turn) -> None:
    """Do the upkeep that looks at all tasks, jobs or apps."""
    budgets.on_tick(turn)  # before notices, so that jobs that need not end go on
    bookings.on_tick(turn)
    if turn.state.mesos.connected:
        _ask_about_doubtful(turn)
        unknown.on_tick(turn)
        gangs.on_tick(turn)
        resizing.on_tick(turn)
        recalls.on_tick(turn)  # before notices, so that jobs that need not end go on
        notices.on_tick(turn)
        idle.on_tick(turn)
        _repeat_kills(turn)
        rolling.on_tick(turn)
        role.on_tick(turn)
    _abandon_unreachable(turn)
    replaced.on_tick(turn)
    _forget_old(turn)
    arrays.forget_old(turn)
    tokens.on_tick(turn)
    past_uses.on_tick(turn)
    secrets.on_tick(turn)
    accounts.on_tick(turn)
    apps.on_tick(turn)
    volumes.on_tick(turn)


def _reconcile(turn: Turn) -> None:
    """Continue the reconciliation in progress, or begin the next one once it is due."""
    state, settings = turn.state, turn.settings
    run = state.mesos.reconciliation
    if run is None:
        if turn.now - state.mesos.reconciled_at >= settings.mesos.reconcile_interval_s:
            begin_reconciliation(turn)
        return
    if turn.now < run.next_at:
        return
    silent = [state.work.tasks[t] for t in state.work.live if state.work.tasks[t].heard_at < run.started_at]
    # The master knows a task that was launched after the start of the run by its launch.
    silent = [task for task in silent if task.launched_at <= run.started_at]
    if not silent:
        state.mesos.reconciliation, state.mesos.reconciled_at = None, turn.now
        # Implicit reconciliation, which also reports tasks that only Mesos knows.
        turn.effects.append(Reconcile(()))
        return
    run.tries += 1
    run.next_at = turn.now + delay_s(
        run.tries, first_s=settings.mesos.reconcile_first_s, most_s=settings.mesos.reconcile_most_s
    )
    turn.effects.append(Reconcile(tuple((task.id, task.agent_id) for task in silent)))


def _ask_about_doubtful(turn: Turn) -> None:
    """Request the state of launches without an update, as their ACCEPT may be lost, and of unreachable tasks."""
    doubt_s = turn.settings.tasks.launch_doubt_s
    tasks = []
    for task_id in _restless(turn):
        task = turn.state.work.tasks[task_id]
        silent = task.state in (TaskState.LAUNCHED, TaskState.UNREACHABLE, TaskState.ABANDONED)
        if silent and turn.now - max(task.heard_at, task.launched_at) > doubt_s:
            tasks.append(replace(task, heard_at=turn.now))
    for task in tasks:
        turn.state.set_task(task)
    if tasks:
        turn.effects.append(Reconcile(tuple((task.id, task.agent_id) for task in tasks)))


def _kill_where_others_ended(turn: Turn) -> None:
    """Send kills that waited for a turn on agents where killed tasks have ended."""
    if freed := turn.state.work.restless.freed:
        evictions.send_waiting_kills(turn, sorted(freed))
        freed.clear()


def _repeat_kills(turn: Turn) -> None:
    """Send kills again that have had no effect, and those that wait for their turn."""
    # Earlier kills may be old by now.
    evictions.send_waiting_kills(turn, list(turn.state.work.restless.unkilled))
    for task_id in _restless(turn):
        task = turn.state.work.tasks[task_id]
        job = turn.state.work.current(task)
        ended_for_excess = task.excess and task.kill_sent_at is not None
        if job is None or not (job.kill_requested or task.evicted or ended_for_excess):
            continue
        killed_at = task.kill_sent_at
        if killed_at is not None and turn.now - killed_at >= turn.settings.tasks.kill_resend_s:
            send_kill(turn, job, task)


def _abandon_unreachable(turn: Turn) -> None:
    """Give up launches that were unreachable for too long."""
    limit_s = turn.settings.mesos.unreachable_timeout_s
    for task_id in _restless(turn):
        task = turn.state.work.tasks[task_id]
        since, job = task.unreachable_since, turn.state.work.current(task)
        if task.unknown is not None:
            continue  # only an operator may end it
        if task.covers is not None:
            continue  # a cover task stays: tasks with shares of its GPU are given up, and may return
        if job is not None and job.app_version is not None and not job.kill_requested:
            continue  # its app's strategy decides when
        if task.state is TaskState.UNREACHABLE and since is not None and turn.now - since >= limit_s:
            abandon(turn, task, f"its agent {task.hostname} was unreachable for {limit_s:g} s")


def _forget_old(turn: Turn) -> None:
    """Forget the oldest ended jobs beyond a limit."""
    state = turn.state
    surplus = len(state.work.ended) - turn.settings.memory.keep_ended_jobs
    # A later instance takes over the volumes and continues the launch count of these jobs.
    kept = {volume.job_id for volume in state.work.volumes.values() if not volume.is_named}
    for job_id in list(state.work.ended)[: max(surplus, 0)]:
        if job_id in kept or any(not task.ended for task in state.work.tasks_of(job_id)):
            continue  # an abandoned launch still holds GPUs
        state.forget_job(job_id)
        turn.effects.append(ForgetJob(job_id))
    _forget_lost_nodes(turn)


def _forget_lost_nodes(turn: Turn) -> None:
    """Forget nodes that have been lost for long.

    A node is forgotten at once if another agent is at its address: an agent that restarts without its work directory
    has a new id.
    """
    state = turn.state
    if not state.cluster.agents.lost:
        return
    taken = {(node.hostname, node.agent_url) for node in state.cluster.nodes.values() if node.lost_at is None}
    busy = {state.work.tasks[task_id].agent_id for task_id in state.work.live}
    for node in list(state.cluster.nodes.values()):
        if node.lost_at is None or node.id in busy:
            continue
        is_replaced = bool(node.agent_url) and (node.hostname, node.agent_url) in taken
        if is_replaced or turn.now - node.lost_at > turn.settings.memory.keep_lost_nodes_s:
            state.cluster.drop_node(node.id)
            turn.effects.append(ForgetNode(node.id))


def _restless(turn: Turn) -> list[TaskId]:
    """Return the live tasks that upkeep must look at, in launch order."""
    return turn.state.work.restless.in_order(turn.state.work.restless.tasks)
