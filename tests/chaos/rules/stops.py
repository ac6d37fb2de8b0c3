"""Rules of preemption: which jobs may be preempted, after which notice, for which jobs, and who gets the room."""

from collections import Counter
from collections.abc import Iterable

from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.shares import standing_of
from mesos_gpu.model.ids import GpuId, JobId, TaskId
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import OnEmpty, QueueOrder, Reclaim, Stop
from mesos_gpu.policy.tenancy.las import rank_of
from tests.chaos.account import Account, launch_of
from tests.chaos.rules import bookings, idle, tree
from tests.chaos.times.hours import in_force
from tests.chaos.violation import Violation
from tests.chaos.virtual import PORTS, Agent

_LATE_S = 120.0  # seconds for which the engine may believe that another framework has freed GPUs
_CLOCKS_S = 0.001  # precision of times in seconds
_FLAP_S = 60.0
_EXECUTOR = 0.2, 128  # CPUs and MiB of an executor at most


def allowed(account: Account, job: Job, other: Job, now: float) -> bool:
    """Return whether a running job may be preempted for a waiting one.

    Raises:
        Violation: The running job is within a guarantee, or has not reached its minimum run time.
    """
    document = account.queues
    if job.spec.queue == other.spec.queue and (
        job.priority < other.priority or _las(account, job, other, now)
    ):
        return True
    if document.is_empty:
        return job.priority < other.priority
    if _is_ahead(other, now):
        _is_owed_then(account, other)
    elif job.seat is not None and not _moves(job):
        words = f"{job.id} of {job.spec.queue} has {job.seat}, and is stopped for {other.id} of {other.spec.queue}"
        raise Violation("no job within a guarantee is reclaimed", words, job.id, other.id)
    if tree.fenced(document, job.spec.queue, other.spec.queue):
        return False
    _is_old_enough(account, job, other, now)
    whose = tree.inherited(document, other.spec.queue, "reclaim") or Reclaim.ANY
    lower = job.priority < other.priority
    return whose is Reclaim.ANY or (whose is Reclaim.LOWER and lower)


def _is_ahead(job: Job, now: float) -> bool:
    """Return whether room is made for a job for a later time, at which hours change."""
    return job.room_made_at is not None and job.room_made_at > now + _CLOCKS_S


def _is_owed_then(account: Account, job: Job) -> None:
    """Check that hours will change, and that the queue of a job, or one above it, has a sufficient guarantee then."""
    at = job.room_made_at or 0.0
    before, then = (in_force(account.written, each) for each in (at - 1, at))
    owed = any(
        0 < tree.dearest(account, job.spec, pool) <= tree.owed(spec, pool)
        for pool in tree.pools_for(then, job.spec)
        for spec in tree.specs_of(then, job.spec.queue)
    )
    if before == then or not owed:
        words = f"others end for {job.id} of {job.spec.queue} at {at}: hours change: {before != then}, owed: {owed}"
        raise Violation(
            "a job gets notice before hours change only for a job with a guarantee then", words, job.id
        )


def _las(account: Account, job: Job, other: Job, now: float) -> bool:
    """Return whether a queue orders two jobs by attained service, and the waiting one comes first."""
    if tree.inherited(account.queues, job.spec.queue, "order") is not QueueOrder.LAS:
        return False
    members, others = ([account.disk.tasks[i] for i in account.latest(each.id)] for each in (job, other))
    return rank_of(other, () if other.state is JobState.PENDING else others, now) < rank_of(job, members, now)


def _is_old_enough(account: Account, job: Job, other: Job, now: float) -> None:
    least = tree.runtime(account.queues, other.spec.queue, job.spec.queue)
    ahead = _is_ahead(other, now)  # the job ends when hours have changed
    rebalances = borrows(account, other) and not _moves(job) and not ahead
    least_s = least.rebalance_s if rebalances else least.reclaim_s
    ran_s = 0.0 if job.started_at is None else (other.room_made_at or now if ahead else now) - job.started_at
    if ran_s < least_s - _CLOCKS_S:
        words = f"{job.id} is stopped for {other.id} after {ran_s:g} s, and is spared for {least_s:g} s"
        raise Violation("no job is stopped before its minimum run time", words, job.id, other.id)


