"""What must hold of a tree of queues: limits at all levels, whom others may stop, and that each stop is of use."""

from collections import Counter
from collections.abc import Iterator

from mesos_gpu.model.ids import JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobSpec, JobState
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.shares.units import WHOLE
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tasks.task import Task
from mesos_gpu.model.tenancy import DEFAULT_POOL, LineOrder, QueueDocument, QueueSpec, Reclaim, Stop
from mesos_gpu.policy.tenancy.las import rank_of
from mesos_gpu.simulate.chaos import shares
from mesos_gpu.simulate.chaos.account import Account, launch_of
from mesos_gpu.simulate.chaos.violation import Violation
from mesos_gpu.simulate.chaos.virtual import Agent

_MODELS_COST = 1  # of a model that the document does not name


def lineage(queue: str) -> Iterator[str]:
    """A queue and all above it, itself first."""
    while queue:
        yield queue
        queue = queue.rpartition("/")[0]


def most(spec: QueueSpec) -> int | None:
    """Thousandths of cost that a queue may hold; None: as much as there is."""
    limits = [spec.limit_gpus[DEFAULT_POOL]] if DEFAULT_POOL in spec.limit_gpus else []
    if DEFAULT_POOL in spec.borrow_limit_gpus:
        limits.append(owed(spec) + spec.borrow_limit_gpus[DEFAULT_POOL])
    return min(limits, default=None)


def owed(spec: QueueSpec) -> int:
    """Thousandths of cost that a queue is guaranteed."""
    guarantee = spec.guarantee_gpus.get(DEFAULT_POOL)
    return guarantee.milli if guarantee else 0


def dearest(account: Account, spec: JobSpec) -> int:
    """Thousandths of cost that a job takes at most, by the models that it may get."""
    costs = account.queues.gpu_cost
    there = {gpu.model for agent in account.mesos.agents.values() for gpu in agent.gpus}
    able = there & set(spec.gpu_model) if spec.gpu_model else there
    return spec.gpu_milli_in_all * max((costs.get(model, _MODELS_COST) for model in able), default=1)


def may_start(account: Account, job: Job) -> bool:
    """Whether its queues let a job start one day, whatever others do."""
    document, cost = account.queues, dearest(account, job.spec)
    if not document.version or not cost:
        return True
    specs = [document.queues[path] for path in lineage(job.spec.queue) if path in document.queues]
    if any(cost > limit for limit in map(most, specs) if limit is not None):
        return False
    shapes = any(guarantee.shapes for spec in specs for guarantee in spec.guarantee_gpus.values())
    tops = sum(owed(spec) for path, spec in document.queues.items() if "/" not in path)
    sure = not shapes and tops <= _capacity(account)  # else guarantees are scaled, or in pieces
    return job.spec.preemptible or (sure and bool(specs) and cost <= owed(specs[0]))


def _capacity(account: Account) -> int:
    """Thousandths of cost of all GPUs."""
    costs = account.queues.gpu_cost
    gpus = (gpu for agent in account.mesos.agents.values() for gpu in agent.gpus)
    return sum(WHOLE * costs.get(gpu.model, _MODELS_COST) for gpu in gpus)


# --- limits


def limited(account: Account, task: Task, job_id: JobId, now: float) -> None:
    """Check that no queue at or above a job's holds more than it may, with what this task is to have."""
    document = account.queues
    if not document.version or not task.gpus:
        return
    for path in lineage(account.disk.jobs[job_id].spec.queue):
        limit = most(document.queues[path]) if path in document.queues else None
        if limit is not None and (held := _held(account, path, now)) > limit:
            words = f"{path} may hold {limit} thousandths, and holds {held} with {task.id}"
            raise Violation("no queue is over its limit at any level", words, task.id)


def _held(account: Account, path: str, now: float) -> int:
    return sum(
        _cost(account, task)
        for job_id in account.launches
        if job_id in account.disk.jobs and path in lineage(account.disk.jobs[job_id].spec.queue)
        for task_id in account.latest(job_id)
        if not account.words[task_id].ended and not account.given_up(task_id, now)
        for task in (account.disk.tasks[task_id],)
    )


