"""Choice of nodes for jobs during one match, with the placement policies and the tasks of each app."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from mesos_gpu.engine.queue.backlog import request_of
from mesos_gpu.engine.queue.take import Take
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import AgentId
from mesos_gpu.model.jobs.job import GpuNodes, Job, JobSpec, Placement
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.policy.capacity.fit import Chosen
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.cluster.fragmentation import Mix, mix_of
from mesos_gpu.policy.cluster.node_index import NodeIndex
from mesos_gpu.policy.cluster.registry import POLICIES
from mesos_gpu.policy.cluster.shapes import Shape
from mesos_gpu.policy.cluster.share_rows import shape_for
from mesos_gpu.policy.cluster.view import SCATTER
from mesos_gpu.policy.gangs.ground import UNUSED

#: Label of Marathon for work without GPUs (see its --gpu_scheduling_behavior).
BEHAVIOR_LABEL = "GPU_SCHEDULING_BEHAVIOR"
_BEHAVIORS: Mapping[str, GpuNodes] = {"restricted": GpuNodes.NEVER, "unrestricted": GpuNodes.ALWAYS}
_A_SIBLING = UNUSED << 8  # outweighs all keys of policies, and the unused groups of a node
RECENT = 1000  # latest jobs that count for the mix of requests


class Placing:
    """Choice of the best node for a job, kept up to date as a book of the ledger.

    Args:
        state: State of the engine.
        settings: Settings of the scheduler.
        index: Index of nodes with offers; None for readers, which place nothing.
    """

    def __init__(self, state: State, settings: Settings, index: NodeIndex | None = None) -> None:
        self._state, self._settings = state, settings
        self._index = index or index_of(state, settings, ())
        self._drawn = state.match.drawn
        self._apps: dict[str, Counter[AgentId]] | None = None
        self._fabric = (
            state.cluster.agents.fabric(settings.placing.levels, state.cluster.nodes)
            if settings.placing.levels
            else None
        )
        self._in_groups: Counter[tuple[str, str]] | None = None  # tasks in each group of the fabric
        # None after a task was the first or the last of its group.
        self._unused: Mapping[AgentId, int] | None = None

    def place(
        self,
        job: Job,
        request: Request,
        open_to: Mapping[AgentId, NodeCapacity],
        busy: Mapping[AgentId, int] = MappingProxyType({}),
    ) -> Chosen | None:
        """Return the best candidate for a task of a job; None if none fits.

        Args:
            request: Needs of the task.
            open_to: Nodes that the job may use.
            busy: Launches in progress by agent, as of `Pace.busy`.
        """
        placement = self._placement(job.spec)
        siblings = self._siblings(job) if POLICIES[placement.value].apart else None
        return self._index.place(
            request,
            open_to,
            placement.value,
            siblings,
            gpu_nodes=self._gpu_nodes(job).value,
            draw=self._drawn,
            busy=busy,
            unused=self._unused_groups(),
        )

    def keys(self, job: Job, request: Request) -> Mapping[AgentId, int]:
        """Return how well each agent would do for a task of a job, the lowest best; without those that cannot."""
        placement = self._placement(job.spec)
        keys = self._index.keys(request, placement.value, gpu_nodes=self._gpu_nodes(job).value)
        for agent_id, count in self._unused_groups().items():
            if agent_id in keys:
                keys[agent_id] += count * UNUSED
        if not POLICIES[placement.value].apart:
            return keys
        siblings = self._siblings(job)
        return {agent_id: key + siblings.get(agent_id, 0) * _A_SIBLING for agent_id, key in keys.items()}

    def by_lot(self, agents: Collection[AgentId]) -> Sequence[AgentId]:
        """Return agents in a pseudo-random order, which does not follow names and repeats in every run."""
        lots = [
            (number * (2 * self._drawn + 1) * SCATTER >> 20) & 0xFFFFFF for number, _ in enumerate(agents, 1)
        ]
        return [agent_id for _, agent_id in sorted(zip(lots, agents, strict=True))]

    def place_on(self, job: Job, request: Request, node: NodeCapacity) -> Chosen | None:
        """Return the GPUs and shares that a task of a job gets on one node; None if it does not fit."""
        return self._index.place_on(request, node, self._placement(job.spec).value)

    def spreads(self, job: Job) -> bool:
        """Return whether the placement policy of a job spreads tasks instead of packing them."""
        return POLICIES[self._placement(job.spec).value].apart

    def key(self, job: Job) -> GpuNodes | None:
        """Return a key; jobs with one key and equal requests fit equal nodes."""
        return None if job.spec.gpus else self._gpu_nodes(job)

    def order(self, job: Job) -> Placement | None:
        """Return the order in which tasks of a gang take nodes, which decides how many fit; None for a single task."""
        return self._placement(job.spec) if job.spec.tasks > 1 else None

    # --- a book of the ledger: tasks of apps by node, and the number of draws

    def take(self, take: Take) -> None:
        """Count an assignment. Sums that were not computed yet are read from the state when needed."""
        if take.job is not None:
            self._drawn += 1
            self._add(take.job, take.agent_id, 1)

    def undo(self, take: Take) -> None:
        """Undo the count of an assignment."""
        if take.job is not None:
            self._drawn -= 1
            self._add(take.job, take.agent_id, -1)

    def _add(self, job: Job, agent_id: AgentId, count: int) -> None:
        """Add a number to the tasks of a job's app on an agent."""
        if self._apps is not None:
            self._apps.setdefault(_app(job), Counter())[agent_id] += count
        if self._in_groups is not None:
            self._use(self._in_groups, agent_id, count)

    def _use(self, in_groups: Counter[tuple[str, str]], agent_id: AgentId, count: int) -> None:
        """Count tasks in the groups of a node."""
        for group in self._fabric.named(agent_id) if self._fabric is not None else ():
            before, in_groups[group] = in_groups[group], in_groups[group] + count
            if not before or not in_groups[group]:
                self._unused = None

    def _unused_groups(self) -> Mapping[AgentId, int]:
        """Return for each node in how many wholly free groups of the fabric it is."""
        if self._fabric is None:
            return {}
        if self._in_groups is None:
            self._in_groups = Counter()
            for task_id in self._state.work.live:
                task = self._state.work.tasks[task_id]
                if task.agent_id in self._fabric.groups and self._state.work.holding_job(task) is not None:
                    self._use(self._in_groups, task.agent_id, 1)
        if self._unused is None:
            self._unused = {
                agent_id: count
                for agent_id in self._fabric.groups
                if (count := sum(not self._in_groups[group] for group in self._fabric.named(agent_id)))
            }
        return self._unused

    def _placement(self, spec: JobSpec) -> Placement:
        """Return the placement policy of a job: its own, else of its app, else of the cluster."""
        return spec.placement or self._settings.placing.placement_of.get(
            spec.app or "", self._settings.placing.placement
        )

    def _gpu_nodes(self, job: Job) -> GpuNodes:
        """Return the use of GPU nodes by a job without GPUs: by its label, else by the settings."""
        return _BEHAVIORS.get(job.spec.labels.get(BEHAVIOR_LABEL, ""), self._settings.placing.gpu_nodes)

    def _siblings(self, job: Job) -> Mapping[AgentId, int]:
        """Return the number of tasks of the app of a job on each agent."""
        if self._apps is None:
            self._apps = {}
            for task_id in self._state.work.live:
                task = self._state.work.tasks[task_id]
                other = self._state.work.holding_job(task)
                if other is not None:
                    self._apps.setdefault(_app(other), Counter())[task.agent_id] += 1
        return self._apps.get(_app(job), Counter())


