"""Which job array, and which of its tasks, a request names: NAME or its id, NAME.7, NAME.3-7, NAME.0-20:5,40."""

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

Sees = Callable[[Job], bool]  # whether who asks sees a job
_SOME: Final = re.compile(r"(.+)\.([0-9]+(?:[-:,][0-9]+)*)")


def shown(view: View, array: JobArray) -> Job:
    """An array as a job."""
    return as_job(array, counts_of(view, array))


def like(view: View, wanted: str, sees: Sees) -> list[Job]:
    """Arrays, as jobs, whose ids begin so."""
    arrays = (array for array in view.arrays.values() if array.id.startswith(wanted))
    return [job for array in arrays if sees(job := shown(view, array))]


def array_of(view: View, wanted: str, sees: Sees) -> JobArray | None:
    """An array by its id, or by its name: of those that are called so the last that has not ended, or else the last."""
    array = view.arrays.get(JobId(wanted))
    if array is not None:
        return array if sees(shown(view, array)) else None
    named = [each for each in view.arrays.values() if each.spec.name == wanted and sees(shown(view, each))]
    return max(named, key=lambda each: (each.ended_at is None, each.sequence), default=None)


def some_of(view: View, wanted: str, sees: Sees) -> tuple[JobArray, str, Runs] | None:
    """An array, the text of the indexes that are named, and where these stand; None: it is no range of one.

    Raises:
        NotFound: The array has none of them.
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
        raise NotFound(f"array {array.id} has no task {match[2]}", remedy=f"name others: {has}")
    return array, match[2], places


def task_of(view: View, wanted: str, sees: Sees) -> Job | None:
    """A task of an array of which there is no job, by its name or id; None: there is none such.

    Raises:
        NotFound: Of `some_of`.
    """
    of = whose(wanted)
    if of is not None and of[0] in view.arrays:
        array, place = view.arrays[of[0]], view.arrays[of[0]].indexes.position(of[1])
        job = None if place is None else as_waiting(array, place)
        return job if job is not None and job.id == wanted and sees(job) else None
    some = some_of(view, wanted, sees)
    if some is None or count(some[2]) != 1:
        return None
    place = some[2][0][0]
    return view.jobs.get(some[0].member_id(some[0].indexes.at(place))) or as_waiting(some[0], place)
