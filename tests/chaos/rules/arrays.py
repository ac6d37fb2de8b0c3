"""What must hold of job arrays: no more of one at once than it says, each index at most once, and none that it lacks.

What runs is counted by what Mesos and the launches say, not by what the scheduler thinks of it.
"""

from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.arrays.indexes import each_of, parsed
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.tasks.task import Task
from tests.chaos.account import Account
from tests.chaos.violation import Violation


def submitted(account: Account, array_id: JobId, indexes: str) -> None:
    """An array is handed in: all of its tasks are asked for."""
    array = account.arrays[array_id] = JobArray(array_id, JobSpec(array_id, array=indexes), 0.0, 0)
    account.submitted.update(array.member_id(array.indexes.at(place)) for place in each_of(array.indexes.all))


def killed(account: Account, array_id: JobId, indexes: str | None) -> None:
    """A user asks for the end of some of its tasks."""
    array = account.arrays[array_id]
    named = array.indexes.all if indexes is None else array.indexes.positions(parsed(indexes))
    account.user_killed.update(array.member_id(array.indexes.at(place)) for place in each_of(named))


def ended(account: Account, job: Job) -> None:
    """A member is saved that has finished: it is remembered longer than the scheduler does."""
    if job.array is not None and job.state is JobState.FINISHED:
        account.spent.add(job.id)


def launched(account: Account, task: Task, job_id: JobId, now: float) -> None:
    """A member is launched.

    Raises:
        Violation: It is none of its array, has run before, or there are too many now.
    """
    job = account.disk.jobs[job_id]
    if job.array is None or job.index is None:
        return
    array = account.arrays[job.array]
    if array.indexes.position(job.index) is None:
        raise Violation("an array has the tasks that were asked for", f"{task.id} is none of it", task.id)
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
    """Whether a launch of a job has not ended, and was not given up."""
    tasks = account.launches.get(job_id, ())
    return any(not account.words[each].ended and not account.given_up(each, now) for each in tasks)
