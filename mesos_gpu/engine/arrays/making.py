"""Job arrays: submission, drafts of jobs, launches, kills, and removal.

In the queue an array is represented by drafts, its next few tasks: one while none can start, more while all that are
tried start. Drafts follow from the saved record of the array, so nothing is lost with them.
"""

from dataclasses import replace

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.indexes.arrays import MAX_DRAFTS
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.arrays.indexes import Runs, both, has, parsed, union, without
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.saves import ForgetArray


def take_in(turn: Turn, job_id: JobId, spec: JobSpec, owner: str) -> None:
    """Add a new array at its place in the queue."""
    array = JobArray(job_id, spec, turn.now, turn.state.work.next_sequence, owner)
    turn.put(replace(array, left=array.indexes.all))


def refill(turn: Turn) -> None:
    """Give each changed array the drafts that it may have, and end arrays without tasks left."""
    members = turn.state.work.members
    while members.changed:
        array = turn.state.work.arrays.get(next(iter(members.changed)))
        if array is not None and array.ended_at is None:
            _refill(turn, array)
        del members.changed[next(iter(members.changed))]


def _refill(turn: Turn, array: JobArray) -> None:
    """Give an array its missing drafts, or end it."""
    members = turn.state.work.members
    if not array.left and not members.jobs.get(array.id):
        turn.publish_array(turn.put_array(replace(array, ended_at=turn.now)))
        return
    missing = members.windows.get(array.id, 1) - len(members.drafts.get(array.id, ()))
    for position in members.next_of(array, missing):
        turn.state.draft(array, position)
        turn.state.match.unmatched = True


def following(turn: Turn, job: Job) -> Job | None:
    """Return the draft that follows a launched member directly.

    None without one, and in a tree of queues, where other jobs may come between the two.
    """
    state = turn.state
    array = state.work.arrays.get(job.array) if job.array is not None else None
    if array is None or not state.quota.tree.is_flat or state.work.members.drafts.get(array.id):
        return None
    position = next(iter(state.work.members.next_of(array, 1)), None)
    return None if position is None else state.draft(array, position)


def on_matched(turn: Turn) -> None:
    """Double the drafts of arrays whose drafts were all launched, and reduce the others to one.

    So an array that waits for room costs a match no more than a job.
    """
    state, members = turn.state, turn.state.work.members
    for array_id in members.launched:
        if array_id not in members.drafts:
            members.windows[array_id] = min(2 * members.windows.get(array_id, 1), MAX_DRAFTS)
            members.changed[array_id] = None
    members.launched.clear()
    for array_id, drafts in list(members.drafts.items()):
        members.windows.pop(array_id, None)
        for job_id in sorted(drafts, key=drafts.__getitem__)[1:]:
            state.drop_draft(state.work.jobs[job_id])


def members_of(turn: Turn, array: JobArray, positions: Runs) -> list[Job]:
    """Return the members of an array at some positions that have not ended, with drafts."""
    jobs = (turn.state.work.jobs[job_id] for job_id in turn.state.work.members.jobs.get(array.id, ()))
    places = ((array.indexes.position(job.index or 0), job) for job in jobs)
    return [job for place, job in places if place is not None and has(positions, place)]


def kill_left(turn: Turn, array: JobArray, positions: Runs) -> None:
    """Kill the tasks of an array at some positions that have no job yet, or a draft."""
    killed_positions = both(array.left, positions)
    if not killed_positions:
        return
    for job in members_of(turn, array, killed_positions):
        if job.id in turn.state.work.members.drafts.get(array.id, ()):
            turn.state.drop_draft(job)
    killed = replace(
        array, left=without(array.left, killed_positions), killed=union(array.killed, killed_positions)
    )
    turn.publish_array(turn.put_array(killed))


def forget_old(turn: Turn) -> None:
    """Forget the arrays that ended first, beyond a limit, unless a member is still remembered."""
    members = turn.state.work.members
    surplus = len(members.ended) - turn.settings.memory.keep_ended_jobs
    if surplus <= 0:
        return
    remembered = {job.array for job in map(turn.state.work.jobs.__getitem__, turn.state.work.ended)}
    for array_id in list(members.ended)[:surplus]:
        if array_id not in remembered:
            turn.state.drop_array(array_id)
            turn.effects.append(ForgetArray(array_id))


def positions_of(array: JobArray, event: ev.ArrayKillRequested) -> Runs:
    """Return the positions that a kill request names."""
    indexes = array.indexes
    return indexes.all if event.indexes is None else indexes.positions(parsed(event.indexes))
