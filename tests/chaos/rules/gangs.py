"""Rules of gangs, of preempted jobs and of constraints."""

from collections.abc import Iterable

from mesos_gpu.engine import effects as fx
from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.constraint import Operator
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import QueueOrder, Stop
from tests.chaos.account import Account
from tests.chaos.rules import bookings, stops, tree
from tests.chaos.violation import Violation


def whole(account: Account, launched: set[JobId]) -> None:
    """Check that a batch has launched all tasks of each job, each member with a port of its own."""
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
    """Check that all members of a gang are ready, and none has ended, when a member may start."""
    job_id = JobId(task_id.partition(".")[0])
    launch = task_id.rpartition(".")[0]
    if launch in account.begun:
        return  # a repeated call: members may have ended since
    account.begun.add(launch)
    for member in account.latest(job_id):
        word = account.words[member]
        gone = word.ended not in ("", "TASK_FINISHED") and member not in account.ended_now
        if not word.placed or gone:
            how = word.ended or "not in its place"
            raise Violation(
                "no member starts before all members are placed",
                f"{task_id} while {member} is {how}",
                task_id,
            )


def justified(account: Account, task: Task, job: Job, now: float) -> bool:
    """Return whether a task was rightly ended: for another job, or because a member of its gang has gone."""
    if stops.ends(account, task, job, now):
        return True
    others = [member for member in account.latest(job.id) if member != task.id]
    words = [account.words[member] for member in others]
    gone = any(word.ended not in ("", "TASK_FINISHED") for word in words)
    return gone or any(account.given_up(member, now) for member in others)


def bound(account: Account, item: fx.LaunchTask, job_id: JobId, now: float) -> None:
    """Check constraints and anti-affinity of a launched task."""
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
    """Return tasks of latest launches on the host of a task that may still run."""
    neighbours = []
    for job_id in account.launches:
        if job_id in account.disk.jobs:
            for task_id in account.latest(job_id):
                other = account.disk.tasks[task_id]
                gone = account.words[task_id].ended or account.given_up(task_id, now)
                if other.hostname == task.hostname and task_id != task.id and not gone:
                    neighbours.append(other)
    return neighbours


def taken(gang: Iterable[Task], others: Iterable[Task]) -> list[Task]:
    """Return the tasks of other jobs that have GPUs of a gang's tasks."""
    gpus = {gpu for task in gang for gpu in task.gpus}
    return [task for task in others if gpus & {*task.gpus}]


def kept(account: Account, launched: set[JobId]) -> None:
    """Check that no job behind a gang which starts again has the GPUs that the gang gave up."""
    waiting = (job for job in account.disk.jobs.values() if job.state is JobState.PENDING and job.launches)
    for gang in [job for job in waiting if launched and job.spec.tasks > 1 and _keeps(account, job)]:
        ended = [
            account.disk.tasks[task_id]
            for task_id in account.latest(gang.id)
            if account.words[task_id].ended and not account.is_replaced(task_id)
        ]
        behind = [job_id for job_id in launched if _is_behind(account, account.disk.jobs[job_id], gang)]
        latest = [account.disk.tasks[task_id] for job_id in behind for task_id in account.latest(job_id)]
        for task in taken(ended, latest):
            words = f"{task.id} has {task.gpus}, of which {gang.id} gave up some before it starts again"
            raise Violation("no job behind a gang has what the gang gave up", words, task.id, gang.id)


def _keeps(account: Account, gang: Job) -> bool:
    """Return whether GPUs are kept for a gang: nothing but room keeps the gang waiting, and nodes could serve it."""
    tasks, document = [account.disk.tasks[each] for each in account.latest(gang.id)], account.queues
    if gang.room_on or gang.room_made_at is not None or stops.is_choosy(gang) or not gang.spec.gpus:
        return False
    if any(map(_is_for_others, tasks)):
        return False
    if tree.limits_for(document, gang) or tree.budgets_for(document, gang) or gang.spec.job_class:
        return False
    if any(spec.stop is not Stop.NONE for spec in tree.specs_of(document, gang.spec.queue)):
        return False
    pools = tree.pools_for(document, gang.spec)
    nodes = [node for node in account.disk.nodes.values() if tree.pool_of(document, node) in pools]
    models = {gpu.model for node in nodes for gpu in node.gpus}
    wanted = models & {*gang.spec.gpu_model} if gang.spec.gpu_model else models
    return any(
        sum(sum(gpu.model == model for gpu in node.gpus) // gang.spec.gpus for node in nodes)
        >= gang.spec.tasks
        for model in wanted
    )


def _is_for_others(task: Task) -> bool:
    told = task.notice is not None and task.notice.stands and task.notice.reason is not NoticeReason.DRAIN
    return told or task.preempted_for is not None


def _is_behind(account: Account, job: Job, gang: Job) -> bool:
    """Return whether a job surely comes after a gang: in the same line by priority and time, else by guarantees."""
    document, same = account.queues, job.spec.queue == gang.spec.queue
    if job.id == gang.id or job.room_made_at is not None or bookings.used(account, job) is not None:
        return False
    if document.version and not same:
        lends = any(spec.lend_limit_gpus for spec in document.queues.values())
        return job.seat is None and not lends
    if tree.inherited(document, job.spec.queue, "order") is QueueOrder.LAS:
        return False
    return tree.comes_after(job, gang)
