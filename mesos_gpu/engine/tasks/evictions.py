"""Eviction of running tasks from broken GPUs and drained places, and kills of tasks."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Final

from mesos_gpu.engine.effects import Kill
from mesos_gpu.engine.gpus.cards import note
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.job import Job, JobState, OnGpuFailure
from mesos_gpu.model.nodes.drain import Drain, Target
from mesos_gpu.model.nodes.gpu import Gpu, Health
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.task import Task, TaskState

#: Kills under way per agent and owner. Some hundred runnable threads of ending executors slow down a host for others.
MAX_KILLS: Final = 4
_KILL_S: Final = 2.0  # age from which a kill no longer counts: the task may have a long grace period


def has_turn(turn: Turn, job: Job, task: Task) -> bool:
    """Return whether a task may be killed now, given the kills in progress on its agent for tasks of its owner.

    Tasks of other owners do not count, so that many slow kills of one owner do not delay the kills of another.
    """
    killed = turn.state.work.restless.told_since(task.agent_id, turn.now - _KILL_S)
    jobs = (
        turn.state.work.jobs.get(job_id)
        for id in killed
        if (job_id := turn.state.work.tasks[id].job_id) is not None
    )
    own = (killed_job for killed_job in jobs if killed_job is not None and killed_job.owner == job.owner)
    return sum(1 for _ in islice(own, MAX_KILLS)) < MAX_KILLS


def send_waiting_kills(turn: Turn, agents: Iterable[AgentId]) -> None:
    """Send kills on some agents that waited for a turn and have it now."""
    restless = turn.state.work.restless
    for agent_id in agents:
        over = set[str]()  # owners without a turn
        for task_id in restless.in_order(restless.unkilled.get(agent_id, ())):
            task = turn.state.work.tasks[task_id]
            job = turn.state.work.current(task)
            if job is None or job.owner in over:
                continue
            if has_turn(turn, job, task):
                send_kill(turn, job, task)
            else:
                over.add(job.owner)


def send_kill(turn: Turn, job: Job, task: Task) -> None:
    """Send a kill request for a task, and record when it was sent."""
    turn.put_task(replace(task, kill_sent_at=turn.now))
    turn.effects.append(Kill(task.id, task.agent_id, job.spec.kill_grace_s))


def on_broken(turn: Turn, node: Node, gpu: Gpu) -> None:
    """Treat each task on a broken GPU as its job wants: restart it, tell its user, or leave it."""
    why = f"{gpu.id} on {node.hostname} is {gpu.health.value}" + (f": {gpu.reason}" if gpu.reason else "")
    for task in turn.state.tenants(gpu.id):
        _on_broken(turn, task, gpu, why)


def _on_broken(turn: Turn, task: Task, gpu: Gpu, why: str) -> None:
    """Treat a task on a broken GPU as its job wants."""
    job = running(turn, task)
    if job is None:
        return
    match job.spec.on_gpu_failure:
        case OnGpuFailure.RESTART:
            evict(turn, job, why, {gpu.id: gpu.health})
        case OnGpuFailure.NOTIFY:
            if gpu.id not in task.told:
                turn.put_task(replace(task, told=(*task.told, gpu.id)))
                turn.put_job(replace(job, message=why))
        case OnGpuFailure.IGNORE:
            pass


def on_tick(turn: Turn) -> None:
    """Evict jobs from GPUs and nodes whose drain deadline has passed."""
    overdue = {key: drain for key, drain in turn.state.cluster.drains.items() if drain.overdue(turn.now)}
    if not overdue:
        return
    for task_id in list(turn.state.work.live):
        task = turn.state.work.tasks[task_id]
        keys: list[tuple[Target, str]] = [(Target.NODE, task.hostname), *((Target.GPU, g) for g in task.gpus)]
        drain = next((overdue[key] for key in keys if key in overdue), None)
        job = running(turn, task) if drain else None
        if drain is not None and job is not None:
            why = f"{named(drain)} was {drain.words}"
            cards = {g: Health.DRAINED for g in task.gpus if drain.target is Target.NODE or g == drain.name}
            evict(turn, job, why, cards)


def named(drain: Drain) -> str:
    """Return the name of a drained GPU or node for messages."""
    return drain.name if drain.target is Target.GPU else f"node {drain.name}"


def running(turn: Turn, task: Task | None) -> Job | None:
    """Return the job of a task that may be ended; None if it is being ended, or was given up as unreachable."""
    job = turn.state.work.current(task) if task else None
    if task is None or job is None or task.evicted or job.kill_requested:
        return None
    return None if job.state is JobState.PENDING or job.state.ended else job


def end_tasks(turn: Turn, job: Job, why: str, preempted_for: JobId | None) -> None:
    """Kill the tasks of a job that are not being ended already, with a reason."""
    for task in turn.state.work.round_of(job):
        if not task.ended and not task.evicted and task.state is not TaskState.ABANDONED:
            send_kill(turn, job, replace(task, evicted=why, preempted_for=preempted_for))


def end_for_good(turn: Turn, job: Job, why: str, *, unlaunched: str) -> None:
    """End a job that is no longer wanted.

    Tasks beyond `MAX_KILLS` on an agent are killed later, as others end.

    Args:
        why: Reason that is stored with its tasks.
        unlaunched: Message of the job if it has no tasks.
    """
    if job.state is JobState.PENDING:
        turn.end_job(replace(job, kill_requested=True), JobState.KILLED, unlaunched)
        return
    job = turn.put_job(replace(job, kill_requested=True, state=JobState.KILLING, message=why))
    for task in turn.state.work.round_of(job):
        if not task.ended and has_turn(turn, job, task):
            send_kill(turn, job, task)


def evict(
    turn: Turn,
    job: Job,
    why: str,
    cards: Mapping[GpuId, Health] = MappingProxyType({}),
    preempted_for: JobId | None = None,
) -> None:
    """End all tasks of a running job; it is queued again when they have ended."""
    turn.put_job(replace(job, message=f"{why}; it is ended here and queued again"))
    end_tasks(turn, job, why, preempted_for)
    for gpu_id, health in cards.items():
        note(turn, gpu_id, health, f"job {job.id} is ended here and queued again")
