"""Jobs of lower priority make room: the plan is whole before the first of them is ended."""

from collections.abc import Container, Hashable, Iterable, Mapping
from dataclasses import replace

from mesos_gpu.engine.calendar.booked import booked_for
from mesos_gpu.engine.queue.backlog import Backlog, request_of
from mesos_gpu.engine.queue.las import Attained
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy import idle, notices
from mesos_gpu.engine.tenancy.seats import Seating
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.policy.apps.ports import enough
from mesos_gpu.policy.capacity.node import NodeCapacity, Reservation
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.knapsack import Victim
from mesos_gpu.policy.room.preemption import grounds, plan

_MOST_TRIED = 16  # blocked jobs in one match: each is a look at every node


def possible(turn: Turn, seating: Seating | None = None) -> bool:
    """Whether anybody who waits could have somebody ended."""
    state = turn.state
    if not turn.settings.preemption or not state.queue:
        return False
    if seating is not None and idle.is_pressing(state):
        return True
    current = (state.current(state.tasks[task_id]) for task_id in state.restless.preemptible)
    jobs = {job.id: job for job in current if job is not None and job.spec.preemptible}.values()
    if not jobs:
        return False
    if seating is not None:
        return True
    lowest, waiting = (
        min(job.priority for job in jobs),
        [state.jobs[job_id] for _, job_id in state.queue],
    )
    if any(job.priority > lowest for job in waiting):
        return True
    return (attained := Attained(state, turn.now)).any and attained.moves_on(waiting, jobs)


def preempt(turn: Turn, backlog: Backlog, blocked: Iterable[Job]) -> None:
    """End jobs for the first of the blocked ones that this helps."""
    victims = _victims(turn)
    if not victims:
        return
    lowest, tried = min(victim.priority for victim in victims.values()), set[tuple[Request, Hashable]]()
    for job in blocked:
        if job.priority <= lowest and not backlog.attained.orders(job):
            continue
        request = request_of(job, turn.settings)
        key = request, (job.priority, backlog.attained.rank(job))
        if key in tried or len(tried) >= _MOST_TRIED:
            continue
        if _may_fit_soon(turn, backlog, job):
            continue
        limits = backlog.shortages(job)
        if not limits and backlog.over_limit(job):
            continue
        tried.add(key)
        lower = _lower(turn, backlog, job, victims)
        request, nodes = replace(request, ports=job.spec.ports), _nodes(turn, backlog, job, lower)
        place = backlog.neighbours.placing_of(job)
        chosen = plan(
            request, job.spec.tasks, nodes, lower, place=place, shortages=limits[0] if limits else ()
        )
        if chosen and grounds(request, job.spec.tasks, nodes, chosen, place):
            if not just_launched(turn, chosen):
                _make_room(turn, job, chosen)
            return  # what they give back must be seen before more is planned


def just_launched(turn: Turn, chosen: Iterable[Victim]) -> bool:
    """Whether one of those is launched by this very match: no launch is followed by its end at once. The next match
    plans anew, for it or for another one."""
    jobs = (turn.state.jobs[victim.job_id] for victim in chosen)
    return any(task.launched_at >= turn.now for job in jobs for task in turn.state.round_of(job))


def _may_fit_soon(turn: Turn, backlog: Backlog, job: Job) -> bool:
    """What is free may not have been offered yet; or room was made, and who was ended for it still runs."""
    if (
        turn.now - max(job.submitted_at, job.not_before, turn.state.registered_at)
        < turn.settings.preempt_after_s
    ):
        return True
    made_at = job.room_made_at
    if made_at is None:
        return False
    if turn.now - made_at < turn.settings.preempt_again_s:
        return True
    return job.id in backlog.ended_for