def borrows(account: Account, job: Job) -> bool:
    """Return whether a job certainly borrows: it runs without guaranteed admission, or no guarantee has room for it."""
    if job.state is not JobState.PENDING:
        return job.seat is None
    document, taken = account.queues, Counter[tuple[str, str]]()
    for each in account.disk.jobs.values():
        if each.seat is not None:
            taken[each.seat.queue, each.seat.pool] += each.seat.milli * each.spec.tasks
    for pool in tree.pools_for(document, job.spec):
        cost = tree.dearest(account, job.spec, pool)
        for path in tree.lineage(job.spec.queue):
            spec = document.queues.get(path)
            if spec is not None and cost and tree.owed(spec, pool) - taken[path, pool] >= cost:
                return False
    return True


def stopped(account: Account, task: Task, now: float) -> JobId | None:
    """Check a task that gets a notice to end for another job, when it is saved.

    Returns:
        The other job, or None without one, or if the notice was checked before.

    Raises:
        Violation: The task may not be preempted, or not so soon.
    """
    if task.preempted_for is None or task.ended or task.job_id not in account.disk.jobs:
        return None
    if _is_returned(task):
        return None  # rules in `idle` check it, within a guarantee or not
    latest = [each for each in account.latest(task.job_id) if launch_of(each) == launch_of(task.id)]
    if not latest:
        words = f"{task.id} is to make room for {task.preempted_for}"
        raise Violation("no job is launched and stopped at once", words, task.id, task.preempted_for)
    members = [account.disk.tasks[each] for each in latest if each in account.disk.tasks]
    if any(each.preempted_for == task.preempted_for for each in members):
        return None
    job, other = account.disk.jobs[task.job_id], account.disk.jobs.get(task.preempted_for)
    reason = other is not None and _needs_room(account, other) and job.spec.preemptible
    if other is None or not (
        reason and account.settings.queue.preemption and allowed(account, job, other, now)
    ):
        words = f"{task.id} of {job.spec.queue} makes room for {other.id if other else 'no job'}"
        raise Violation("nothing is ended without a reason", words, task.id)
    if (booking := bookings.used(account, job)) is not None:
        words = f"{task.id} is on {booking.id}, and makes room for {other.id}"
        raise Violation("no job on a booking is stopped for others", words, task.id, booking.id)
    _has_notice(account, task, job, members, now)
    _does_not_flap(account, job, other, now)
    return other.id


def _is_returned(task: Task) -> bool:
    """Return whether a task has a notice for idle GPUs."""
    return task.notice is not None and task.notice.stands and task.notice.reason is NoticeReason.IDLE


def _does_not_flap(account: Account, job: Job, other: Job, now: float) -> None:
    """Check that a job does not preempt the job for which it was preempted just before, with unchanged queues."""
    account.stops[job.id, other.id] = now, account.queues
    then, document = account.stops.get((other.id, job.id), (0.0, None))
    if document is account.queues and 0 <= now - then < _FLAP_S and not _is_ahead(other, now):
        words = f"{job.id} makes room for {other.id} {now - then:g} s after it was the other way round"
        raise Violation("no job takes back what it has just given", words, job.id, other.id)


def _needs_room(account: Account, job: Job) -> bool:
    """Return whether others may end for a job: it waits, or it is within a guarantee and moves to their place."""
    if job.state is JobState.PENDING:
        return True
    told = (account.disk.tasks[task_id].notice for task_id in account.latest(job.id))
    return job.seat is not None and _moves(job) and any(each is not None and each.stands for each in told)


def _has_notice(account: Account, task: Task, job: Job, members: list[Task], now: float) -> None:
    notice = task.notice
    if notice is None or not notice.stands:
        raise Violation("every stop had its notice", f"{task.id} is stopped, with {notice}", task.id)
    given_s = tree.inherited(account.queues, job.spec.queue, "notice_s")
    wanted = [each for each in (given_s, job.spec.notice_s) if isinstance(each, int | float)]
    if notice.at < now or not wanted or not any(account.words[each.id].running for each in members):
        return  # the earlier end of two notices counts, and a task that does not run yet loses nothing
    other = account.disk.jobs.get(task.preempted_for) if task.preempted_for else None
    if other is not None and _is_ahead(other, now) and notice.until < (other.room_made_at or 0.0) - _CLOCKS_S:
        words = f"{task.id} is to end at {notice.until}, and hours change at {other.room_made_at}"
        raise Violation("no job is ended before hours change", words, task.id)
    if notice.until - now < min(wanted) - _CLOCKS_S:
        words = f"{task.id} is to end in {notice.until - now:g} s, and is owed {min(wanted):g} s"
        raise Violation("every stop had its notice", words, task.id)


