"""What each task counts as in the tree of queues, and the past use that follows from it.

A step that has changed a task is followed by a look at that task only: what it is charged now is compared with what it
was charged before. A change that comes twice, or late, is therefore charged once.
"""

from collections.abc import Iterator
from dataclasses import replace

from mesos_gpu.engine.books import cpus_and_memory
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy import past_uses
from mesos_gpu.engine.tenancy.past_uses import Change
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.saves import SaveQueues, SaveTask
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import DEFAULT_POOL, NO_QUEUES, Fairness
from mesos_gpu.policy.tenancy.pools import pool_of
from mesos_gpu.policy.tenancy.tree import Tree


def settle(turn: Turn) -> None:
    """Charge what the step has granted, and take back what it has ended. Without a tree nothing is looked at."""
    tree = turn.state.tree
    if tree is None:
        return
    changed = any(isinstance(effect, SaveQueues) for effect in turn.effects)
    if changed:
        past_uses.on_document(turn, turn.state.queue_versions.get(tree.document.version - 1, NO_QUEUES))
    tasks = list(_changed(turn, all_of_them=changed))
    past_uses.on_changes(turn, [change for task in tasks for change in _settled(turn, tree, task)])
    if changed:
        past_uses.drop_gone(turn, tree)


def user_of(job: Job) -> str:
    """Who is charged: the proved name, else the user that the job names; "": nobody is known."""
    return job.owner or job.spec.user or ""


def charge_of(state: State, tree: Tree, task: Task) -> Charge | None:
    """What a task counts as now; None: it holds nothing that a queue of the tree is charged with. One that was given up
    as unreachable is not its user's to answer for."""
    job = state.jobs.get(task.job_id) if task.job_id else None
    if job is None or task.ended or task.state is TaskState.ABANDONED:
        return None
    if not task.gpus and tree.document.fairness is not Fairness.DRF:  # then processors and memory count, too
        return None
    queue = tree.queues.get(job.spec.queue)
    if queue is None or not queue.is_leaf:
        return None
    cards = _cards(state, task)
    if cards is None:  # its node does not report them now
        return task.charge or _charge(job, DEFAULT_POOL, WHOLE * len(task.gpus))
    node = state.nodes[task.agent_id]
    pool = pool_of(tree.document.pools, {gpu.model for gpu in node.gpus}, node.attributes)
    of_each = WHOLE if task.counted_share is None else task.counted_share.compute_milli
    return _charge(job, pool, sum(tree.cost_milli(gpu.model, of_each) for gpu in cards))


def _charge(job: Job, pool: str, milli: int) -> Charge:
    return Charge(job.spec.queue, user_of(job), pool, milli, milli, *cpus_and_memory(job.spec))


def _cards(state: State, task: Task) -> list[Gpu] | None:
    node = state.nodes.get(task.agent_id)
    known: dict[GpuId, Gpu] = {gpu.id: gpu for gpu in node.gpus} if node else {}
    cards = [known[gpu] for gpu in task.gpus if gpu in known]
    return cards if len(cards) == len(task.gpus) else None


def _changed(turn: Turn, *, all_of_them: bool) -> Iterator[Task]:
    """Tasks of the step, each once, as they are now; those that were forgotten in it as they were last."""
    saved = {effect.task.id: effect.task for effect in turn.effects if isinstance(effect, SaveTask)}
    if all_of_them:
        saved |= {task_id: turn.state.tasks[task_id] for task_id in turn.state.live}
    for task_id, task in saved.items():
        yield turn.state.tasks.get(task_id, task)


def _settled(turn: Turn, tree: Tree, task: Task) -> Iterator[Change]:
    old, new = task.charge, charge_of(turn.state, tree, task)
    if old == new:
        return
    if task.id in turn.state.tasks:
        turn.put(replace(task, charge=new))
    # What a task held until its end counts up to that, whenever it is heard of.
    at = task.ended_at if new is None and task.ended and task.ended_at is not None else turn.now
    if old is not None:
        yield Change(old.queue, old.user, -old.rate, at)
    if new is not None:
        yield Change(new.queue, new.user, new.rate, at)