def _cost(account: Account, task: Task) -> int:
    """Thousandths of cost that a task is charged: of the GPUs that it has, not of those that it asked for."""
    assert task.job_id is not None, "monitors are charged to nobody"
    milli = shares.counted_milli(account, task, account.disk.jobs[task.job_id].spec)
    costs = account.queues.gpu_cost
    models = [gpu.model for agent in _agents(account, task) for gpu in agent.gpus if gpu.id in task.gpus]
    return milli * max((costs.get(model, _MODELS_COST) for model in models), default=1)


def _agents(account: Account, task: Task) -> list[Agent]:
    return [agent for agent in account.mesos.agents.values() if agent.hostname == task.hostname]


# --- stops


def allowed(account: Account, job: Job, other: Job, now: float) -> bool:
    """Whether a job that runs may be stopped for one that waits.

    Raises:
        Violation: It has a seat in what its queue is guaranteed.
    """
    document = account.queues
    if job.spec.queue == other.spec.queue and (
        job.priority < other.priority or _las(account, job, other, now)
    ):
        return True
    if not document.version:
        return job.priority < other.priority
    if job.seat is not None and job.spec.queue == other.spec.queue and _needs_room_together(other):
        return True  # it moves for one of its own queue
    if job.seat is not None:
        words = f"{job.id} of {job.spec.queue} has {job.seat}, and is stopped for {other.id} of {other.spec.queue}"
        raise Violation("nobody within a guarantee is reclaimed", words, job.id, other.id)
    if _fenced(document, job.spec.queue, other.spec.queue):
        return False
    return _reclaims(document, job, other)


def _needs_room_together(job: Job) -> bool:
    """Whether GPUs that are free in pieces may be of no use to a job."""
    return job.spec.gpus > 1 or job.spec.tasks > 1


def _las(account: Account, job: Job, other: Job, now: float) -> bool:
    """Whether both are in a queue that orders by attained service, and who waits comes first."""
    if _inherited(account.queues, job.spec.queue, "order") is not LineOrder.LAS:
        return False
    members = [account.disk.tasks[task_id] for task_id in account.latest(job.id)]
    return rank_of(other, (), now) < rank_of(job, members, now)


def _inherited(document: QueueDocument, queue: str, name: str) -> object:
    """What a queue has of a field, or the nearest above it that says something of it; None: none does."""
    specs = (document.queues[path] for path in lineage(queue) if path in document.queues)
    return next((value for spec in specs if (value := getattr(spec, name)) is not None), None)


def _fenced(document: QueueDocument, queue: str, other: str) -> bool:
    """Whether one of two queues is within a fence that the other is outside of."""
    fences = {path for path, spec in document.queues.items() if spec.fence}
    return bool(fences & (set(lineage(queue)) ^ set(lineage(other))))


def _reclaims(document: QueueDocument, job: Job, other: Job) -> bool:
    """Whether the queue of a waiting job takes GPUs from that borrower at all."""
    whose = _inherited(document, other.spec.queue, "reclaim") or Reclaim.ANY
    lower = job.priority < other.priority
    return whose is Reclaim.ANY or (whose is Reclaim.LOWER and lower)


def stopped(account: Account, task: Task, now: float) -> JobId | None:
    """Judge a task that is told to end for another job, as it is saved.

    Returns:
        That job; None: it was judged before, or is not told so.

    Raises:
        Violation: It may not be, or not so soon.
    """
    if task.preempted_for is None or task.ended or task.job_id not in account.disk.jobs:
        return None
    latest = [each for each in account.latest(task.job_id) if launch_of(each) == launch_of(task.id)]
    members = [account.disk.tasks[each] for each in latest if each in account.disk.tasks]
    if any(each.preempted_for == task.preempted_for for each in members):
        return None
    job, other = account.disk.jobs[task.job_id], account.disk.jobs.get(task.preempted_for)
    reason = other is not None and other.state is JobState.PENDING and job.spec.preemptible
    if other is None or not (reason and account.settings.preemption and allowed(account, job, other, now)):
        words = f"{task.id} of {job.spec.queue} makes room for {other.id if other else 'nobody'}"
        raise Violation("nothing is ended without a reason", words, task.id)
    _has_notice(account, task, job, members, now)
    return other.id


