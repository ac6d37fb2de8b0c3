"""Job arrays, and tasks of them, that a request names: NAME or an id, NAME.7, NAME.3-7, NAME.0-20:5,40."""

import re
from collections.abc import Callable
from typing import Final

from mesos_gpu.engine.reading.jobs import counts_of
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import NotFound
from mesos_gpu.model.arrays.array import JobArray, as_job, as_waiting, whose
from mesos_gpu.model.arrays.indexes import Runs, Unreadable, count, parsed
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job

Sees = Callable[[Job], bool]  # whether the caller may see a job
_SOME: Final = re.compile(r"(.+)\.([0-9]+(?:[-:,][0-9]+)*)")


def shown(view: View, array: JobArray) -> Job:
    """Return an array as a job."""
    return as_job(array, counts_of(view, array))


def like(view: View, wanted: str, sees: Sees) -> list[Job]:
    """Return, as jobs, the visible arrays whose ids begin with a text."""
    arrays = (array for array in view.arrays.values() if array.id.startswith(wanted))
    return [job for array in arrays if sees(job := shown(view, array))]


def array_of(view: View, wanted: str, sees: Sees) -> JobArray | None:
    """Return the array with an id or a name; None without a visible one.

    Of several arrays with the name it is the latest that has not ended, or else the latest.
    """
    array = view.arrays.get(JobId(wanted))
    if array is not None:
        return array if sees(shown(view, array)) else None
    named = [
        array for array in view.arrays.values() if array.spec.name == wanted and sees(shown(view, array))
    ]
    return max(named, key=lambda array: (array.ended_at is None, array.sequence), default=None)


def some_of(view: View, wanted: str, sees: Sees) -> tuple[JobArray, str, Runs] | None:
    """Return the array that a text names with indexes, the text of the indexes, and their positions.

    None if the text does not name indexes of an array.

    Raises:
        NotFound: The array has none of the indexes.
    """
    match = _SOME.fullmatch(wanted)
    array = array_of(view, match[1], sees) if match is not None else None
    if match is None or array is None:
        return None
    try:
        places = array.indexes.positions(parsed(match[2]))
    except Unreadable:
        return None
    if not places:
        has = f"its indexes are {array.spec.array}"
        raise NotFound(f"array {array.id} has no task {match[2]}", remedy=f"use one of its indexes: {has}")
    return array, match[2], places


def task_of(view: View, wanted: str, sees: Sees) -> Job | None:
    """Return the single task of an array that a name or an id names; None if there is no such task.

    A task for which no job exists yet is returned as the waiting job that it will be.

    Raises:
        NotFound: The array has no such index.
    """
    parent = whose(wanted)
    if parent is not None and parent[0] in view.arrays:
        array, place = view.arrays[parent[0]], view.arrays[parent[0]].indexes.position(parent[1])
        job = None if place is None else as_waiting(array, place)
        return job if job is not None and job.id == wanted and sees(job) else None
    some = some_of(view, wanted, sees)
    if some is None or count(some[2]) != 1:
        return None
    place = some[2][0][0]
    return view.jobs.get(some[0].member_id(some[0].indexes.at(place))) or as_waiting(some[0], place)
