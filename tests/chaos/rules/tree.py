"""Limits, guarantees, pools and costs of queues on the simulated nodes, computed independently of the engine."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import (
    DEFAULT_POOL,
    EVERYBODY,
    Budget,
    JobClass,
    Limits,
    MinRuntime,
    QueueDocument,
    QueueSpec,
)
from tests.chaos.account import Account
from tests.chaos.rules import shares
from tests.chaos.virtual import Agent

_CLOCKS_S = 0.001  # precision of times in seconds
_COST = 1  # cost of models that the document does not name


def lineage(queue: str) -> Iterator[str]:
    """Yield a queue and all queues above it, itself first."""
    while queue:
        yield queue
        queue = queue.rpartition("/")[0]


def specs_of(document: QueueDocument, queue: str) -> list[QueueSpec]:
    """Return the specifications of a queue and of all queues above it."""
    return [document.queues[path] for path in lineage(queue) if path in document.queues]


def most(spec: QueueSpec, pool: str) -> int | None:
    """Return the thousandths of cost that a queue may hold of a pool, or None if it has no limit."""
    limits = [spec.limit_gpus[pool]] if pool in spec.limit_gpus else []
    if pool in spec.borrow_limit_gpus:
        limits.append(owed(spec, pool) + spec.borrow_limit_gpus[pool])
    return min(limits, default=None)


def owed(spec: QueueSpec, pool: str) -> int:
    """Return the guarantee of a queue in a pool, in thousandths of cost."""
    guarantee = spec.guarantee_gpus.get(pool)
    return guarantee.milli if guarantee else 0


def inherited(document: QueueDocument, queue: str, name: str) -> object:
    """Return the value of a field of a queue, or of the nearest queue above that has one; None if none has."""
    values = (getattr(spec, name) for spec in specs_of(document, queue))
    return next((value for value in values if value is not None), None)


def fenced(document: QueueDocument, queue: str, other: str) -> bool:
    """Return whether a reclaim boundary (`fence`) separates two queues."""
    fences = {path for path, spec in document.queues.items() if spec.fence}
    return bool(fences & (set(lineage(queue)) ^ set(lineage(other))))


def runtime(document: QueueDocument, queue: str, other: str) -> MinRuntime:
    """Return the minimum run time of jobs of another queue before jobs of a queue may preempt them.

    It is that of the other queue's ancestor below the common ancestor of both, or of the queue itself if both are one.
    """
    theirs = list(lineage(other))
    mine = set(lineage(queue))
    child = next((path for path in reversed(theirs) if path not in mine), other)
    value = inherited(document, child, "min_runtime_s")
    return value if isinstance(value, MinRuntime) else MinRuntime()


def class_of(document: QueueDocument, name: str | None) -> JobClass | None:
    """Return the class of a name, or None."""
    return next((each for each in document.classes if each.name == name), None)


def budgets_for(document: QueueDocument, job: Job) -> list[Budget]:
    """List the budgets that a job's use is charged to."""
    return list(budgets_by_key(document, job).values())


def budgets_by_key(document: QueueDocument, job: Job) -> dict[tuple[str, str], Budget]:
    """Return the budgets that pay for a job, by queue and user; user "*" for budgets of a whole queue."""
    user = job.owner or job.spec.user or ""
    paying: dict[tuple[str, str], Budget] = {}
    for path in lineage(job.spec.queue):
        spec = document.queues.get(path, QueueSpec())
        own = spec.user_budgets.get(user) or spec.user_budgets.get(EVERYBODY)
        if spec.budget is not None:
            paying[path, EVERYBODY] = spec.budget
        if own is not None and user:
            paying[path, user] = own
    return paying


def limits_for(document: QueueDocument, job: Job) -> list[Limits]:
    """Return the limits of users and queues that apply to a job."""
    user = job.owner or job.spec.user or ""
    users = [document.users, *(spec.users for spec in specs_of(document, job.spec.queue))]
    of_user = [each.get(user) or each.get(EVERYBODY) for each in users]
    return [*(each for each in of_user if each), *(s.limits for s in specs_of(document, job.spec.queue))]


# --- pools


def pool_of(document: QueueDocument, agent: Agent | Node) -> str:
    """Return the pool of an agent: the first by name that has all of its models."""
    models = {gpu.model for gpu in agent.gpus}
    able = (pool.name for pool in document.pools if models <= set(pool.models) and models)
    return min(able, default=DEFAULT_POOL)


