"""Charges of all tasks to their queues and users, in thousandths of cost.

Tasks are charged for GPUs by their models, to the pool of their node. A GPU whose model the node does not report
costs what its model costs by the task's accounting span; without a span the task is charged as before; a task that
was never charged pays for the dearest model that its job asked for, or the dearest of all. The sums are kept with the
state from match to match, and follow its changes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from mesos_gpu.engine.books import cpus_and_memory
from mesos_gpu.engine.indexes.charges import Charges
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import DEFAULT_POOL, QueueDocument, QueueSpec
from mesos_gpu.model.usage import Part, charged
from mesos_gpu.policy.admission.limits import charge_percent
from mesos_gpu.policy.tenancy.cells import Cells, cells_of, whole_cells
from mesos_gpu.policy.tenancy.pools import pool_of, pools_of_unreported
from mesos_gpu.policy.tenancy.tree import Tree


def charges_of(state: State, settings: Settings) -> Charges:
    """Return the charges of all tasks now."""
    document, limits = state.quota.hours.span.document, settings.queue.queue_limits
    charges = state.quota.charges
    if charges is None or charges.document is not document or charges.limits != limits:
        charges = state.quota.charges = Charges(document, _tree(state, limits), limits)
        state.quota.uncharged = set(state.work.live)
    if state.quota.uncharged:
        for task_id in state.quota.uncharged:
            charges.put(task_id, _entry(state, charges, task_id))
        state.quota.uncharged = set()
    return charges


def charges_by(state: State, tree: Tree) -> Charges:
    """Return the charges that all tasks would have with other queues."""
    charges = Charges(tree.document, tree, {})
    for task_id in state.work.live:
        charges.put(task_id, _entry(state, charges, task_id))
    return charges


def capacity_by_pool(state: State, tree: Tree) -> Mapping[str, int]:
    """Return the capacity of each pool by all GPUs of its nodes, in thousandths of cost."""
    sums: dict[str, int] = {}
    for node in state.cluster.nodes.values():
        pool = pool_of_node(tree, node)
        sums[pool] = sums.get(pool, 0) + sum(tree.cost_milli(gpu.model, WHOLE) for gpu in node.gpus)
    return sums


def cells_now(state: State, tree: Tree) -> Cells:
    """Return the cells of all guarantees, scaled down to the capacity of pools if the document overbooks them."""
    return cells_of(tree, capacity_by_pool(state, tree)) if tree.document.overbook else whole_cells(tree)


def tree_of(state: State, settings: Settings) -> Tree:
    """Return the document's queues, and beside them those that only the command line names."""
    return charges_of(state, settings).tree if settings.queue.queue_limits else state.quota.tree


def _tree(state: State, limits: Mapping[str, int]) -> Tree:
    """Return the document's queues; those that only the command line names are top queues with a limit."""
    named = {name: QueueSpec(limit_gpus={DEFAULT_POOL: gpus * WHOLE}) for name, gpus in limits.items()}
    return state.quota.tree.beside(named) if named else state.quota.tree