def ends(account: Account, task: Task, job: Job, now: float) -> bool:
    """Return whether a task is rightly ended: its notice is over and still has its reason."""
    notice = task.notice
    if notice is None or not notice.stands or now < notice.until:
        return False
    if notice.reason is NoticeReason.CALENDAR or bookings.ends_at_once(account, job, now):
        return True  # rules in `bookings` have checked that notice
    if notice.reason is NoticeReason.IDLE:
        return idle.ended(account, task, job, now)
    if task.preempted_for is not None:
        other = account.disk.jobs.get(task.preempted_for)
        return other is not None and _needs_room(account, other)
    if notice.reason is NoticeReason.BUDGET:
        return any(budget.on_empty is OnEmpty.STOP for budget in tree.budgets_for(account.queues, job))
    drained = any(spec.stop is Stop.DRAIN for spec in tree.specs_of(account.queues, job.spec.queue))
    return notice.reason is NoticeReason.DRAIN and (drained or _is_taken_out(account, job))


def _is_taken_out(account: Account, job: Job) -> bool:
    """Return whether a host or card of a job is drained with a deadline."""
    tasks = [account.disk.tasks[task_id] for task_id in account.latest(job.id)]
    places = {(Target.NODE, task.hostname) for task in tasks}
    places |= {(Target.GPU, str(gpu_id)) for task in tasks for gpu_id in task.gpus}
    return any(account.drained.get(place) is not None for place in places)


# --- jobs that gain room


def room_is_made(account: Account, takers: set[JobId], now: float) -> None:
    """Check that each job for which others end has room on nodes then, and that borrowers stay below donors."""
    for job_id in takers:
        job = account.disk.jobs.get(job_id)
        if job is None or not _needs_room(account, job) or job.spec.is_share or not job.spec.gpus:
            continue
        agents = account.mesos.agents.values()
        there = agents if job.state is JobState.PENDING else [a for a in agents if a.id in job.room_on]
        by_pool = Counter[str]()
        for agent in there:
            by_pool[tree.pool_of(account.queues, agent)] += _slots(account, agent, job)
        apart = job.spec.tasks > 1 and tree.is_ordered(account.queues, job.spec.queue)
        slots = max(by_pool.values(), default=0) if apart else by_pool.total()
        if slots < job.spec.tasks:
            words = f"others end for {job.id}, and then {slots} of its {job.spec.tasks} tasks fit"
            raise Violation("every stop helps a job", words, job.id)
        waits = job.state is JobState.PENDING and not _is_ahead(job, now)
        if waits and len(takers) == 1 and not account.queues.is_empty and borrows(account, job):
            _stays_below(account, job, now)


def _slots(account: Account, agent: Agent, job: Job) -> int:
    """Return an upper bound of the tasks of a job that fit on an agent after all due ends, by GPUs and ports alone."""
    staying = [
        run
        for run in account.mesos.alive()
        if run.agent is agent and not _ends(account, run.id, run.to_be_killed)
    ]
    stays = {gpu_id for run in staying for gpu_id in run.item.task.gpus}
    models = set(job.spec.gpu_model)
    able = [gpu for gpu in agent.gpus if gpu.id not in stays and (not models or gpu.model in models)]
    slots = len(able) // job.spec.gpus
    if job.spec.tasks == 1:
        return slots
    ports = len(PORTS) - sum(len(run.item.ports) for run in staying)
    return max(min(slots, ports), 0)


def _ends(account: Account, task_id: TaskId, is_killed: bool) -> bool:
    task = account.disk.tasks.get(task_id)
    if task is None or is_killed or task.covers is not None or account.words[task_id].ended:
        return True
    is_told = (
        task.notice is not None and task.notice.stands
    )  # of any reason, such as a drain, a budget or a time limit
    if task.evicted or is_told or task.preempted_for is not None or task.job_id in account.user_killed:
        return True
    latest = account.launches.get(task.job_id, [])[-1:] if task.job_id else []
    return bool(latest) and launch_of(latest[0]) != launch_of(task_id)  # the launch was given up


