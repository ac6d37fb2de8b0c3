"""What all tasks hold, as their queues and users are charged: in thousandths of cost.

What is granted is charged: GPUs by the model that they are, to the pool of the node where they are. It is kept with the
state from match to match, and follows its changes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tenancy import DEFAULT_POOL, ROOT, QueueDocument, QueueSpec
from mesos_gpu.policy.tenancy.pools import pool_of
from mesos_gpu.policy.tenancy.tree import Tree, lineage

ALL: Final = "*"  # in the place of a user: everybody; nobody has that name


@dataclass(frozen=True, slots=True)
class Charge:
    """What a task holds, and who is charged for it.

    Attributes:
        job_id: Its job.
        queue: Its job's queue.
        owner: Who its job is charged to.
        pool: That of its node.
        milli: Thousandths of cost.
    """

    job_id: JobId
    queue: str
    owner: str
    pool: str
    milli: int


@dataclass(slots=True)
class Sums:
    """Sums of charges: of each queue, with all that is below it, up to `ROOT`.

    Attributes:
        amounts: Thousandths of cost by queue and pool.
        users: The same of all pools together by queue and user, `ALL` being one.
        jobs: Jobs that hold anything, by queue and user.
    """

    amounts: Counter[tuple[str, str]] = field(default_factory=Counter)
    users: Counter[tuple[str, str]] = field(default_factory=Counter)
    jobs: Counter[tuple[str, str]] = field(default_factory=Counter)
    members: Counter[JobId] = field(default_factory=Counter)  # tasks of each job

    def add(self, charge: Charge, sign: int = 1) -> None:
        """Count a charge in, or out."""
        before = self.members[charge.job_id]
        after = self.members[charge.job_id] = before + sign
        if not after:
            del self.members[charge.job_id]
        job = bool(after) - bool(before)
        for path in up(charge.queue):
            if charge.milli:
                self.amounts[path, charge.pool] += sign * charge.milli
                self.users[path, ALL] += sign * charge.milli
                self.users[path, charge.owner] += sign * charge.milli
            if job:
                self.jobs[path, ALL] += job
                self.jobs[path, charge.owner] += job

    def copied(self) -> "Sums":
        """Copy all sums, to be changed apart."""
        return Sums(self.amounts.copy(), self.users.copy(), self.jobs.copy(), self.members.copy())


@lru_cache(maxsize=4096)
def up(queue: str) -> tuple[str, ...]:
    """A queue and all above it, itself first, `ROOT` last."""
    return (*lineage(queue), ROOT)


@dataclass(slots=True)
class Charges:
    """What each task holds, kept with the state from match to match."""

    document: QueueDocument  # that the state had
    tree: Tree
    limits: Mapping[str, int]  # of queues that the operator's command line names, GPUs
    of_task: dict[TaskId, Charge] = field(default_factory=dict)
    sums: Sums = field(default_factory=Sums)

    def put(self, task_id: TaskId, charge: Charge | None) -> None:
        """What a task holds now; None: nothing any more."""
        old = self.of_task.pop(task_id, None)
        if charge is not None:
            self.of_task[task_id] = charge
        if old != charge:
            if old is not None:
                self.sums.add(old, -1)
            if charge is not None:
                self.sums.add(charge)


def charges_of(state: State, settings: Settings) -> Charges | None:
    """What all tasks hold now; None: there is no tree, and no queue has a limit."""
    document, limits = state.queues, settings.queue_limits
    if not document.version and not limits:
        state.charges = None
        return None
    known: Charges | None = state.charges
    if known is None or known.document is not document or known.limits != limits:
        known = state.charges = Charges(document, _tree(state, limits), limits)
        state.uncharged = set(state.live)
    if state.uncharged:
        for task_id in state.uncharged:
            known.put(task_id, _charge(state, known, task_id))
        state.uncharged = set()
    return known


def _tree(state: State, limits: Mapping[str, int]) -> Tree:
    """The document's; queues that only the command line names are top ones that have a limit, and nothing else."""
    tree = state.tree
    if tree is not None and not limits:
        return tree
    named = {name: QueueSpec(limit_gpus={DEFAULT_POOL: gpus * WHOLE}) for name, gpus in limits.items()}
    return Tree(QueueDocument(queues=named) if tree is None else tree.beside(named))


def _charge(state: State, known: Charges, task_id: TaskId) -> Charge | None:
    task = state.tasks.get(task_id)
    job = None if task is None or task_id not in state.live else state.holding_job(task)
    if task is None or job is None:
        return None
    old = known.of_task.get(task_id)
    node = state.nodes.get(task.agent_id)
    pool = old.pool if old else pool_of_node(known.tree, node)
    milli = cost_of_granted(known.tree, node, task.gpus, job, state.counted_milli(task, job))
    return Charge(job.id, job.spec.queue, job.charged_to, pool, milli)


def pool_of_node(tree: Tree, node: Node | None) -> str:
    """The pool that a node is in."""
    pools = tree.document.pools
    if not pools or node is None:
        return DEFAULT_POOL
    return pool_of(pools, {gpu.model for gpu in node.gpus}, node.attributes)


def cost_of_granted(
    tree: Tree, node: Node | None, gpus: Iterable[GpuId], job: Job, counted_milli: int
) -> int:
    """What GPUs cost that one task has, thousandths; of cards that are not known, the dearest that it asked for."""
    costs = tree.document.gpu_cost
    if not costs or not counted_milli:
        return counted_milli
    wanted = set(gpus)
    models = {gpu.model for gpu in node.gpus if gpu.id in wanted} if node is not None else set()
    return counted_milli * max(costs.get(model, 1) for model in models or job.spec.gpu_model or costs)
