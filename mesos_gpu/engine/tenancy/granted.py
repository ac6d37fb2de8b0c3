"""Charge of each task in the tree of queues, saved with the task, and the past use that follows from it.

After a step only the tasks that it has changed are looked at: the present charge is compared with the saved one. A
change that comes twice, or late, is therefore charged once.
"""

from collections.abc import Iterator
from dataclasses import replace

from mesos_gpu.engine.charges import charges_of
from mesos_gpu.engine.indexes.charges import Charges
from mesos_gpu.engine.tenancy import past_uses
from mesos_gpu.engine.tenancy.past_uses import Change
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.saves import SaveQueues, SaveTask
from mesos_gpu.model.tasks.charge import Charge
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import NO_QUEUES, Fairness


def settle(turn: Turn) -> None:
    """Charge what the step has granted, and stop the charge of what it has ended; do nothing without a document."""
    state = turn.state
    if state.quota.tree.is_flat:
        return
    charges = charges_of(state, turn.settings)
    changed = any(isinstance(effect, SaveQueues) for effect in turn.effects)
    if changed:
        past_uses.on_document(turn, state.quota.queue_versions.get(state.quota.queues.version - 1, NO_QUEUES))
    tasks = list(_changed(turn, all_of_them=changed))
    changes = [change for task in tasks for change in _settled(turn, charges, task)]
    past_uses.on_changes(turn, charges.tree, changes)
    if changed:
        past_uses.drop_gone(turn, charges.tree)


def charge_of(charges: Charges, task: Task) -> Charge | None:
    """Return the charge of a task now; None if no queue of the tree is charged for it.

    A task that was given up as unreachable is not charged: its user is not to blame for it.
    """
    _, charge = charges.of_task.get(task.id, (None, None))
    if charge is None or charge.queue not in charges.tree.queues:
        return None
    # With dominant resource fairness a task without GPUs is charged for its CPUs and memory.
    return charge if charge.milli or charges.tree.document.fairness is Fairness.DRF else None


def _changed(turn: Turn, *, all_of_them: bool) -> Iterator[Task]:
    """Yield the tasks that the step has changed, as they are now, or as they were last if it has forgotten them."""
    saved = {effect.task.id: effect.task for effect in turn.effects if isinstance(effect, SaveTask)}
    if all_of_them:
        saved |= {task_id: turn.state.work.tasks[task_id] for task_id in turn.state.work.live}
    for task_id, task in saved.items():
        yield turn.state.work.tasks.get(task_id, task)


def _settled(turn: Turn, charges: Charges, task: Task) -> Iterator[Change]:
    """Save the charge of a task if it has changed; yield the changes of past use."""
    old, new = task.charge, charge_of(charges, task)
    if old == new:
        return
    if task.id in turn.state.work.tasks:
        turn.put(replace(task, charge=new))
    # A task is charged up to its end, however late its end is reported.
    at = task.ended_at if new is None and task.ended and task.ended_at is not None else turn.now
    if old is not None:
        yield Change(old.queue, old.user, -old.rate, at)
    if new is not None:
        yield Change(new.queue, new.user, new.rate, at)
