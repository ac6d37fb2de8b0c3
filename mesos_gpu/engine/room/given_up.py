"""Room that the tasks of a gang gave up for the gang to start again: it is kept until the gang runs."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from mesos_gpu.engine.room.footprint import footprint_of
from mesos_gpu.engine.room.hopeless import fit_nowhere
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.resources import total
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.policy.admission.limits import Wait
from mesos_gpu.policy.capacity.node import ENDLESS, NodeCapacity, Reservation


def given_up(
    state: State,
    settings: Settings,
    now: float,
    rule_against: Callable[[Job], Wait | None],
    capacity: Callable[[Node], NodeCapacity],
) -> list[Reservation]:
    """Return what is kept of nodes for gangs that start again.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        now: Seconds since the epoch.
        rule_against: Rule of its queue or class that keeps a gang from starting; None if it may start.
        capacity: Capacity of a node now.
    """
    kept: list[Reservation] = []
    gangs = [job for job in _starting_again(state) if not job.room_on]
    hopeless = fit_nowhere(state, now) if gangs else frozenset()
    for job in gangs:
        members = state.round_of(job)
        if job.id in hopeless or any(map(_is_for_others, members)) or rule_against(job):
            continue
        by_agent: dict[AgentId, list[Task]] = {}
        for task in members:
            if task.ended:
                by_agent.setdefault(task.agent_id, []).append(task)
        for agent_id, tasks in by_agent.items():
            node = state.nodes.get(agent_id)
            if node is not None and node.lost_at is None:
                kept.append(_reservation(job, settings, tasks, capacity(node)))
    return kept


def _starting_again(state: State) -> Iterator[Job]:
    """Yield the gangs that wait after a launch, and those whose members are being ended for the gang to start again."""
    waiting = (state.jobs[job_id] for _, job_id in state.queue)
    yield from (job for job in waiting if job.spec.tasks > 1 and job.launches)
    restless = (state.tasks[task_id] for task_id in state.restless.tasks)
    ending = (state.current(task) for task in restless if task.launch and task.evicted)
    for job in {job.id: job for job in ending if job is not None}.values():
        if job.state is not JobState.PENDING and not job.kill_requested:
            yield job


def _is_for_others(task: Task) -> bool:
    """Return whether a task ended, or ends, for something else than the start of its gang again."""
    for_others = (
        task.notice is not None and task.notice.stands and task.notice.reason is not NoticeReason.DRAIN
    )
    return for_others or task.preempted_for is not None


def _reservation(job: Job, settings: Settings, tasks: Iterable[Task], node: NodeCapacity) -> Reservation:
    members = list(tasks)
    gpus = list(chain.from_iterable(task.gpus[: job.spec.gpus] for task in members))
    needs = total(footprint_of(job, settings).total for _ in members)
    share = next((task.counted_share for task in members), None)
    open_now = {part.gpu_id for part in node.parts} if share is not None else set()
    shares = tuple([(gpu_id, share) for gpu_id in gpus if share is not None and gpu_id in open_now])
    beside = [part for part in node.parts if part.gpu_id in gpus]
    for gpu_id, each in shares:
        beside = [part.less(each) if part.gpu_id == gpu_id else part for part in beside]
    return Reservation(
        job_id=job.id,
        queue=job.spec.queue,
        resources=needs,
        at=ENDLESS,
        agent_id=node.agent_id,
        hostname=node.hostname,
        gpus=frozenset(gpus) - open_now,
        spare=node.free - needs,
        shares=shares,
        beside=tuple(beside),
        is_given_up=True,
    )


def precedes(state: State, job: Job, kept: Reservation, rank: Callable[[Job], tuple[int, ...]]) -> bool:
    """Return whether a job stands before the gang for which something is kept, and so may take it.

    Args:
        state: State of the engine.
        job: Job that waits.
        kept: Reservation of what the gang gave up.
        rank: Place of a job in its queue; the lowest is first.
    """
    gang = state.jobs[kept.job_id]
    if job.spec.queue != gang.spec.queue and state.tree is not None:
        return job.room_made_at is not None or (
            job.id in state.seats_given and gang.seat is None and gang.id not in state.seats_given
        )
    return rank(job) < rank(gang)