def _has_notice(account: Account, task: Task, job: Job, members: list[Task], now: float) -> None:
    notice = task.notice
    if notice is None or not notice.stands:
        raise Violation("every stop had its notice", f"{task.id} is stopped, with {notice}", task.id)
    given_s = _inherited(account.queues, job.spec.queue, "notice_s")
    wanted = [each for each in (given_s, job.spec.notice_s) if isinstance(each, int | float)]
    if notice.at < now or not wanted or not any(account.words[each.id].running for each in members):
        return  # of two notices the earlier end counts; who does not run yet has nothing to lose
    if notice.until - now < min(wanted) - 0.001:
        words = f"{task.id} is told to end in {notice.until - now:g} s, and is owed {min(wanted):g} s"
        raise Violation("every stop had its notice", words, task.id)


def ends(account: Account, task: Task, job: Job, now: float) -> bool:
    """Whether a task that is ended may be, as its notice has passed and still has its reason."""
    notice = task.notice
    if notice is None or not notice.stands or now < notice.until:
        return False
    if task.preempted_for is not None:
        return True
    specs = (account.queues.queues.get(path) for path in lineage(job.spec.queue))
    drained = any(spec is not None and spec.stop is Stop.DRAIN for spec in specs)
    return notice.reason is NoticeReason.DRAIN and (drained or _is_taken_out(account, job))


def _is_taken_out(account: Account, job: Job) -> bool:
    """Whether a place of one of its tasks is drained by a moment: who does not run before has no notice."""
    tasks = [account.disk.tasks[task_id] for task_id in account.latest(job.id)]
    places = {(Target.NODE, task.hostname) for task in tasks}
    places |= {(Target.GPU, str(gpu_id)) for task in tasks for gpu_id in task.gpus}
    return any(account.drained.get(place) is not None for place in places)


def seated(account: Account) -> None:
    """Check that seats are no more than what is guaranteed, at each queue that gives some."""
    document, taken = account.queues, Counter[str]()
    for job in account.disk.jobs.values():
        if job.seat is not None:
            taken[job.seat.queue] += job.seat.milli * job.spec.tasks
    for path, milli in taken.items():
        spec = document.queues.get(path)
        below = sum(owed(each) for name, each in document.queues.items() if name.rpartition("/")[0] == path)
        own = owed(spec) - below if spec is not None else 0
        if milli > own:
            words = f"of {path}, which has {own} thousandths to give, {milli} are taken"
            raise Violation("seats are what is guaranteed", words)


def room_is_made(account: Account, takers: set[JobId], now: float) -> None:
    """Check of each job for which others were told to end that it has room on real nodes when they have."""
    for job_id in takers:
        job = account.disk.jobs.get(job_id)
        if job is None or job.state is not JobState.PENDING or job.spec.is_share or not job.spec.gpus:
            continue
        slots = sum(_slots(account, agent, job) for agent in account.mesos.agents.values())
        if slots < job.spec.tasks:
            words = f"others end for {job.id}, and then {slots} of its {job.spec.tasks} tasks fit"
            raise Violation("every stop helps somebody", words, job.id)


def _slots(account: Account, agent: Agent, job: Job) -> int:
    """How many tasks of a job fit on an agent when all have ended that end: by its GPUs alone, so at most so many."""
    stays = {
        gpu_id
        for run in account.mesos.alive()
        if run.agent is agent and not _ends(account, run.id, run.to_be_killed)
        for gpu_id in run.item.task.gpus
    }
    models = set(job.spec.gpu_model)
    able = [gpu for gpu in agent.gpus if gpu.id not in stays and (not models or gpu.model in models)]
    return len(able) // job.spec.gpus


def _ends(account: Account, task_id: TaskId, is_killed: bool) -> bool:
    task = account.disk.tasks.get(task_id)
    if task is None or is_killed or task.covers is not None or account.words[task_id].ended:
        return True
    if task.evicted or task.preempted_for is not None or (task.job_id in account.user_killed):
        return True
    latest = account.launches.get(task.job_id, [])[-1:] if task.job_id else []
    return bool(latest) and launch_of(latest[0]) != launch_of(task_id)  # it was given up
