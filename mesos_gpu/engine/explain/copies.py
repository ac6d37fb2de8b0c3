"""A copy of the state for readers: later changes of the engine's state do not affect it."""

from mesos_gpu.engine.journal import STATES
from mesos_gpu.engine.state import State


def copy_for_readers(state: State) -> State:
    """Copy the state with the derived fields that an answer to a reader depends on.

    The time depends on the number of jobs, tasks and nodes, and not on their size.
    """
    copy = STATES.duplicate(state)
    copy.quota.made_hours, copy.quota.seats_given, copy.match.next_moment = (
        state.quota.made_hours,
        state.quota.seats_given,
        state.match.next_moment,
    )
    copy.mesos.disbelieved, copy.cluster.unused = state.mesos.disbelieved, dict(state.cluster.unused)
    copy.cluster.most_offered = dict(state.cluster.most_offered)
    copy.work.made_room = {job_id: dict(tasks) for job_id, tasks in state.work.made_room.items()}
    copy.quota.leaves = None if state.quota.leaves is None else state.quota.leaves.copied()
    copy.quota.charges = None if state.quota.charges is None else state.quota.charges.copied()
    copy.quota.moved_jobs, copy.quota.uncharged = set(state.quota.moved_jobs), set(state.quota.uncharged)
    copy.quota.made_books = None if state.quota.made_books is None else state.quota.made_books.copied()
    return copy
