"""A copy of the state for readers: later changes of the engine's state do not affect it."""

from dataclasses import replace

from mesos_gpu.engine.books import Books
from mesos_gpu.engine.journal import STATES
from mesos_gpu.engine.room.hopeless import NOTES
from mesos_gpu.engine.state import State


def copy_for_readers(state: State) -> State:
    """Copy the state with the derived fields that an answer to a reader depends on.

    The time depends on the number of jobs, tasks and nodes, and not on their size.
    """
    made = STATES.duplicate(state)
    made.made_hours, made.seats_given, made.next_moment = (
        state.made_hours,
        state.seats_given,
        state.next_moment,
    )
    made.disbelieved, made.unused = state.disbelieved, dict(state.unused)
    made.made_room = {job_id: dict(tasks) for job_id, tasks in state.made_room.items()}
    made.leaves = None if state.leaves is None else state.leaves.copied()
    made.charges = None if state.charges is None else state.charges.copied()
    made.moved_jobs, made.uncharged = set(state.moved_jobs), set(state.uncharged)
    made.made_books = None if state.made_books is None else _copy_books(state.made_books)
    return made


def _copy_books(books: Books) -> Books:
    return replace(
        books,
        submitted=books.submitted.copy(),
        wanted=dict(books.wanted),
        users={leaf: dict(uses) for leaf, uses in books.users.items()},
        changes=dict(books.changes),
        notes={name: dict(books.notes[name]) for name in NOTES if name in books.notes},
        arrays=dict(books.arrays),
    )
