"""Nodes as a plan of moves sees them: free amounts, and the jobs that could move away. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.nodes.driver import as_new_as
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.plan import Move, Target
from mesos_gpu.model.resources import AMOUNTS
from mesos_gpu.model.shares.share import Share
from mesos_gpu.policy.capacity.fit import Chosen, room_for, share_for
from mesos_gpu.policy.capacity.node import Allocation, NodeCapacity
from mesos_gpu.policy.capacity.request import Request

#: Rule that returns whether a job (or the request, for the job None) may go to an agent, given the new agents of moved
#: jobs and the agents of the request's placed members.
Open = Callable[[JobId | None, AgentId, Mapping[JobId, AgentId], Sequence[AgentId]], bool]


@dataclass(frozen=True, slots=True)
class Movable:
    """Job of one task that may be ended and started elsewhere."""

    job_id: JobId
    name: str
    request: Request
    gpus: tuple[Gpu, ...]  # GPUs that another job could use when it has left
    lost_gpu_s: float
    bound: bool = False  # whether its places depend on those of other jobs
    share: Share | None = None  # part that it holds of each of `gpus`; None if it holds them whole


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """Node that may get work, and the jobs that could move away from it."""

    node: NodeCapacity
    tasks: tuple[Movable, ...] = ()
    able: bool = True  # whether the request may go there, at least when other jobs have moved

    def without(self, task: Movable) -> "CandidateNode":
        """Return the node after a job has left."""
        tasks = tuple(other for other in self.tasks if other.job_id != task.job_id)
        return replace(self, node=self.node.without([_held(task)]), tasks=tasks)

    def emptied(self) -> NodeCapacity:
        """Return the node after all movable jobs have left."""
        return self.node.without([_held(task) for task in self.tasks])

    def less(self, request: Request, place: Chosen) -> "CandidateNode":
        """Return the node after a launch of the request."""
        return replace(self, node=self.node.minus(request.resources, place.gpus, place.share))


@dataclass(frozen=True, slots=True)
class Stage:
    """State of the cluster after some moves of a plan."""

    changed: Mapping[int, CandidateNode] = field(default_factory=dict)  # nodes by index
    moved: Mapping[JobId, AgentId] = field(default_factory=dict)  # new agents of jobs
    moves: tuple[Move, ...] = ()
    members: tuple[Target, ...] = ()  # places of members of the request
    lost_gpu_s: float = 0.0

    def moving(
        self, task: Movable, source: tuple[int, CandidateNode], to: tuple[int, CandidateNode]
    ) -> "Stage | None":
        """Return the state after one more move; None if the job does not fit on the new node.

        Args:
            task: Job to move.
            source: Index and state of its node.
            to: Index and state of its new node.
        """
        place = chosen(task.request, to[1].node)
        if place is None:
            return None
        lost = 0.0 if task.job_id in self.moved else task.lost_gpu_s
        gpus = tuple(gpu for gpu_id in place.gpus for gpu in to[1].node.gpus if gpu.id == gpu_id)
        destination = to[1].less(task.request, place)
        destination = replace(
            destination, tasks=(*destination.tasks, replace(task, gpus=gpus, share=place.share))
        )
        hosts = source[1].node.hostname, to[1].node.hostname
        return replace(
            self,
            changed={**self.changed, source[0]: source[1].without(task), to[0]: destination},
            moved={**self.moved, task.job_id: to[1].node.agent_id},
            moves=(*self.moves, Move(task.job_id, task.name, *hosts, place.gpus, lost)),
            lost_gpu_s=self.lost_gpu_s + lost,
        )

    def seating(self, request: Request, number: int, candidate: CandidateNode) -> "Stage | None":
        """Return the state with one more member of the request on a node; None if it does not fit.

        Args:
            request: Requirements of the member.
            number: Index of the node.
            candidate: State of the node.
        """
        place = chosen(request, candidate.node)
        if place is None:
            return None
        member = Target(candidate.node.agent_id, candidate.node.hostname, place.gpus)
        return replace(
            self,
            changed={**self.changed, number: candidate.less(request, place)},
            members=(*self.members, member),
        )


def _held(task: Movable) -> Allocation:
    """Return the allocation of a movable job."""
    return Allocation(task.job_id, task.request.resources, task.gpus, share=task.share)


def chosen(request: Request, node: NodeCapacity) -> Chosen | None:
    """Return the GPUs of one model that a launch gets on a node; None if it does not fit."""
    size = request.gpu.count
    for model in _models(request, node.gpus):
        if request.gpu.share is not None:
            if (place := share_for(request, node, model)) is not None:
                return place
        elif room_for(request, node, model).slots:
            good = [gpu for group in node.usable(request.gpu, model) for gpu in group]
            first = sorted(good, key=lambda gpu: (gpu.memory_mib, gpu.minor, gpu.id))[:size]
            return Chosen(node.agent_id, tuple([gpu.id for gpu in first]))
    return None


def least_departures(request: Request, candidate: CandidateNode) -> int | None:
    """Return the least number of jobs that must leave before the request fits; None if it never fits."""
    if not as_new_as(candidate.node.driver, request.min_driver):
        return None
    if _has_shares(request, candidate):
        return _least_of_shares(request, candidate)
    by_model = [_of_model(request, candidate, model) for model in _models(request, _all(candidate))]
    counts = [count for count in by_model if count is not None]
    if not counts:
        return None
    least = min(counts)
    lack = candidate.node.free.lacking(request.resources).with_gpus(0).milli
    for i in range(len(AMOUNTS)):
        if lack[i]:
            count = _fewest(lack[i], (task.request.resources.milli[i] for task in candidate.tasks))
            if count is None:
                return None
            least = max(least, count)
    return least


def _has_shares(request: Request, candidate: CandidateNode) -> bool:
    """Return whether the request or the node involves shares of GPUs."""
    return request.gpu.share is not None or bool(candidate.node.parts)


def _least_of_shares(request: Request, candidate: CandidateNode) -> int | None:
    """Return 0 if the request fits a node with shared GPUs now, 1 if jobs must leave; None if it never fits."""
    if chosen(request, candidate.node) is not None:
        return 0
    return None if chosen(request, candidate.emptied()) is None else 1


def _of_model(request: Request, candidate: CandidateNode, model: str | None) -> int | None:
    """Return the least departures that free enough GPUs of one model; None if all free too few."""
    want = request.gpu
    if not want.count:
        return 0
    gives = (len(want.suited(task.gpus, model)) for task in candidate.tasks)
    return _fewest(want.count - len(want.suited(candidate.node.gpus, model)), gives)


def _models(request: Request, gpus: Iterable[Gpu]) -> Sequence[str | None]:
    """Return the accepted models, the preferred one first; [None] if the request has no GPUs."""
    if not request.gpu.count:
        return [None]
    return request.gpu.models or sorted({gpu.model for gpu in gpus})


def _all(candidate: CandidateNode) -> Iterator[Gpu]:
    """Yield the GPUs of a node that are free or that movable jobs hold."""
    yield from candidate.node.gpus
    for task in candidate.tasks:
        yield from task.gpus


def _fewest(lack: int, gives: Iterable[int]) -> int | None:
    """Return how many of the largest gifts cover a lack; None if all together are too little."""
    count = 0
    if lack <= 0:
        return count
    for gift in sorted(gives, reverse=True):
        lack -= gift
        count += 1
        if lack <= 0:
            return count
    return None
