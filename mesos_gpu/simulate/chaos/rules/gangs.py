"""What must hold of gangs, of jobs that make room for others, and of constraints; told by what the witness knows."""

from mesos_gpu.engine import effects as fx
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.constraint import Operator
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.simulate.chaos.account import Account
from mesos_gpu.simulate.chaos.rules import stops
from mesos_gpu.simulate.chaos.violation import Violation


def whole(account: Account, launched: set[JobId]) -> None:
    """Check that of each job launched in a batch all tasks were, with a port of its own for each member."""
    for job_id in launched:
        tasks = [account.disk.tasks[task_id] for task_id in account.latest(job_id)]
        asked = account.disk.jobs[job_id].spec.tasks
        ranks = [task.rank for task in tasks]
        if sorted(ranks) != list(range(asked)):
            raise Violation(
                "a gang is whole, or nothing of it is", f"{job_id} has ranks {ranks} of {asked}", job_id
            )
        places = [(task.agent_id, port) for task in tasks for port in task.ports]
        if asked > 1 and len(set(places)) != asked and job_id not in account.dropped:
            raise Violation("each member has a port of its own", f"{job_id} has {places}", job_id)


def all_placed(account: Account, task_id: TaskId) -> None:
    """A member may start when each of its gang has said that it has its place, and none has gone."""
    job_id = JobId(task_id.partition(".")[0])
    launch = task_id.rpartition(".")[0]
    if launch in account.begun:
        return  # the word is repeated; who began may have ended since
    account.begun.add(launch)
    for member in account.latest(job_id):
        word = account.words[member]
        gone = word.ended not in ("", "TASK_FINISHED") and member not in account.ended_now
        if not word.placed or gone:
            how = word.ended or "not in its place"
            raise Violation(
                "nobody starts before all are placed", f"{task_id} while {member} is {how}", task_id
            )


def justified(account: Account, task: Task, job: Job, now: float) -> bool:
    """Whether the task was ended for another job, or because another member of its gang is gone."""
    if stops.ends(account, task, job, now):
        return True
    others = [member for member in account.latest(job.id) if member != task.id]
    words = [account.words[member] for member in others]
    gone = any(word.ended not in ("", "TASK_FINISHED") for word in words)
    return gone or any(account.given_up(member, now) for member in others)


def bound(account: Account, item: fx.LaunchTask, job_id: JobId, now: float) -> None:
    """Check that a task's constraints hold where it goes, and that what is to be apart is apart."""
    spec, task = account.disk.jobs[job_id].spec, item.task
    for constraint in spec.constraints:
        if constraint.operator is Operator.CLUSTER and constraint.value != task.hostname:
            raise Violation("constraints hold", f"{task.id} is on {task.hostname}: {constraint}", task.id)
    if not (spec.app or spec.away or spec.tasks > 1):
        return
    for other in _neighbours(account, task, now):
        theirs = account.disk.jobs[other.job_id or job_id].spec
        same = other.job_id == job_id or (spec.app is not None and theirs.app == spec.app)
        unique = any(constraint.operator is Operator.UNIQUE for constraint in spec.constraints)
        apart = (spec.away and spec.away == theirs.app) or (theirs.away and theirs.away == spec.app)
        if (same and unique) or apart:
            raise Violation("constraints hold", f"{task.id} is beside {other.id} on {task.hostname}", task.id)


def _neighbours(account: Account, task: Task, now: float) -> list[Task]:
    """The tasks of latest launches that are on its host already, as far as anybody knows."""
    neighbours = []
    for job_id in account.launches:
        if job_id in account.disk.jobs:
            for task_id in account.latest(job_id):
                other = account.disk.tasks[task_id]
                gone = account.words[task_id].ended or account.given_up(task_id, now)
                if other.hostname == task.hostname and task_id != task.id and not gone:
                    neighbours.append(other)
    return neighbours
