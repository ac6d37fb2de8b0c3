"""Rules of limits and guaranteed admissions of queues, and the jobs that a tree of queues can ever start."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tasks.resize import Resize
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import NO_LIMITS, OnEmpty, QueueOrder, Stop
from tests.chaos.account import Account, launch_of
from tests.chaos.rules import bookings, stops, tree
from tests.chaos.violation import Violation

_PLENTY = 10**9  # thousandths of cost times seconds: more than is used in an episode


def pools_open(account: Account, job: Job) -> list[str]:
    """Return the pools in which the document allows a job to start, with all other jobs gone."""
    document = account.queues
    if document.is_empty or not job.spec.gpu_milli_in_all:
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
    amount = tree.capacity(account, pool)
    kept = tree.kept_from(
        job.spec.queue, tree.scaled(document, pool, amount), tree.lend_limits(document, pool), {}
    )
    if cost + kept > amount:
        return False
    shapes = any(guarantee.shapes for spec in specs for guarantee in spec.guarantee_gpus.values())
    # Otherwise its guarantee may be reduced, or bound to shapes.
    sure = not shapes and not _is_scaled(account, pool)
    may_borrow = job.spec.preemptible or job.spec.queue not in document.queues
    return may_borrow or (sure and bool(specs) and cost <= tree.owed(specs[0], pool))


def _is_scaled(account: Account, pool: str) -> bool:
    """Return whether guarantees of a pool are reduced: those of children exceed their queue's, or the pool."""
    document, below = account.queues, Counter[str]()
    for path, spec in document.queues.items():
        below[path.rpartition("/")[0]] += tree.owed(spec, pool)
    has = {path: tree.owed(spec, pool) for path, spec in document.queues.items()}
    return any(milli > has.get(path, tree.capacity(account, pool)) for path, milli in below.items())


def limited(account: Account, task: Task, job_id: JobId, now: float) -> None:
    """Check limits of queues and users, and pools, with the resources of a launched task."""
    document = account.queues
    if document.is_empty:
        return
    job, pool = account.disk.jobs[job_id], tree.pool_where(account, task)
    _in_its_pools(account, job, task, pool, now)
    if task.gpus:
        _within(account, job, task, pool, now)


def _within(account: Account, job: Job, task: Task, pool: str, now: float, *, is_new: bool = True) -> None:
    document = account.queues
    for path in tree.lineage(job.spec.queue):
        limit = tree.most(document.queues[path], pool) if path in document.queues else None
        if limit is not None and (held := tree.held(account, path, pool, now)) > limit:
            words = f"{path} may hold {limit} thousandths of pool {pool}, and holds {held} with {task.id}"
            raise Violation("no queue is over its limit at any level", words, task.id)
    _user_limited(account, job, task, now, is_new=is_new)


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
        raise Violation("no job overflows before its time", words, task.id)


def _user_limited(account: Account, job: Job, task: Task, now: float, *, is_new: bool) -> None:
    """Check the limits of a user in all queues together; the limit of jobs only for a new task."""
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
    most, most_milli = limits.max_running if is_new else None, limits.max_gpus
    if (most is not None and jobs > most) or (most_milli is not None and cost > most_milli * WHOLE):
        words = f"user {user or '?'} has {jobs} jobs that hold {cost} thousandths with {task.id}: {limits}"
        raise Violation("no user is over the limits", words, task.id)


def _user(job: Job) -> str:
    return job.owner or job.spec.user or ""


def seated(account: Account) -> None:
    """Check that guaranteed admissions do not exceed the guarantee of each queue."""
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


# --- lend limits


def resized(account: Account, task: Task, wanted: Resize, now: float) -> None:
    """Take in the share that a task is asked to have; check that limits leave room for a larger one."""
    before = 0 if task.job_id is None else tree.cost_of(account, task)
    account.asked[task.id] = wanted
    if task.job_id is not None and tree.cost_of(account, task) > before and not account.queues.is_empty:
        job, pool = account.disk.jobs[task.job_id], tree.pool_where(account, task)
        _within(account, job, task, pool, now, is_new=False)
        lent(account, task, task.job_id, now)


def lent_by_launches(account: Account, launched: Iterable[JobId], now: float) -> None:
    """Check that what queues do not lend stays free beside the tasks of jobs that a batch has launched."""
    for job_id in launched:
        for task_id in account.latest(job_id):
            if task_id in account.disk.tasks:
                lent(account, account.disk.tasks[task_id], job_id, now)


def lent(account: Account, task: Task, job_id: JobId, now: float) -> None:
    """Check that what queues do not lend stays free beside a task that was launched, or that gets a larger share."""
    job, pool = account.disk.jobs[job_id], tree.pool_where(account, task)
    if not task.gpus or bookings.is_on(account, task, job):
        return
    free, kept = tree.beside_lenders(account, job.spec.queue, pool, now)
    if kept and free < kept:
        words = f"{free} thousandths of pool {pool} are free beside {task.id} of {job.spec.queue}, and {kept} are kept"
        raise Violation("nothing is lent beyond a lend limit", words, task.id)