def pools_for(document: QueueDocument, spec: JobSpec) -> list[str]:
    """Return the pools that queue and class of a job allow, in the order of the queue."""
    known, named = class_of(document, spec.job_class), order_of(document, spec.queue)
    every = [DEFAULT_POOL, *(pool.name for pool in document.pools if not pool.dedicated)]
    return [pool for pool in named or every if known is None or not known.pools or pool in known.pools]


def order_of(document: QueueDocument, queue: str) -> tuple[str, ...]:
    """Return the pools that a queue, or the nearest queue above, names in order; empty if none does."""
    named = inherited(document, queue, "pools")
    return named if isinstance(named, tuple) else ()


def is_ordered(document: QueueDocument, queue: str) -> bool:
    """Return whether pools of a queue have an order, so that all tasks of a job are in one pool."""
    after_s = inherited(document, queue, "overflow_after_s")
    return bool(order_of(document, queue)) and isinstance(after_s, int | float)


def first_pools(account: Account, job: Job, earlier: Iterable[Task], now: float) -> list[str]:
    """Return the pools to which a job may have overflowed by now, by its waiting time since earlier launches.

    Pools without a requested model come last.
    """
    document, spec = account.queues, job.spec
    pools, after_s = pools_for(document, spec), inherited(document, spec.queue, "overflow_after_s")
    if not order_of(document, spec.queue) or not isinstance(after_s, int | float) or not after_s:
        return pools
    models = {pool: set[str]() for pool in pools}
    for node in account.disk.nodes.values():
        here = {gpu.model for gpu in node.gpus}
        names = (each.name for each in document.pools if here and here <= set(each.models))
        models.setdefault(min(names, default=DEFAULT_POOL), set()).update(here)
    wanted = set(spec.gpu_model)
    pools.sort(key=lambda pool: not (models[pool] & wanted if wanted else models[pool]))
    since = max(job.submitted_at, job.not_before, *(task.ended_at or 0.0 for task in earlier))
    return pools[: max(1, 1 + int((now - since + _CLOCKS_S) // after_s))]


def agents_in(account: Account, pool: str) -> list[Agent]:
    """Return the agents of a pool."""
    return [agent for agent in account.mesos.agents.values() if pool_of(account.queues, agent) == pool]


def capacity(account: Account, pool: str) -> int:
    """Return the thousandths of cost of all GPUs of a pool."""
    costs = account.queues.gpu_cost
    gpus = (gpu for agent in agents_in(account, pool) for gpu in agent.gpus)
    return sum(WHOLE * costs.get(gpu.model, _COST) for gpu in gpus)


# --- costs


def dearest(account: Account, spec: JobSpec, pool: str) -> int:
    """Return the highest cost of a job in a pool, in thousandths, by its possible models; 0 if there are none."""
    costs = account.queues.gpu_cost
    there = {gpu.model for agent in agents_in(account, pool) for gpu in agent.gpus}
    able = there & set(spec.gpu_model) if spec.gpu_model else there
    return spec.gpu_milli_in_all * max((costs.get(model, _COST) for model in able), default=0)


def cost_of(account: Account, task: Task) -> int:
    """Return the thousandths of cost of a task, by the models of the GPUs that it has."""
    assert task.job_id is not None, "monitors are not charged"
    milli = shares.counted_milli(account, task, account.disk.jobs[task.job_id].spec)
    costs = account.queues.gpu_cost
    there = [agent for agent in account.mesos.agents.values() if agent.hostname == task.hostname]
    models = [gpu.model for agent in there for gpu in agent.gpus if gpu.id in task.gpus]
    return milli * max((costs.get(model, _COST) for model in models), default=1)


def pool_where(account: Account, task: Task) -> str:
    """Return the pool of the node that a task is on."""
    there = (agent for agent in account.mesos.agents.values() if agent.hostname == task.hostname)
    return next((pool_of(account.queues, agent) for agent in there), DEFAULT_POOL)


def holding(account: Account, path: str, now: float) -> list[Task]:
    """Return the tasks of a queue and of queues below it that may still hold resources."""
    return [
        account.disk.tasks[task_id]
        for job_id in account.launches
        if job_id in account.disk.jobs and path in lineage(account.disk.jobs[job_id].spec.queue)
        for task_id in account.latest(job_id)
        if not account.words[task_id].ended and not account.given_up(task_id, now)
    ]


def held(account: Account, path: str, pool: str, now: float, but: Collection[JobId] = ()) -> int:
    """Return what a queue holds of a pool, in thousandths of cost, without some jobs."""
    tasks = (each for each in holding(account, path, now) if each.job_id not in but)
    return sum(cost_of(account, task) for task in tasks if pool_where(account, task) == pool)


# --- guarantees


def below(path: str, queues: Iterable[str]) -> list[str]:
    """Return the queues directly below one; "" for the top queues."""
    return [each for each in queues if each.rpartition("/")[0] == path]


def scaled(document: QueueDocument, pool: str, amount: int) -> dict[str, int]:
    """Return what each queue is guaranteed of a pool, in thousandths of cost; less where guarantees exceed the pool.

    Args:
        document: Document with the guarantees of queues.
        pool: Name of the pool.
        amount: Capacity of the pool, in thousandths of cost.
    """

    def whole(path: str) -> int:
        return owed(document.queues[path], pool) or sum(map(whole, below(path, document.queues)))

    made: dict[str, int] = {}

    def divide(path: str, most: int) -> None:
        wanted = {each: whole(each) for each in below(path, document.queues)}
        total = sum(wanted.values())
        for each, milli in wanted.items():
            made[each] = milli * most // total if total > most else milli
            divide(each, made[each])

    divide("", amount)
    return made


def sound(account: Account, pool: str) -> int:
    """Return the thousandths of cost of the GPUs of a pool that are healthy and not drained, by the state on disk."""
    costs, disk = account.queues.gpu_cost, account.disk
    resets = {card.id for card in disk.cards.values() if card.reset is not None}
    return sum(
        WHOLE * costs.get(gpu.model, _COST)
        for node in disk.nodes.values()
        if node.lost_at is None and node.wire and (Target.NODE, node.hostname) not in disk.drains
        for gpu in node.gpus
        if gpu.health is Health.OK and (Target.GPU, gpu.id) not in disk.drains
        if gpu.id not in resets and pool_of(account.queues, node) == pool
    )


# --- lend limits


def kept_from(queue: str, owed: Mapping[str, int], lent: Mapping[str, int], held: Mapping[str, int]) -> int:
    """Return what other queues keep idle of a pool by their lend limits, which no job of a queue may take.

    Args:
        queue: Path of the queue.
        owed: Guarantee of each queue.
        lent: Lend limit of each queue that has one.
        held: Amount that each queue holds, with all queues below it.
    """

    def keeps(path: str) -> int:
        own = max(0, owed.get(path, 0) - lent[path] - held.get(path, 0)) if path in lent else 0
        return max(own, sum(map(keeps, below(path, owed))))

    own = {*lineage(queue)}
    return sum(keeps(each) for path in (*own, "") for each in below(path, owed) if each not in own)


def lend_limits(document: QueueDocument, pool: str) -> Mapping[str, int]:
    """Return the lend limit of each queue that has one for a pool, in thousandths of cost."""
    limits = ((path, spec.lend_limit_gpus.get(pool)) for path, spec in document.queues.items())
    return {path: milli for path, milli in limits if milli is not None}


def beside_lenders(
    account: Account, queue: str, pool: str, now: float, but: Collection[JobId] = ()
) -> tuple[int, int]:
    """Return what is free of a pool, and what lend limits keep from the jobs of a queue, in thousandths of cost.

    Args:
        account: Account of the scheduler.
        queue: Path of the queue.
        pool: Name of the pool.
        now: Seconds since the epoch.
        but: Jobs whose tasks do not count.
    """
    document, amount = account.queues, sound(account, pool)
    if not (given := lend_limits(document, pool)):
        return amount, 0
    held_by = {path: held(account, path, pool, now, but) for path in document.queues}
    free = amount - sum(milli for path, milli in held_by.items() if "/" not in path)
    return free, kept_from(queue, scaled(document, pool, amount), given, held_by)


def comes_after(job: Job, other: Job) -> bool:
    """Return whether a job stands after another one of the same line at any time, however long both wait."""
    since = [each.submitted_at if each.in_line_since is None else each.in_line_since for each in (job, other)]
    return job.priority <= other.priority and job.sequence > other.sequence and since[0] >= since[1]