def index_of(state: State, settings: Settings, candidates: Iterable[NodeCapacity]) -> NodeIndex:
    """Return an index of nodes for placement."""
    return NodeIndex(candidates, partial(_mix, state, settings))


def _mix(state: State, settings: Settings) -> Mix:
    """Return the mix of recent requests, by which placement limits fragmentation."""
    # One GPU of each kind that the cluster has.
    every = (gpu for node in state.cluster.nodes.values() for gpu in node.gpus)
    kinds = {(gpu.model, gpu.memory_mib, gpu.compute_capability): gpu for gpu in every}
    most_mib = max((gpu.sharing.memory_mib for gpu in kinds.values() if gpu.sharing), default=1)
    jobs = list(state.work.jobs.values())[-RECENT:]
    return mix_of(
        _shape(job, settings, models, most_mib)
        for job in jobs
        if (models := _models(state, job, settings, kinds.values())) is not None
    )


def _shape(job: Job, settings: Settings, models: tuple[str, ...], most_mib: int) -> Shape:
    """Return the request of a job as a shape for the mix of requests."""
    spec, share = job.spec, job.spec.share_request(settings.placing.isolation)
    shape = Shape(spec.resources.cpu_milli, spec.mem_mib, spec.gpus, models=models)
    return shape if share is None else shape_for(share, most_mib, shape)


def _models(state: State, job: Job, settings: Settings, kinds: Iterable[Gpu]) -> tuple[str, ...] | None:
    """Return the models that a job can use; empty for any; None if the cluster has none."""
    request = request_of(job, settings, state).gpu
    if not request.choosy:
        return request.models
    fit = {gpu.model for gpu in request.suited(kinds)}
    return tuple(sorted(fit)) or None


def _app(job: Job) -> str:
    """Return the app of a job; jobs without one count by their name, as similar jobs have equal names."""
    return job.spec.app or f"job {job.spec.name}"
