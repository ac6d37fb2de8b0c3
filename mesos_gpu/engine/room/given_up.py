"""Reservations of what tasks of a gang gave up so that the gang can start again; they last until the gang runs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from mesos_gpu.engine.room.footprint import footprint_of
from mesos_gpu.engine.room.hopeless import could_fit, ground_now, is_hopeless, known_to_fit
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.why import Stage
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.resources import NOTHING, total
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.policy.admission.limits import Wait
from mesos_gpu.policy.capacity.node import ENDLESS, NodeCapacity, Reservation, Spare
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.keeping import Kept, reservation_of
from mesos_gpu.policy.room.together import Place


def given_up(
    state: State,
    settings: Settings,
    now: float,
    rule_against: Callable[[Job], Wait | None],
    request_of: Callable[[Job], Request],
    spares_of: Callable[[Job, Sequence[AgentId]], tuple[Spare, ...] | None],
    place_of: Callable[[Job], Place | None],
    capacity: Callable[[Node], NodeCapacity],
) -> list[Reservation]:
    """Return the reservations for gangs that start again.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        now: Time, in seconds since the epoch.
        rule_against: Function that returns why a rule keeps a gang from starting; None if it may start.
        request_of: Function that returns the request of each task of a gang.
        spares_of: Function that returns the rest of each limit for other jobs if a gang still had its ended tasks,
            given by their agents; None if limits or guarantees never let the gang have them again.
        place_of: Function that returns the search for the nodes of a gang's tasks if no other task ran; None if no
            rule compares them.
        capacity: Function that returns the capacity of a node now.
    """
    kept: list[Reservation] = []
    gangs = [job for job in _starting_again(state) if not job.room_on]
    if not gangs:
        return kept
    ground = ground_now(state)
    for job in gangs:
        members = state.work.round_of(job)
        rule = rule_against(job)  # a missing seat does not count: the gang had one, or gets the next
        if any(map(_is_for_others, members)) or (rule is not None and rule.stage is not Stage.GUARANTEE):
            continue
        if not could_fit(state, job, ground, now, partial(_fits, state, job, request_of, place_of, capacity)):
            continue
        by_agent: dict[AgentId, list[Task]] = {}
        for task in members:
            if task.ended:
                by_agent.setdefault(task.agent_id, []).append(task)
        spares = spares_of(job, [task.agent_id for task in members if task.ended])
        if spares is None:
            continue
        kept.append(Reservation(job.id, job.spec.queue, NOTHING, ENDLESS, spares=spares, is_given_up=True))
        for agent_id, tasks in by_agent.items():
            node = state.cluster.nodes.get(agent_id)
            if node is not None and node.lost_at is None:
                kept.append(_reservation(job, settings, tasks, capacity(node)))
    return kept


def keeps_seat(state: State, job: Job) -> bool:
    """Return whether a gang waits to start again, and precedes jobs behind it in its guarantee until then."""
    if job.spec.tasks == 1 or not job.launches or any(map(_is_for_others, state.work.round_of(job))):
        return False
    return known_to_fit(state, job)


def _fits(
    state: State,
    job: Job,
    request_of: Callable[[Job], Request],
    place_of: Callable[[Job], Place | None],
    capacity: Callable[[Node], NodeCapacity],
) -> bool:
    """Return whether all nodes, also drained and lost ones, could serve a gang if they were empty and sound."""
    nodes = map(capacity, state.cluster.nodes.values())
    return not is_hopeless(state, request_of(job), nodes, place_of(job))


def _starting_again(state: State) -> Iterator[Job]:
    """Yield gangs that wait after a launch, and gangs that are being ended to start again."""
    jobs = state.work.jobs
    yield from [
        job for _, job_id in state.work.queue if (job := jobs[job_id]).launches and job.spec.tasks > 1
    ]
    restless = (state.work.tasks[task_id] for task_id in state.work.restless.tasks)
    ending = (state.work.current(task) for task in restless if task.launch and task.evicted)
    for job in {job.id: job for job in ending if job is not None}.values():
        if job.state is not JobState.PENDING and not job.kill_requested:
            yield job


def _is_for_others(task: Task) -> bool:
    """Return whether a task ended, or ends, for another reason than the restart of its gang."""
    for_others = (
        task.notice is not None and task.notice.stands and task.notice.reason is not NoticeReason.DRAIN
    )
    return for_others or task.preempted_for is not None


def _reservation(job: Job, settings: Settings, tasks: Iterable[Task], node: NodeCapacity) -> Reservation:
    """Return the reservation of what ended tasks of a gang held on one node."""
    members = list(tasks)
    gpus = list(chain.from_iterable(task.gpus[: job.spec.gpus] for task in members))
    needs = total(footprint_of(job, settings).total for _ in members)
    share = next((task.counted_share for task in members), None)
    open_now = {part.gpu_id for part in node.parts} if share is not None else set()
    shares = tuple([(gpu_id, share) for gpu_id in gpus if share is not None and gpu_id in open_now])
    beside = [part for part in node.parts if part.gpu_id in gpus]
    for gpu_id, each in shares:
        beside = [part.less(each) if part.gpu_id == gpu_id else part for part in beside]
    kept = Kept(frozenset(gpus) - open_now, node.free - needs, shares, tuple(beside))
    return replace(reservation_of(job, needs, node, kept, (), ENDLESS), is_given_up=True)


def precedes(state: State, job: Job, kept: Reservation, rank: Callable[[Job], tuple[int, ...]]) -> bool:
    """Return whether a job comes before a gang with a reservation, and so may use what is reserved.

    Args:
        state: State of the engine.
        job: Job that waits.
        kept: Reservation of what the gang gave up.
        rank: Function that returns the place of a job in its queue; the lowest is first.
    """
    gang = state.work.jobs[kept.job_id]
    if state.quota.tree.leaf_of(job.spec.queue) != state.quota.tree.leaf_of(gang.spec.queue):
        return job.room_made_at is not None or (
            job.id in state.quota.seats_given and gang.seat is None and gang.id not in state.quota.seats_given
        )
    return rank(job) < rank(gang)
