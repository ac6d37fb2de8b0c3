"""Closing of idle shared GPUs (open, without a share) so that blocked jobs can start on them as whole GPUs."""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from typing import Final

from mesos_gpu.engine.gpus import covers
from mesos_gpu.engine.queue.backlog import Backlog, request_of
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.policy.capacity.fit import Misfit, beside_all, fit
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.together import Place

Nodes = dict[AgentId, NodeCapacity]
_MAX_TRIED: Final = 16  # kinds of jobs per match that closing does not help, as each costs a look at nodes


def make_way(turn: Turn, backlog: Backlog, blocked: Sequence[Job] | None = None) -> None:
    """Close idle shared GPUs for the first jobs that can start then; a job that lacks something else gets none.

    Args:
        backlog: Backlog of the match, with its reservations.
        blocked: Jobs that cannot start now, in their order; None for all pending jobs.
    """
    way = _Closing(turn, backlog)
    if not any(map(way.is_idle, turn.state.gpus.covers)):
        return
    if blocked is None:
        blocked = [job for job in backlog.jobs() if job.not_before <= turn.now]
        for job in blocked:
            backlog.block(job)
    for job in blocked:
        if job.spec.gpus and not job.spec.is_share and not backlog.barriers.over_limit(job):
            way.make(job)


class _Closing:
    """Search for idle shared GPUs to close, on nodes as earlier jobs of the search leave them."""

    def __init__(self, turn: Turn, backlog: Backlog) -> None:
        self._turn, self._backlog = turn, backlog
        state = turn.state
        self._agents = {  # agents with GPUs that are idle or being closed
            state.work.tasks[task_id].agent_id
            for gpu_id, task_id in state.gpus.covers.items()
            if gpu_id not in state.gpus.sharers
        }
        self._nodes: Nodes = {}
        self._placed: set[JobId] = set()  # jobs whose reservations are no longer needed
        self._hopeless: set[Hashable] = set()  # kinds of jobs that closing does not help

    def is_idle(self, gpu_id: GpuId) -> bool:
        """Return whether a GPU is open to shares and no task has a share of it."""
        state = self._turn.state
        cover = state.gpus.covers.get(gpu_id)
        return (
            cover is not None and gpu_id not in state.gpus.sharers and covers.is_open(state.work.tasks[cover])
        )

    def make(self, job: Job) -> None:
        """Close the GPUs that a job needs to start, if it needs nothing else."""
        request, state = request_of(job, self._turn.settings, self._turn.state), self._turn.state
        kind = self._backlog.kind(job, request)
        if kind in self._hopeless or len(self._hopeless) >= _MAX_TRIED:
            return
        nodes = self._open_to(job)
        # All tasks of a gang get GPUs of one model.
        models = request.gpu.models or sorted({model for node in nodes.values() for model in node.models})
        place = self._backlog.neighbours.placing_of(job)
        plans = (self._plan(request.of_model(model), nodes, place) for model in models)
        plan = next(filter(None, plans), None)
        if plan is None:
            self._hopeless.add(kind)
            return
        after, closes = plan
        self._nodes |= after
        self._placed.add(job.id)
        for gpu_id in closes:
            covers.close(self._turn, state.work.tasks[state.gpus.covers[gpu_id]])

    def _open_to(self, job: Job) -> Nodes:
        """Return the capacity that a job may use on each node that can help it."""
        nodes = Nodes()
        for node in self._turn.state.cluster.nodes.values():
            if (job.spec.tasks > 1 or node.id in self._agents) and self._backlog.nodes.serves(job, node):
                capacity = self._nodes.get(node.id) or self._backlog.nodes.capacity(node)
                kept = self._backlog.reservations.kept_by_others(job, node)
                kept = [reservation for reservation in kept if reservation.job_id not in self._placed]
                nodes[node.id] = replace(capacity, kept=tuple(kept))
        return nodes

    def _plan(self, request: Request, nodes: Nodes, place: Place | None) -> tuple[Nodes, list[GpuId]] | None:
        """Return the used nodes as they are after all tasks start, and the GPUs to close before.

        None if some task could not start.
        """
        after, closes, left = Nodes(), list[GpuId](), request.tasks
        for agent_id, most in self._counts(request, nodes, place):
            node, count = nodes[agent_id], min(most, left)
            while count and (way := self._shortest(request, node)) is not None:
                node, gpu_ids = way
                groups = beside_all(node).usable(request.gpu)
                group = next(gpus for gpus in groups if len(gpus) >= request.gpu.count)
                node = node.minus(request.resources, [gpu.id for gpu in group[: request.gpu.count]])
                after[agent_id], left, count = node, left - 1, count - 1
                closes += gpu_ids
        return None if left else (after, closes)

    def _counts(self, request: Request, nodes: Nodes, place: Place | None) -> list[tuple[AgentId, int]]:
        """Return the most tasks of each node; without a rule that compares tasks, nodes with room now come first."""
        if place is None:
            ordered = sorted(nodes.items(), key=lambda item: -_slots(request, item[1]))
            return [(agent_id, request.tasks) for agent_id, _ in ordered]
        closed = {
            each: self._closed(node, [gpu.id for gpu in self._idle(node)]) for each, node in nodes.items()
        }
        able = {agent_id: room for agent_id, node in closed.items() if (room := _slots(request, node))}
        return list(zip(able, place(able) or (), strict=False))

    def _closed(self, node: NodeCapacity, closes: Collection[GpuId]) -> NodeCapacity:
        """Return a node after some of its shared GPUs are closed."""
        closed = node.closed(closes)
        if closes and not closed.parts:  # the keeper ends with its last GPU
            closed = replace(closed, free=closed.free + self._turn.settings.programs.keeper)
        return closed

    def _shortest(self, request: Request, node: NodeCapacity) -> tuple[NodeCapacity, list[GpuId]] | None:
        """Return the node with room for one task, and the fewest GPUs to close for it; None if it cannot have room."""
        closes: list[GpuId] = []
        if _slots(request, node):
            return node, closes
        for gpu in request.gpu.suited(self._idle(node)):
            closes.append(gpu.id)
            closed = self._closed(node, closes)
            if _slots(request, closed):
                return closed, closes
        return None

    def _idle(self, node: NodeCapacity) -> list[Gpu]:
        """Return the idle shared GPUs of a node that are not reserved for other jobs."""
        able = {part.gpu_id for part in node.parts}
        for kept in node.kept:
            able -= {*kept.gpus, *(gpu_id for gpu_id, _ in kept.shares)}
        return [gpu for gpu in node.gpus if gpu.id in able and self.is_idle(gpu.id)]


def _slots(request: Request, node: NodeCapacity) -> int:
    """Return the number of tasks of a request that fit on a node."""
    room = fit(request, node)
    return 0 if isinstance(room, Misfit) else room.slots