# --- jobs that wait for limits


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit that holds for a job.

    Attributes:
        most: Limit, as an amount or as a number of jobs.
        wanted: Amount of the limit that the job takes.
        held: Amount of the limit that each other job holds.
    """

    most: int
    wanted: int
    held: Mapping[JobId, int] | Mapping[str, int]


def leave_room(bounds: Iterable[Bound], ended: Collection[str]) -> bool:
    """Return whether limits leave room for a job when some jobs have ended."""
    return all(
        sum(amount for job_id, amount in each.held.items() if job_id not in ended) + each.wanted <= each.most
        for each in bounds
    )


def give_way(account: Account, now: float) -> None:
    """Check that no limit keeps a job waiting that jobs of lower priority in its queue could give room to.

    Only for a time in which nothing starts or ends any more. Jobs of which GPUs alone do not say where they have room
    are left out.
    """
    if any(array.ended_at is None for array in account.disk.arrays.values()):
        return  # members of arrays wait that are not on disk
    pending = [job for job in account.disk.jobs.values() if job.state is JobState.PENDING and job.spec.gpus]
    for job in pending:
        if not _is_plain(account, job, now):
            continue
        beside = [each for each in pending if each is not job and not _is_behind(account, each, job, now)]
        lower = {each.id for each in account.disk.jobs.values() if _gives_way(account, each, job)}
        for pool in tree.pools_for(account.queues, job.spec):
            bounds = list(_bounds(account, job, pool, now))
            if leave_room(bounds, ()):
                break
            agents = tree.agents_in(account, pool) if leave_room(bounds, lower) else []
            if any(stops.has_room_without(account, each, job, beside, lower, now) for each in agents):
                words = (
                    f"{job.id} of {job.spec.queue} waits for a limit, and {sorted(lower)} have lower priority"
                )
                raise Violation("no limit keeps a job waiting that others give way to", words, job.id, *lower)


def _is_behind(account: Account, other: Job, job: Job, now: float) -> bool:
    """Return whether another job of the same queue stands after a job, for which room is looked for first."""
    since = other.submitted_at if other.in_line_since is None else other.in_line_since
    aged = (now - since) // account.settings.queue.aging_step_s
    return other.spec.queue == job.spec.queue and other.priority + max(aged, 0) < job.priority


def _is_plain(account: Account, job: Job, now: float) -> bool:
    """Return whether nothing but limits of queues and users, and room for one task, can keep a job waiting."""
    document, spec = account.queues, job.spec
    if (
        spec.tasks > 1
        or stops.is_choosy(job)
        or spec.booking
        or spec.job_class
        or job.app_version is not None
    ):
        return False
    if job.not_before > now or job.room_made_at is not None or tree.budgets_for(document, job):
        return False
    above = tree.specs_of(document, spec.queue)
    if any(each.stop is not Stop.NONE or each.limits != NO_LIMITS or each.users for each in above):
        return False
    is_ordered = tree.inherited(document, spec.queue, "order") is QueueOrder.LAS
    if is_ordered or tree.order_of(document, spec.queue) or (not document.is_empty and not above):
        return False
    return spec.preemptible or not any(each.guarantee_gpus for each in document.queues.values())


def _gives_way(account: Account, other: Job, job: Job) -> bool:
    """Return whether a job that runs may be stopped for one of its queue, by its priority."""
    if other.spec.queue != job.spec.queue or other.priority >= job.priority or not other.spec.preemptible:
        return False
    if other.state is not JobState.RUNNING or other.kill_requested or bookings.used(account, other):
        return False
    tasks = [account.disk.tasks[task_id] for task_id in account.latest(other.id)]
    return all(task.state is TaskState.RUNNING and not task.evicted for task in tasks)


def _bounds(account: Account, job: Job, pool: str, now: float) -> Iterator[Bound]:
    document, limit = account.queues, account.settings.queue.queue_limits.get(job.spec.queue)
    cost = tree.dearest(account, job.spec, pool)
    for path, spec in document.queues.items():
        if path in tree.lineage(job.spec.queue) and (most := tree.most(spec, pool)) is not None:
            yield Bound(most, cost, _held_by(account, tree.holding(account, path, now), pool))
    if limit is not None and job.spec.queue not in document.queues:
        holding = tree.holding(account, job.spec.queue, now)
        yield Bound(limit * WHOLE, job.spec.gpu_milli_in_all, _held_by(account, holding, pool))
    if tree.lend_limits(document, pool):
        _, kept = tree.beside_lenders(account, job.spec.queue, pool, now)
        yield Bound(tree.sound(account, pool) - kept, cost, _held_by(account, _holding(account, now), pool))
    user = _user(job)
    limits = document.users.get(user) or document.users.get("*")
    if limits is None:
        return
    tasks = _holding(account, now)
    own = [each for each in tasks if each.job_id and _user(account.disk.jobs[each.job_id]) == user]
    if limits.max_running is not None:
        yield Bound(limits.max_running, 1, {each.job_id: 1 for each in own if each.job_id})
    if limits.max_gpus is not None:
        yield Bound(round(limits.max_gpus * WHOLE), cost, _held_by(account, own, None))


def _holding(account: Account, now: float) -> list[Task]:
    tops = (path for path in account.queues.queues if "/" not in path)
    return [each for path in tops for each in tree.holding(account, path, now)]


def _held_by(account: Account, tasks: Iterable[Task], pool: str | None) -> Mapping[JobId, int]:
    """Return the thousandths of cost that jobs hold with some tasks. `pool`: name of the pool; None for all pools."""
    held = Counter[JobId]()
    for task in tasks:
        if task.job_id is not None and pool in (None, tree.pool_where(account, task)):
            held[task.job_id] += tree.cost_of(account, task)
    return held
