"""Jobs that no node could serve even if it were empty; for some time other jobs of their leaf come before them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from mesos_gpu.engine.state import State
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.explain.never import empty_rooms, is_able, is_unreported
from mesos_gpu.policy.room.together import Place

_LOOK_AGAIN_S: Final = 60.0  # time for which a result holds
_FITS: Final = "fits"  # name of the notes of `Fits`, by job
HOPELESS: Final = "hopeless"  # name of the notes of `Hopeless`, by job


class Hopeless(NamedTuple):
    """Record that no node could serve a job.

    Attributes:
        by: Nodes and queue rules when that was computed; the record is void once they differ.
        until: End of the record's validity, in seconds since the epoch.
    """

    by: "Ground"
    until: float


class Ground(NamedTuple):
    """Bookable capacity and rules that decide whether a job could fit; any change makes a recorded result void.

    Attributes:
        nodes: Number of nodes that are not lost.
        gpus: Number of their GPUs.
        version: Version of the document of queues.
        hours_since: Begin of the current span of the document's hours, in seconds since the epoch.
    """

    nodes: int
    gpus: int
    version: int
    hours_since: float


def ground_now(state: State) -> Ground:
    """Return the number of nodes and GPUs, and the version and hours of the document of queues, at this moment."""
    nodes = [node for node in state.cluster.nodes.values() if node.lost_at is None]
    since = state.quota.hours.span.since
    return Ground(len(nodes), sum(len(node.gpus) for node in nodes), state.quota.queues.version, since)


def note_hopeless(state: State, job: Job, now: float) -> None:
    """Record that no node could serve a job that starves or has a seat.

    For some time the next job of its leaf gets the reservation or the seat.
    """
    notes: dict[JobId, Hopeless] = state.books.notes.setdefault(HOPELESS, {})
    for job_id in [job_id for job_id, note in notes.items() if note.until <= now]:
        del notes[job_id]
    notes[job.id] = Hopeless(ground_now(state), now + _LOOK_AGAIN_S)


def fit_nowhere(state: State, now: float) -> frozenset[JobId]:
    """Return the jobs recorded of late as unable to run on any node, even an empty one."""
    notes: Mapping[JobId, Hopeless] = state.books.notes.get(HOPELESS, {})
    ground = ground_now(state) if notes else None
    return frozenset([job_id for job_id, note in notes.items() if note.until > now and note.by == ground])


class Fits(NamedTuple):
    """Record of whether a job could run on nodes that were empty and well."""

    on: "Ground"
    until: float
    fits: bool


def could_fit(state: State, job: Job, ground: Ground, now: float, look: Callable[[], bool]) -> bool:
    """Return whether nodes could serve all tasks of a job if they were empty and sound; a result holds for a minute.

    Args:
        state: State of the engine, which remembers the result.
        job: Gang that waits to start again.
        ground: Nodes and rules at this moment; a change of them makes the result void.
        now: Time, in seconds since the epoch.
        look: Function that computes the result.
    """
    notes: dict[JobId, Fits] = state.books.notes.setdefault(_FITS, {})
    note_of_job = notes.get(job.id)
    if note_of_job is None or note_of_job.until <= now or note_of_job.on != ground:
        for job_id in [job_id for job_id, note in notes.items() if note.until <= now]:
            del notes[job_id]
        note_of_job = notes[job.id] = Fits(ground, now + _LOOK_AGAIN_S, look())
    return note_of_job.fits


def known_to_fit(state: State, job: Job) -> bool:
    """Return the latest result of `could_fit` for a job; True without one."""
    note_of_job: Fits | None = state.books.notes.get(_FITS, {}).get(job.id)
    return note_of_job is None or note_of_job.fits


def is_hopeless(
    state: State, request: Request, nodes: Iterable[NodeCapacity], place: Place | None = None
) -> bool:
    """Return whether nodes could not serve all tasks of a job even if they were empty and sound.

    A node that never offered a GPU has no monitor, so its missing report does not count.

    Args:
        state: State of the engine.
        request: Request of each task of the job.
        nodes: Nodes that the job may use.
        place: Search for the nodes of its tasks; None if no rule compares them with each other.
    """
    nodes_by_id = state.cluster.nodes
    candidates = [
        replace(node, silent="it has not reported") if nodes_by_id[node.agent_id].is_unreported else node
        for node in nodes
    ]
    if not is_able(request, candidates):
        return True
    if place is None or is_unreported(candidates):
        return False
    return not any(
        place({agent_id: min(room, request.tasks) for agent_id, room in rooms.items()})
        for rooms in empty_rooms(request, candidates)
    )
