"""Explanation of why a job array waits, or a task of it without a job yet."""

from dataclasses import replace

from mesos_gpu.engine.explain.why import why_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.errors import NotFound
from mesos_gpu.model.arrays.array import JobArray, as_job, whose
from mesos_gpu.model.arrays.indexes import count, without
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.why import Why


def running_in(state: State, array: JobArray) -> int:
    """Return how many members of an array hold resources, or are about to."""
    jobs = (state.work.jobs[job_id] for job_id in state.work.members.jobs.get(array.id, ()))
    return sum(job.state is not JobState.PENDING for job in jobs)


def job_in(state: State, job_id: JobId) -> Job:
    """Return a job, or an array as a job.

    Raises:
        NotFound: Neither a job nor an array has that id.
    """
    array = state.work.arrays.get(job_id)
    if array is not None:
        return as_job(array, state.work.members.counts(array, running_in(state, array)))
    if job_id not in state.work.jobs:
        raise NotFound(f"there is no job {job_id}", remedy="list the jobs with: mesos-gpu ps --all")
    return state.work.jobs[job_id]


def why_in_array(
    state: State, settings: Settings, now: float, job_id: JobId, *, past_offers: bool = False
) -> Why:
    """Explain what an array, or a task of it without a job, waits for, by the first pending member.

    Raises:
        NotFound: Neither an array nor one of its tasks has that id.
    """
    position_of = whose(job_id)
    array = state.work.arrays.get(job_id) or (
        state.work.arrays.get(position_of[0]) if position_of is not None else None
    )
    if array is None:
        raise NotFound(f"there is no job {job_id}", remedy="list the jobs with: mesos-gpu ps --all")
    before = _before(array, None if array.id == job_id or position_of is None else position_of[1])
    head = _head(state, array)
    if head is None:
        return _without_head(state, array, job_id, before)
    head_why = why_of(state, settings, now, head, past_offers=past_offers)
    place = None if head_why.queue_position is None else head_why.queue_position + before
    words = (
        f"{before} tasks of its array come before it, and the first of them {head_why.summary}"
        if before
        else head_why.summary
    )
    return replace(
        head_why,
        job_id=job_id,
        queue_position=place,
        summary=words,
        estimate=None if before else head_why.estimate,
    )


def _before(array: JobArray, index: int | None) -> int:
    """Return how many tasks of an array without a job stand before an index; 0 for the array itself."""
    place = None if index is None else array.indexes.position(index)
    return 0 if place is None else count(array.left) - count(without(array.left, ((0, place - 1),)))


def _head(state: State, array: JobArray) -> Job | None:
    """Return the first pending member of an array; None without one."""
    jobs = (state.work.jobs[job_id] for job_id in state.work.members.jobs.get(array.id, ()))
    return min(
        (job for job in jobs if job.state is JobState.PENDING), key=lambda job: job.sequence, default=None
    )


def _without_head(state: State, array: JobArray, job_id: JobId, before: int) -> Why:
    """Return the explanation for an array without a pending member."""
    counts = state.work.members.counts(array, running := running_in(state, array))
    job_state = as_job(array, counts).state
    if array.ended_at is not None:
        return Why(job_id, job_state, f"has ended: {counts.words}", None, can_ever_run=True)
    if not array.left:
        return Why(job_id, job_state, f"all its tasks have started: {counts.words}", None, can_ever_run=True)
    words = f"{running} tasks of its array run, which is its limit"
    if before:
        words = f"{words}; {before} of them come before this one"
    return Why(job_id, JobState.PENDING, words, before, can_ever_run=True)