def _stays_below(account: Account, job: Job, now: float) -> None:
    """Check that a borrowing queue which preempts borrowers of another one keeps a smaller part of its fair share."""
    state = State.restored(now, account.disk.load())
    state.quota.hours_at = account.watch.at
    standing = standing_of(state, Settings.of("", ""), now)
    given = [
        each
        for each in _givers(account, now)
        if each.preempted_for == job.id and not _moves(_job(account, each)) and not _is_returned(each)
    ]
    mine = list(tree.lineage(job.spec.queue))
    for path, pool in {(_side(mine, account, each), tree.pool_where(account, each)) for each in given}:
        if not path:
            continue  # of its own queue, by priority
        giver = _held_soon(account, path, pool, now, but=job.id, most=True)
        own = next(each for each in reversed(mine) if each not in set(tree.lineage(path)))
        taker = _held_soon(account, own, pool, now, but=job.id, most=False)
        taker += tree.dearest(account, job.spec, pool)
        due, theirs = standing.due(own, pool), standing.due(path, pool)
        less = sum(
            tree.cost_of(account, each)
            for each in given
            if each.job_id and path in tree.lineage(account.disk.jobs[each.job_id].spec.queue)
        )
        if due and theirs and not taker * theirs < (giver - less) * due:
            words = f"{own} has {taker} of {due} with {job.id}, and {path} keeps {giver - less} of {theirs}"
            raise Violation("a borrower takes from no queue that has less then", words, job.id)


def _givers(account: Account, now: float) -> Iterable[Task]:
    for path in {each for each in account.queues.queues if "/" not in each}:
        yield from (each for each in tree.holding(account, path, now) if each.preempted_for is not None)


def _moves(job: Job | None) -> bool:
    """Return whether a preempted job has a place elsewhere, so that its queue loses nothing."""
    return job is not None and bool(job.room_on) and job.room_made_at is not None


def _job(account: Account, task: Task) -> Job | None:
    return account.disk.jobs.get(task.job_id) if task.job_id else None


def _side(mine: list[str], account: Account, task: Task) -> str:
    """Return the ancestor of a task's queue that is a sibling of one of some queues; empty for the same leaf."""
    assert task.job_id is not None, "only jobs make room"
    theirs = list(tree.lineage(account.disk.jobs[task.job_id].spec.queue))
    return next((path for path in reversed(theirs) if path not in mine), "")


def _held_soon(account: Account, path: str, pool: str, now: float, *, but: JobId, most: bool) -> int:
    """Return a bound of what a queue holds of a pool when all jobs but one have the room that was made for them.

    `most` chooses the upper or the lower bound: which pool room in several pools is taken from is unknown.
    """
    tasks = [each for each in tree.holding(account, path, now) if tree.pool_where(account, each) == pool]
    stays = (each for each in tasks if each.preempted_for in (None, but) or _moves(_job(account, each)))
    held = sum(tree.cost_of(account, each) for each in stays)
    for job in account.disk.jobs.values():
        waits = job.state is JobState.PENDING and job.room_made_at is not None and job.id != but
        room = {tree.pool_of(account.queues, a) for i in job.room_on if (a := account.mesos.agents.get(i))}
        is_here = (not room or pool in room) if most else room == {pool}
        if waits and is_here and path in tree.lineage(job.spec.queue):
            held += tree.dearest(account, job.spec, pool)
    return held


# --- freed room


def freed_is_kept(account: Account, launched: set[JobId], now: float) -> None:
    """Check that launches do not take the room of a job for which others were preempted."""
    for agent in account.mesos.agents.values():
        if agent.others:
            account.lent[agent.hostname] = now
    for job in list(account.disk.jobs.values()) if launched else ():
        if not job.room_on or job.state is not JobState.PENDING or job.id in launched or is_choosy(job):
            continue
        if job.room_made_at is None or job.room_made_at >= now:
            continue  # room of this batch
        agents = [a for i in job.room_on if (a := account.mesos.agents.get(i)) is not None]
        if any(now - account.lent.get(agent.hostname, -_LATE_S) < _LATE_S for agent in agents):
            continue
        if any(_may_be_forgotten(account, agent, job.room_made_at, now) for agent in agents):
            continue
        others = {each for each in launched if not _was_before(account, account.disk.jobs[each], job)}
        before, after = (
            sum(_free(account, agent, job, but, now) for agent in agents) for but in (others, set[JobId]())
        )
        before -= bookings.slots_taken_soon(account, job, now)
        if before >= job.spec.tasks > after and not _is_at_limit(account, job, agents, launched, now):
            words = f"{job.id} had room for {before} tasks on {job.room_on}, and {after} when others were launched"
            raise Violation("freed room is kept for the job it was freed for", words, job.id, *launched)