def _entry(state: State, charges: Charges, task_id: TaskId) -> tuple[JobId, Charge] | None:
    """Return a task's job and charge; None if the task holds nothing."""
    task = state.work.tasks.get(task_id)
    job = None if task is None or task_id not in state.work.live else state.work.holding_job(task)
    if task is None or job is None:
        return None
    old, node = charges.of_task.get(task_id), state.cluster.nodes.get(task.agent_id)
    pool = old[1].pool if old else pool_of_node(charges.tree, node)
    counted = state.work.counted_milli(task, job)
    granted = counted if task.share is None else granted_milli(state, task, job)
    charge = charged_with(charges, job, pool, node, task.gpus, counted, granted)
    if charges.are_by_model and task.charge is not None and not _is_known(node, task.gpus):
        charge = replace(charge, pool=task.charge.pool, milli=task.charge.milli, rate=task.charge.rate)
        cost = _cost_on_record(state, charges.tree.document, task, job, granted)
        if cost is not None:
            rate = charged(cost, charge_percent(charges.tree.document, job.spec.job_class))
            charge = replace(charge, milli=cost * counted // granted, rate=rate)
    return job.id, charge


def _cost_on_record(state: State, document: QueueDocument, task: Task, job: Job, granted: int) -> int | None:
    """Return the cost of a task by the models of its accounting span, for a node that does not report them.

    None if the span does not match what the task holds.
    """
    span = state.ledger.spans.get(task.id)
    if span is None or not granted or sum(part.gpu_milli for part in span.parts) != granted:
        return None
    return sum(part.cost_milli for part in at_cost(document, span.parts, job.spec.gpu_model))


def granted_milli(state: State, task: Task, job: Job) -> int:
    """Return the thousandths of GPUs that a launch uses.

    That is what limits count, except for a MIG instance that is larger than requested, which counts as the part of
    its GPU that it is: limits cannot know its size before placement.
    """
    counted, share = state.work.counted_milli(task, job), task.counted_share
    return counted if share is None else max(counted, len(task.gpus) * share.compute_milli)


def charged_with(
    charges: Charges,
    job: Job,
    pool: str,
    node: Node | None,
    gpus: Sequence[GpuId],
    counted: int,
    granted: int,
) -> Charge:
    """Return the charge of a task.

    Args:
        charges: Charges whose tree and costs apply.
        job: Job of the task.
        pool: Pool of its node.
        node: Node of the task; None if not known.
        gpus: GPUs of the task.
        counted: Thousandths of GPUs that limits count.
        granted: Thousandths of GPUs that the task uses.
    """
    document, asked_models = charges.tree.document, job.spec.gpu_model
    cost = cost_of_granted(document, node, gpus, asked_models, counted)
    use = cost if granted == counted else cost_of_granted(document, node, gpus, asked_models, granted)
    rate = charged(use, charge_percent(document, job.spec.job_class))
    amounts = job.spec.cpus, job.spec.mem_mib
    return _charge(charges.queue_of(job), job.charged_to, pool, cost, rate, *amounts)


@lru_cache(maxsize=4096)
def _charge(queue: str, user: str, pool: str, milli: int, rate: int, cpus: float, mem_mib: float) -> Charge:
    """Return a charge; equal ones share one object."""
    return Charge(queue, user, pool, milli, rate, *cpus_and_memory(cpus, mem_mib))


def pool_of_node(tree: Tree, node: Node | None) -> str:
    """Return the pool of a node; the default pool without pools or for an unknown node."""
    pools = tree.document.pools
    if not pools or node is None:
        return DEFAULT_POOL
    return pool_of(pools, {gpu.model for gpu in node.gpus}, node)


def pools_of_node(tree: Tree, node: Node | None) -> frozenset[str]:
    """Return the pools that a node may be in: one, or several while its monitor has not reported its GPUs."""
    if node is not None and node.is_unreported:
        return pools_of_unreported(tree.document.pools, node)
    return frozenset((pool_of_node(tree, node),))


def cost_of_granted(
    document: QueueDocument, node: Node | None, gpus: Sequence[GpuId], asked: Iterable[str], milli: int
) -> int:
    """Return the cost of GPUs of one task; the arguments are those of `parts_of`."""
    if not document.gpu_cost or not milli:
        return milli
    return sum(part.cost_milli for part in parts_of(document, node, gpus, asked, milli))


def parts_of(
    document: QueueDocument, node: Node | None, gpus: Sequence[GpuId], asked: Iterable[str], milli: int
) -> tuple[Part, ...]:
    """Return the GPUs of one task by model, with their cost. An unknown model has the name "".

    Args:
        document: Document with the costs.
        node: Node of the GPUs; None if not known.
        gpus: GPUs of the task.
        asked: Models that its job asked for; empty for any.
        milli: Thousandths of GPUs that count, divided equally among the GPUs.
    """
    models = {gpu.id: gpu.model for gpu in node.gpus} if node is not None else {}
    if len(gpus) == 1 and not document.gpu_cost:  # most tasks
        return (Part(models.get(gpus[0], ""), milli, milli),)
    counts = Counter(models.get(gpu_id, "") for gpu_id in gpus)
    parts = [Part(model, milli * count // len(gpus), 0) for model, count in sorted(counts.items())]
    return at_cost(document, parts, asked)


def at_cost(document: QueueDocument, parts: Iterable[Part], asked: Iterable[str]) -> tuple[Part, ...]:
    """Return parts with their cost by a document; an unknown model costs as much as the dearest one asked for.

    Args:
        document: Document with the costs.
        parts: GPUs of one task by model.
        asked: Models that its job asked for; empty for any.
    """
    dearest = document.most_cost_of(asked)
    return tuple(
        Part(
            part.model,
            part.gpu_milli,
            part.gpu_milli * (document.cost_of(part.model) if part.model else dearest),
        )
        for part in parts
    )


def _is_known(node: Node | None, gpus: Iterable[GpuId]) -> bool:
    """Return whether the node reports the models of all these GPUs."""
    reported = {gpu.id for gpu in node.gpus} if node is not None else set()
    return reported.issuperset(gpus)
