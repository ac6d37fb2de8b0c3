"""What all tasks hold, as their queues and users are charged: in thousandths of cost.

What is granted is charged: GPUs by the models that they are, to the pool of the node where they are. A card whose model
its node does not report costs what its model does by its task's record; without one what its task was charged last, and
of a task that was never charged, what the dearest model costs that its job asked for, or the dearest of all. The sums
are kept with the state from match to match, and follow its changes.
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
    """Return what all tasks hold now."""
    document, limits = state.quota.hours.span.document, settings.queue.queue_limits
    known = state.quota.charges
    if known is None or known.document is not document or known.limits != limits:
        known = state.quota.charges = Charges(document, _tree(state, limits), limits)
        state.quota.uncharged = set(state.work.live)
    if state.quota.uncharged:
        for task_id in state.quota.uncharged:
            known.put(task_id, _entry(state, known, task_id))
        state.quota.uncharged = set()
    return known


def charges_by(state: State, tree: Tree) -> Charges:
    """What all tasks would hold now if those were the queues."""
    charges = Charges(tree.document, tree, {})
    for task_id in state.work.live:
        charges.put(task_id, _entry(state, charges, task_id))
    return charges


def capacity_by_pool(state: State, tree: Tree) -> Mapping[str, int]:
    """Return what the GPUs of all nodes of each pool cost, thousandths."""
    sums: dict[str, int] = {}
    for node in state.cluster.nodes.values():
        pool = pool_of_node(tree, node)
        sums[pool] = sums.get(pool, 0) + sum(tree.cost_milli(gpu.model, WHOLE) for gpu in node.gpus)
    return sums


def cells_now(state: State, tree: Tree) -> Cells:
    """Return the cells of all guarantees, scaled to what pools have if the document lets them be more."""
    return cells_of(tree, capacity_by_pool(state, tree)) if tree.document.overbook else whole_cells(tree)


def tree_of(state: State, settings: Settings) -> Tree:
    """Return the document's queues, and beside them those that only the command line names."""
    return charges_of(state, settings).tree if settings.queue.queue_limits else state.quota.tree


def _tree(state: State, limits: Mapping[str, int]) -> Tree:
    """Return the document's queues; those that only the command line names are top queues with a limit."""
    named = {name: QueueSpec(limit_gpus={DEFAULT_POOL: gpus * WHOLE}) for name, gpus in limits.items()}
    return state.quota.tree.beside(named) if named else state.quota.tree


def _entry(state: State, known: Charges, task_id: TaskId) -> tuple[JobId, Charge] | None:
    task = state.work.tasks.get(task_id)
    job = None if task is None or task_id not in state.work.live else state.work.holding_job(task)
    if task is None or job is None:
        return None
    old, node = known.of_task.get(task_id), state.cluster.nodes.get(task.agent_id)
    pool = old[1].pool if old else pool_of_node(known.tree, node)
    counted = state.work.counted_milli(task, job)
    granted = counted if task.share is None else granted_milli(state, task, job)
    charge = charged_with(known, job, pool, node, task.gpus, counted, granted)
    if known.are_by_model and task.charge is not None and not _is_known(node, task.gpus):
        charge = replace(charge, pool=task.charge.pool, milli=task.charge.milli, rate=task.charge.rate)
        cost = _cost_on_record(state, known.tree.document, task, job, granted)
        if cost is not None:
            rate = charged(cost, charge_percent(known.tree.document, job.spec.job_class))
            charge = replace(charge, milli=cost * counted // granted, rate=rate)
    return job.id, charge


def _cost_on_record(state: State, document: QueueDocument, task: Task, job: Job, granted: int) -> int | None:
    """What a task costs by the models that its span has, though its node does not report them; None: it has none."""
    span = state.ledger.spans.get(task.id)
    if span is None or not granted or sum(part.gpu_milli for part in span.parts) != granted:
        return None
    return sum(part.cost_milli for part in at_cost(document, span.parts, job.spec.gpu_model))


def granted_milli(state: State, task: Task, job: Job) -> int:
    """Thousandths of GPUs that a launch counts as in use: what it counts as in limits, but a MIG instance that is
    larger than what was asked for as the part of its card that it is: no limit can know that before it has a place."""
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
    """What a task of a job is charged.

    Args:
        charges: Whose tree and costs count.
        job: The task's.
        pool: That of its node.
        node: Where it is; None: it is not known.
        gpus: That it has.
        counted: Thousandths of GPUs that it counts as in limits.
        granted: The same as it has them.
    """
    document, asked = charges.tree.document, job.spec.gpu_model
    cost = cost_of_granted(document, node, gpus, asked, counted)
    use = cost if granted == counted else cost_of_granted(document, node, gpus, asked, granted)
    rate = charged(use, charge_percent(document, job.spec.job_class))
    amounts = job.spec.cpus, job.spec.mem_mib
    return _charge(charges.queue_of(job), job.charged_to, pool, cost, rate, *amounts)


@lru_cache(maxsize=4096)
def _charge(queue: str, user: str, pool: str, milli: int, rate: int, cpus: float, mem_mib: float) -> Charge:
    """Return the charge that tasks which are alike have in common."""
    return Charge(queue, user, pool, milli, rate, *cpus_and_memory(cpus, mem_mib))


def pool_of_node(tree: Tree, node: Node | None) -> str:
    """The pool that a node is in."""
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
    """What so many thousandths of GPUs cost that one task has; the arguments are those of `parts_of`."""
    if not document.gpu_cost or not milli:
        return milli
    return sum(part.cost_milli for part in parts_of(document, node, gpus, asked, milli))


def parts_of(
    document: QueueDocument, node: Node | None, gpus: Sequence[GpuId], asked: Iterable[str], milli: int
) -> tuple[Part, ...]:
    """GPUs that one task has, by their models, and what they cost. A model that is not known has the name "".

    Args:
        document: Whose costs count.
        node: Where they are; None: it is not known.
        gpus: Which they are.
        asked: Names of the models that its job asked for; none: any.
        milli: Thousandths of GPUs that all of them count as, as much each.
    """
    models = {gpu.id: gpu.model for gpu in node.gpus} if node is not None else {}
    if len(gpus) == 1 and not document.gpu_cost:  # most tasks
        return (Part(models.get(gpus[0], ""), milli, milli),)
    counts = Counter(models.get(gpu_id, "") for gpu_id in gpus)
    parts = [Part(model, milli * count // len(gpus), 0) for model, count in sorted(counts.items())]
    return at_cost(document, parts, asked)


def at_cost(document: QueueDocument, parts: Iterable[Part], asked: Iterable[str]) -> tuple[Part, ...]:
    """Parts with what they cost by a document; one of an unknown model costs what the dearest does that was asked for.

    Args:
        document: Whose costs count.
        parts: Of GPUs that one task has.
        asked: Names of the models that its job asked for; none: any.
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
    """Whether the models of all of them are."""
    there = {gpu.id for gpu in node.gpus} if node is not None else set()
    return there.issuperset(gpus)