def _may_be_forgotten(account: Account, agent: Agent, room_made_at: float, now: float) -> bool:
    """Return whether the engine may believe that another framework has the GPUs that an agent does not offer.

    That is so if they were last offered too long ago, or before the room was made.
    """
    since = account.unseen_since.get(agent.id, now)
    known_s = account.settings.mesos.offer_return_s / 2  # for this time the engine expects the offer
    return now - since > known_s or since <= room_made_at


def _was_before(account: Account, other: Job, job: Job) -> bool:
    """Return whether another job has a right to a shared node: a booking, or room that was made for it before."""
    if bookings.used(account, other) is not None:
        return True
    if other.room_made_at is None or job.room_made_at is None or other.room_made_at > job.room_made_at:
        return False
    return bool(set(other.room_on) & set(job.room_on))


def _is_at_limit(account: Account, job: Job, agents: list[Agent], launched: set[JobId], now: float) -> bool:
    """Return whether limits of queues or lend limits keep a job from starting, without the launches of this batch.

    They may be newer than the plan of the preemption.
    """
    document = account.queues
    for pool in {tree.pool_of(document, agent) for agent in agents} if document.version else ():
        cost = tree.dearest(account, job.spec, pool)
        for path in tree.lineage(job.spec.queue):
            limit = tree.most(document.queues[path], pool) if path in document.queues else None
            tasks = tree.holding(account, path, now) if limit is not None else []
            held = sum(
                tree.cost_of(account, each)
                for each in tasks
                if each.job_id not in launched and tree.pool_where(account, each) == pool
            )
            if limit is not None and held + cost > limit:
                return True
        free, kept = tree.beside_lenders(account, job.spec.queue, pool, now, launched)
        if kept and free < kept + cost:
            return True
    return False


def is_choosy(job: Job) -> bool:
    """Return whether GPUs alone do not say where a job has room."""
    spec = job.spec
    return bool(spec.is_share or spec.constraints or spec.away or spec.app or job.min_driver)


def _free(account: Account, agent: Agent, job: Job, but: set[JobId], now: float) -> int:
    """Return how many tasks of a job have GPUs on an agent, as far as the engine knows, without jobs `but`."""
    runs = (run for run in account.mesos.alive() if run.agent is agent)
    held = {gpu_id for run in runs for gpu_id in run.item.task.gpus}
    return _able(account, agent, job, but, held, now) // job.spec.gpus


def has_room_without(
    account: Account, agent: Agent, job: Job, beside: Iterable[Job], ended: set[JobId], now: float
) -> bool:
    """Return whether an agent has room for a job of one task and for all tasks of others, when some jobs have ended."""
    stays = [run.item.task for run in account.mesos.alive() if run.agent is agent and run.job_id not in ended]
    held = {gpu_id for task in stays for gpu_id in (*task.gpus, *filter(None, (task.covers,)))}
    specs = [job.spec, *(each.spec for each in beside for _ in range(each.spec.tasks))]
    cpus, mem = (
        sum(each.cpus + _EXECUTOR[0] for each in specs),
        sum(each.mem_mib + _EXECUTOR[1] for each in specs),
    )
    free = [agent.free, *(amounts for there, amounts in account.mesos.offers.values() if there is agent)]
    if sum(each["cpus"] for each in free) < cpus or sum(each["mem"] for each in free) < mem or agent.others:
        return False
    return _able(account, agent, job, ended, held, now) >= sum(each.gpus for each in specs)


def _able(account: Account, agent: Agent, job: Job, but: set[JobId], held: set[GpuId], now: float) -> int:
    """Return how many GPUs of an agent a job could have beside those that are held, as the engine knows of them."""
    told = account.agents.get(agent.id)
    if told is None or agent.cut or (Target.NODE, agent.hostname) in account.drained:
        return 0
    if now - told.at > account.settings.programs.report_stale_s:
        return 0
    held.update(card.id for card in account.disk.cards.values() if card.reset is not None)
    held.update(bookings.kept_from(account, job))
    for task in account.disk.tasks.values():
        if task.hostname == agent.hostname and not task.ended and task.job_id not in but:
            held.update(task.gpus)
            if task.covers is not None and task.state is TaskState.UNREACHABLE:
                held.add(task.covers)  # until the task is given up
    able = [
        gpu
        for gpu in agent.gpus
        if gpu.id not in held
        and told.health.get(gpu.id) is Health.OK
        and (Target.GPU, gpu.id) not in account.drained
        and (not job.spec.gpu_model or gpu.model in job.spec.gpu_model)
    ]
    return len(able)
