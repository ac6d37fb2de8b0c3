"""Tasks that use more GPU memory than their share: warned or ended, as the operator has configured."""

from dataclasses import replace

from mesos_gpu.engine.tasks.evictions import send_kill
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.nodes.share_use import ShareUse
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.policy.sharing.excess import Treatment, is_watched, treatment


def on_uses(turn: Turn, node: Node) -> None:
    """Warn or end tasks of a node by the memory use that its monitor has just reported."""
    for use in node.inventory.uses if node.inventory else ():
        task = turn.state.work.tasks.get(use.task_id)
        if task is None or task.ended or task.agent_id != node.id or use.gpu_id not in task.gpus:
            continue
        job = turn.state.work.current(task)
        if task.share is None or job is None or job.state is JobState.PENDING or not is_watched(task.share):
            continue
        match treatment(use.looks, turn.settings.placing.on_gpu_excess):
            case Treatment.WARN:
                _warn(turn, job, task, use)
            case Treatment.END:
                _end(turn, job, task, use)
            case Treatment.NONE if task.excess and not use.looks and not task.kill_sent_at:
                # It was warned, and uses no more than its share again.
                turn.put_task(replace(task, excess=""))


def _words(task: Task, use: ShareUse) -> str:
    """Return by how much a task exceeds its share, in words."""
    assert task.share is not None, "only shares are looked at"
    granted_mib = task.share.memory_max_mib
    return (
        f"it uses {use.memory_mib} MiB of {use.gpu_id} on {task.hostname}, and its share is {granted_mib} MiB"
    )


def _warn(turn: Turn, job: Job, task: Task, use: ShareUse) -> None:
    """Warn the user of a job once, by its message."""
    if not task.excess:
        turn.put_task(replace(task, excess=_words(task, use)))
        turn.put_job(replace(job, message=f"beyond its share: {_words(task, use)}"))


def _end(turn: Turn, job: Job, task: Task, use: ShareUse) -> None:
    """Kill a task that exceeds its share, unless it is being ended already."""
    if task.kill_sent_at is None and not task.evicted and not job.kill_requested:
        words = _words(task, use)
        job = turn.put_job(replace(job, message=f"ended beyond its share: {words}"))
        send_kill(turn, job, replace(task, excess=words))