def _victims(turn: Turn) -> dict[JobId, Victim]:
    """Every job that may be ended now, by whoever is before it."""
    victims = {}
    for task_id in turn.state.live:
        task = turn.state.tasks[task_id]
        job = turn.state.current(task)
        if job is None or job.id in victims or not may_be_ended(job) or booked_for(turn.state, job):
            continue
        members = turn.state.round_of(job)
        if not any(member.evicted for member in members) and notices.stands(turn, job) is None:
            ran_s = sum(turn.now - (member.started_at or turn.now) for member in members)
            cost = job.spec.counted_milli * round(ran_s * 1000) // 1000
            victims[job.id] = Victim(job.id, job.priority, cost)
    return victims


def _lower(turn: Turn, backlog: Backlog, job: Job, victims: Mapping[JobId, Victim]) -> dict[JobId, Victim]:
    """Victims that give way to a job: of lower priority, or of its own queue and with more service."""
    jobs, attained = turn.state.jobs, backlog.attained
    return {
        v.job_id: v
        for v in victims.values()
        if v.priority < job.priority or attained.gives_way(jobs[v.job_id], job)
    }


def may_be_ended(job: Job) -> bool:
    """Whether it runs, and may make room for others."""
    runs = job.state in (JobState.STARTING, JobState.RUNNING) and not job.kill_requested
    return runs and job.spec.preemptible


def _nodes(
    turn: Turn,
    backlog: Backlog,
    job: Job,
    victims: Mapping[JobId, Victim],
) -> list[NodeCapacity]:
    """Nodes that could serve a job when victims there have ended, with what these hold."""
    nodes, gone = turn.state.nodes.values(), ending(turn.state) - victims.keys()
    open_to = (node for node in nodes if backlog.serves(job, node) and backlog.new_enough(job, node))
    able = (
        replace(
            _capacity(backlog, node, victims, gone, backlog.kept_by_others(job, node)),
            ports=backlog.ports_for(job, node),
        )
        for node in open_to
    )
    return [node for node in able if may_have_ports(job, node)]


def may_have_ports(job: Job, node: NodeCapacity) -> bool:
    """Whether the ports that a job asks for by number are free on a node when all victims there have ended."""
    if node.ports is None or job.spec.tasks > 1:
        return True
    return enough(job.spec.ports, (*node.ports, *(port for held in node.allocations for port in held.ports)))


def _capacity(
    backlog: Backlog,
    node: Node,
    victims: Mapping[JobId, Victim],
    gone: Container[JobId | None],
    kept: Iterable[Reservation],
) -> NodeCapacity:
    """The node with what victims hold there. What is kept for others is not free; what is being ended will be."""
    now = backlog.capacity(node)
    of_victims = tuple(held for held in now.allocations if held.job_id in victims)
    ends = [held for held in now.allocations if held.job_id in gone]
    return replace(now.without(ends).keeping(kept), allocations=of_victims)


def ending(state: State, *, for_others: bool = False) -> frozenset[JobId]:
    """Jobs that were told to end, and not to make room for another one. With `for_others` those as well, and all from
    their notice on: who is drained, or is at the end of his time, leaves room, too."""
    tasks = [state.tasks[task_id] for task_id in state.live]
    told = [task for task in tasks if task.preempted_for is None and task.kill_sent_at is not None]
    if for_others:
        told += [task for task in tasks if task.preempted_for or (task.notice and task.notice.stands)]
    jobs = (state.current(task) for task in told)
    return frozenset(job.id for job in jobs if job is not None and job.state is not JobState.UNREACHABLE)


def _make_room(turn: Turn, job: Job, chosen: Iterable[Victim]) -> None:
    turn.put_job(replace(job, room_made_at=turn.now))
    for victim in chosen:
        other = turn.state.jobs[victim.job_id]
        if victim.priority < job.priority:
            why = f"makes room for job {job.id}, whose priority is {job.priority}, not {victim.priority}"
        else:
            why = f"makes room for job {job.id}, which has had less GPU time in queue {job.spec.queue}"
        notices.give(turn, other, NoticeReason.PREEMPTION, why, by=job.id)
