"""Input of a plan of moves: nodes, their free amounts, and the jobs that may be moved."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mesos_gpu.engine.gpus.gpu_status import is_closed
from mesos_gpu.engine.match.placing import Placing
from mesos_gpu.engine.parts.cluster import ClusterPart
from mesos_gpu.engine.parts.work import WorkPart
from mesos_gpu.engine.queue.backlog import Backlog, request_of
from mesos_gpu.engine.queue.forecast import offered_of
from mesos_gpu.engine.queue.neighbours import Neighbours
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import GpuNodes, Job, JobState
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.shares.units import number_of
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.policy.room.candidates import CandidateNode, Movable
from mesos_gpu.policy.room.defrag import Problem
from mesos_gpu.policy.room.reservation import reserve

_MOVING: Final = (JobState.STARTING, JobState.RUNNING)


def problem_of(state: State, settings: Settings, now: float, job: Job) -> Problem:
    """Return all that a plan of moves for a job needs; it stays valid when the state changes.

    The job need not be submitted. Reservations for other jobs and limits of queues do not count.
    """
    backlog, places = (
        Backlog(state, settings, now, offered_of(state), reading=True),
        _Places(state, settings, job),
    )
    nodes = [node for node in state.cluster.nodes.values() if not node.lost_at and not is_closed(state, node)]
    able = {node.id: node for node in nodes if not places.neighbours.ruled_out(job.spec, node)}
    request, moving = request_of(job, settings, state), _moving(state)

    def candidate(node: Node) -> CandidateNode:
        """Return a node as input of the plan: its free capacity, ignoring reservations, and its tasks that may move."""
        tasks = tuple(
            Movable(
                job_id=other.id,
                name=other.spec.name,
                request=request_of(other, settings, state),
                gpus=backlog.nodes.allocation(task, node).gpus,
                lost_gpu_s=_lost_gpu_s(other, task, now),
                bound=places.is_bound(other.id),
                share=task.share,
            )
            for other, task in moving.get(node.id, ())
        )
        # An open GPU without a share is whole again as soon as a job waits for it.
        return CandidateNode(backlog.nodes.capacity(node).without(()), tasks, able=node.id in able)

    hopeless = "" if job.spec.segment is None else "moves are not planned for jobs with segments"
    if not able:
        hopeless = "no node meets its constraints" if nodes else "no node may be given work"
    elif reserve(job, request, (backlog.nodes.capacity(node) for node in able.values()), now=now) is None:
        hopeless = "no node is large enough, even when all that runs there has ended"
    return Problem(
        request=request,
        tasks=job.spec.tasks,
        candidates=[candidate(node) for node in nodes],
        open_to=places.open_to,
        bound=places.is_bound(job.id),
        hopeless=hopeless,
    )


def _moving(state: State) -> dict[AgentId, list[tuple[Job, Task]]]:
    """Return the running jobs that may move, with their tasks, by agent."""
    movable: dict[AgentId, list[tuple[Job, Task]]] = {}
    for task_id in state.work.live:
        task = state.work.tasks[task_id]
        job = state.work.holding_job(task)
        if job is not None and _may_move(job, task):
            movable.setdefault(task.agent_id, []).append((job, task))
    return movable


def _lost_gpu_s(job: Job, task: Task, now: float) -> float:
    """Return the GPU seconds of a task since its start, which a move would lose."""
    run_s = 0.0 if task.started_at is None else max(now - task.started_at, 0.0)
    return round(number_of(job.spec.counted_milli) * run_s, 3)


def _may_move(job: Job, task: Task) -> bool:
    """Return whether a job may move; not a gang, as all its tasks would have to start again."""
    movable = job.spec.preemptible and job.spec.tasks == 1 and job.state in _MOVING
    ends = task.evicted or job.kill_requested or task.kill_sent_at is not None
    return movable and not ends and task.state is not TaskState.UNREACHABLE


class _Places:
    """Nodes that are open to a job while other jobs move; a copy of what it needs of the state.

    Args:
        request: Job that room is made for.
    """

    def __init__(self, state: State, settings: Settings, request: Job) -> None:
        self._nodes, self._request, self._levels = dict(state.cluster.nodes), request, settings.placing.levels
        self.neighbours, self._placing = Neighbours(state, settings.placing.levels), Placing(state, settings)
        self._jobs: dict[JobId, Job] = {request.id: request}
        self._company: list[tuple[Job, Task]] = []  # jobs whose place matters to other jobs
        self._waiting = [
            state.work.jobs[job_id] for _, job_id in state.work.queue if state.work.jobs[job_id].spec.app
        ]
        self._made: dict[Hashable, Neighbours] = {}
        for task_id in state.work.live:
            task = state.work.tasks[task_id]
            job = state.work.holding_job(task)
            if job is not None:
                self._jobs[job.id] = job
                if job.spec.app or job.spec.away:
                    self._company.append((job, task))
        self._bound = {job.id for job in self._jobs.values() if self.neighbours.key(job) is not None}
        self._off_gpus = {job.id for job in self._jobs.values() if self._placing.key(job) is GpuNodes.NEVER}

    def is_bound(self, job_id: JobId) -> bool:
        """Return whether the allowed nodes of a job depend on where other jobs run."""
        return job_id in self._bound

    def open_to(
        self, who: JobId | None, agent_id: AgentId, moved: Mapping[JobId, AgentId], members: Sequence[AgentId]
    ) -> bool:
        """Return whether a job may use a node after some moves, as of `policy.room.candidates.Open`."""
        job, node = self._jobs[who or self._request.id], self._nodes[agent_id]
        if job.id in self._off_gpus and node.gpus:
            return False
        return job.id not in self._bound or not self._seen_by(job, moved, members).barred(job, node)

    def _seen_by(self, job: Job, moved: Mapping[JobId, AgentId], members: Sequence[AgentId]) -> Neighbours:
        """Return affinity as a job would see it after some moves, without the job itself, which has left its node."""
        relevant = [
            (other, task) for other, task in self._company if other.id != job.id and _counts(job, other)
        ]
        key = job.id, tuple(moved.get(other.id) for other, _ in relevant), tuple(members)
        if key not in self._made:
            self._made[key] = self._neighbours_of(job, relevant, moved, members)
        return self._made[key]

    def _neighbours_of(
        self,
        job: Job,
        company: Sequence[tuple[Job, Task]],
        moved: Mapping[JobId, AgentId],
        members: Sequence[AgentId],
    ) -> Neighbours:
        """Return affinity in a state of its own: other jobs at their places after moves, and placed members.

        Args:
            company: Other jobs whose place matters, with their tasks.
            moved: New agents of jobs that move.
            members: Agents of tasks of the job that have a place already.
        """
        waiting = {other.id: other for other in (*self._waiting, job)}
        tasks = [replace(task, agent_id=moved.get(other.id, task.agent_id)) for other, task in company]
        state = State(
            started_at=0.0,
            work=WorkPart(
                jobs={**waiting, **{other.id: other for other, _ in company}},
                tasks={task.id: task for task in tasks},
                queue=[(other.sequence, other.id) for other in waiting.values()],
                live={task.id: None for task in tasks},
            ),
            cluster=ClusterPart(nodes=self._nodes),
        )
        neighbours = Neighbours(state, self._levels)
        if members:
            # Reading the state first makes it count the assignments that follow.
            neighbours.barred(job, self._nodes[members[0]])
        for agent_id in members:
            neighbours.take(Take(agent_id, job))
        return neighbours


def _counts(job: Job, other: Job) -> bool:
    """Return whether the place of another job can keep a job off a node, by rules for apps near or away from others."""
    apps = {job.spec.app, job.spec.near, job.spec.away} - {None}
    return other.spec.app in apps or (other.spec.away is not None and other.spec.away == job.spec.app)
