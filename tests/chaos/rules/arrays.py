"""Rules of job arrays: the limit of tasks at once holds, each index runs at most once, and no other index runs.

Running tasks are counted by Mesos and launches, not by the state of the scheduler.
"""

from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.arrays.indexes import each_of, parsed
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.tasks.task import Task
from tests.chaos.account import Account
from tests.chaos.violation import Violation


def submitted(account: Account, array_id: JobId, indexes: str) -> None:
    """Record a submitted array and its tasks."""
    array = account.arrays[array_id] = JobArray(array_id, JobSpec(array_id, array=indexes), 0.0, 0)
    account.submitted.update(array.member_id(array.indexes.at(place)) for place in each_of(array.indexes.all))


def killed(account: Account, array_id: JobId, indexes: str | None) -> None:
    """Record tasks of an array that a user has killed; None for all."""
    array = account.arrays[array_id]
    named = array.indexes.all if indexes is None else array.indexes.positions(parsed(indexes))
    account.user_killed.update(array.member_id(array.indexes.at(place)) for place in each_of(named))


def ended(account: Account, job: Job) -> None:
    """Record a finished member, which the scheduler may forget."""
    if job.array is not None and job.state is JobState.FINISHED:
        account.spent.add(job.id)


def launched(account: Account, task: Task, job_id: JobId, now: float) -> None:
    """Check the launch of a member.

    Raises:
        Violation: Its index is not in the array, it has finished before, or too many members run.
    """
    job = account.disk.jobs[job_id]
    if job.array is None or job.index is None:
        return
    array = account.arrays[job.array]
    if array.indexes.position(job.index) is None:
        raise Violation(
            "an array has the tasks that were asked for", f"{task.id} is not one of them", task.id
        )
    if job_id in account.spent:
        raise Violation("each index runs once", f"{task.id}, though {job_id} had finished", task.id)
    if array.indexes.at_once is None:
        return
    live = {
        other.id
        for other in account.disk.jobs.values()
        if other.array == array.id and not other.state.ended and _runs(account, other.id, now)
    }
    if len(live | {job_id}) > array.indexes.at_once:
        words = f"{task.id} is launched while {sorted(live)} run of array {array.id}, {array.spec.array}"
        raise Violation("no more of an array run at once than it says", words, task.id)


def _runs(account: Account, job_id: JobId, now: float) -> bool:
    """Return whether a launch of a job has not ended and was not given up."""
    tasks = account.launches.get(job_id, ())
    return any(not account.words[each].ended and not account.given_up(each, now) for each in tasks)
