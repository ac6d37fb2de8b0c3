"""What must hold of a tree's limits and seats, and which jobs it lets start one day."""

from collections import Counter

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import OnEmpty
from mesos_gpu.simulate.chaos.account import Account, launch_of
from mesos_gpu.simulate.chaos.rules import bookings, tree
from mesos_gpu.simulate.chaos.violation import Violation

_PLENTY = 10**9  # thousandths of cost times seconds: more than is used in an episode


def pools_open(account: Account, job: Job) -> list[str]:
    """The pools in which the document lets a job start one day, whatever others do."""
    document = account.queues
    if not document.version or not job.spec.gpu_milli_in_all:
        return tree.pools_for(document, job.spec)
    if not (_class_lets(account, job) and _budgets_let(account, job)):
        return []
    return [pool for pool in tree.pools_for(document, job.spec) if _lets_in(account, job, pool)]


def _class_lets(account: Account, job: Job) -> bool:
    name, document = job.spec.job_class, account.queues
    known = tree.class_of(document, name)
    if name is None or known is None:
        return name is None
    return not known.queues or any(job.spec.queue.startswith(each.rstrip("*")) for each in known.queues)


def _budgets_let(account: Account, job: Job) -> bool:
    for budget in tree.budgets_for(account.queues, job):
        strict = budget.safe or budget.on_empty in (OnEmpty.NO_START, OnEmpty.STOP)
        borrows = budget.on_empty is OnEmpty.BORROW and not job.spec.preemptible
        if (strict or borrows) and (budget.safe or budget.milli_s < _PLENTY):
            return False
    return True


def _lets_in(account: Account, job: Job, pool: str) -> bool:
    document, cost = account.queues, tree.dearest(account, job.spec, pool)
    specs = tree.specs_of(document, job.spec.queue)
    if not cost or any(cost > limit for spec in specs if (limit := tree.most(spec, pool)) is not None):
        return False
    for each in tree.limits_for(document, job):
        if each.max_running == 0 or (each.max_gpus is not None and cost > each.max_gpus * WHOLE):
            return False
    shapes = any(guarantee.shapes for spec in specs for guarantee in spec.guarantee_gpus.values())
    # Else what it is guaranteed may be less, or in pieces.
    sure = not shapes and not _is_scaled(account, pool)
    return job.spec.preemptible or (sure and bool(specs) and cost <= tree.owed(specs[0], pool))


def _is_scaled(account: Account, pool: str) -> bool:
    """Whether queues below one are guaranteed more of a pool than that, or than there is: each has less of it then."""
    document, below = account.queues, Counter[str]()
    for path, spec in document.queues.items():
        below[path.rpartition("/")[0]] += tree.owed(spec, pool)
    has = {path: tree.owed(spec, pool) for path, spec in document.queues.items()}
    return any(milli > has.get(path, tree.capacity(account, pool)) for path, milli in below.items())


def limited(account: Account, task: Task, job_id: JobId, now: float) -> None:
    """Check that no queue at or above a job's, and no user, holds more than it may, with what this task is to have."""
    document = account.queues
    if not document.version:
        return
    job, pool = account.disk.jobs[job_id], tree.pool_where(account, task)
    _in_its_pools(account, job, task, pool, now)
    if not task.gpus:
        return
    for path in tree.lineage(job.spec.queue):
        limit = tree.most(document.queues[path], pool) if path in document.queues else None
        if limit is not None and (held := tree.held(account, path, pool, now)) > limit:
            words = f"{path} may hold {limit} thousandths of pool {pool}, and holds {held} with {task.id}"
            raise Violation("no queue is over its limit at any level", words, task.id)
    _user_limited(account, job, task, now)


def _in_its_pools(account: Account, job: Job, task: Task, pool: str, now: float) -> None:
    document, every = account.queues, [account.disk.tasks[each] for each in account.launches[job.id]]
    usable = tree.pools_for(document, job.spec)
    if pool not in usable:
        words = f"{task.id} is in pool {pool}, and {job.spec.queue} uses {usable}"
        raise Violation("nothing is in a pool that its queue and class may not use", words, task.id)
    if not task.gpus or not tree.order_of(document, job.spec.queue) or bookings.is_on(account, task, job):
        return
    beside = [each for each in every if launch_of(each.id) == launch_of(task.id)]
    if len({tree.pool_where(account, each) for each in beside}) > 1:
        words = f"tasks of {job.id} are on {[each.hostname for each in beside]}"
        raise Violation("a job of a queue with an order is in one pool", words, task.id)
    earlier = [each for each in every if each not in beside]
    if pool not in (first := tree.first_pools(account, job, earlier, now)):
        words = f"{task.id} is in pool {pool}, and may use {first} of {usable} by now"
        raise Violation("nobody overflows before its time", words, task.id)


def _user_limited(account: Account, job: Job, task: Task, now: float) -> None:
    """Check the limits of a user in all queues together."""
    user = job.owner or job.spec.user or ""
    limits = account.queues.users.get(user) or account.queues.users.get("*")
    if limits is None:
        return
    tasks = [
        each
        for path in account.queues.queues
        if "/" not in path
        for each in tree.holding(account, path, now)
        if each.job_id is not None and _user(account.disk.jobs[each.job_id]) == user
    ]
    jobs, cost = len({each.job_id for each in tasks}), sum(tree.cost_of(account, each) for each in tasks)
    most, most_milli = limits.max_running, limits.max_gpus
    if (most is not None and jobs > most) or (most_milli is not None and cost > most_milli * WHOLE):
        words = f"user {user or '?'} has {jobs} jobs that hold {cost} thousandths with {task.id}: {limits}"
        raise Violation("no user is over his limits", words, task.id)


def _user(job: Job) -> str:
    return job.owner or job.spec.user or ""


def seated(account: Account) -> None:
    """Check that seats are no more than what is guaranteed, at each queue that gives some."""
    document, taken = account.queues, Counter[tuple[str, str]]()
    for job in account.disk.jobs.values():
        if job.seat is not None:
            taken[job.seat.queue, job.seat.pool] += job.seat.milli * job.spec.tasks
    for (path, pool), milli in taken.items():
        spec = document.queues.get(path)
        children = (each for name, each in document.queues.items() if name.rpartition("/")[0] == path)
        own = tree.owed(spec, pool) - sum(tree.owed(each, pool) for each in children) if spec else 0
        if milli > own:
            words = f"of {path}, which has {own} thousandths of pool {pool} to give, {milli} are taken"
            raise Violation("seats are what is guaranteed", words)
