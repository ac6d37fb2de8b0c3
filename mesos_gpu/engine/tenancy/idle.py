"""Idle GPUs of jobs: warning, notice and end by the rules of their class or queue.

The input is what monitors report of tasks. Time between two reports that do not follow each other does not count:
while a monitor or the scheduler is away, idle time stands still. The idle time of a job is saved when its state
changes, and at intervals between.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import Final

from mesos_gpu.engine import events as ev
from mesos_gpu.engine.indexes.work import begun, counted
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tasks import notices as words
from mesos_gpu.engine.tasks.evictions import running
from mesos_gpu.engine.tenancy import notices
from mesos_gpu.engine.turn import Turn
from mesos_gpu.errors import Conflict, NotAccepted, NotFound
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.tasks.event import EventKind
from mesos_gpu.model.tasks.idle import Idleness, IdleState
from mesos_gpu.model.tasks.notice import Notice, NoticeReason
from mesos_gpu.model.tasks.task import Task, TaskState
from mesos_gpu.model.tenancy import Idle, IdlePolicy
from mesos_gpu.model.words import clock
from mesos_gpu.policy.admission.limits import class_of
from mesos_gpu.policy.tenancy import idle as policy
from mesos_gpu.policy.tenancy.idle import Used
from mesos_gpu.policy.tenancy.tree import Tree

OF_IDLE: Final = (NoticeReason.IDLE,)
_PARTS: Final = 10  # number of saves of the idle time before the warning, and again before the end
_TOLD: Final = (IdleState.WARNED, IdleState.NOTICE)


def rules_of(tree: Tree, job: Job) -> Idle:
    """Return the rules on idle GPUs for a job: those of its class, else of its queue."""
    rules = _declared(tree, job.spec.job_class, job.spec.queue)
    return policy.rules_for(rules, job.spec.labels, is_instance=job.app_version is not None)


@lru_cache(maxsize=1024)
def _declared(tree: Tree, job_class: str | None, queue: str) -> Idle:
    """Return the rules of a class, else of a queue. Cached, as each report needs them for each GPU."""
    job_class_spec, leaf = class_of(tree, job_class), tree.queues.get(tree.leaf_of(queue))
    own = job_class_spec.idle if job_class_spec is not None else None
    return own or (leaf.resolved.idle if leaf is not None else Idle())


def idle_of(state: State, job: Job, now: float) -> tuple[Idleness, Idle] | None:
    """Return the shown idleness of a job and its rules; None if there is nothing to show."""
    idleness, tree = state.work.idlenesses.get(job.id), state.quota.tree
    if idleness is None:
        return None
    if idleness.keep_until is not None and (now >= idleness.keep_until or job.state.ended):
        idleness = replace(idleness, keep_until=None, kept_by="")
    if idleness.launch != job.launches or (job.state.ended and idleness.state is not IdleState.RETURNED):
        idleness = policy.forgotten(idleness, idleness.since)
    if idleness.state is IdleState.ACTIVE and idleness.keep_until is None:
        return None
    return idleness, rules_of(tree, job)


def on_tick(turn: Turn) -> None:
    """Evaluate what monitors have reported since the last tick, and end jobs whose notice has run out."""
    state, tree = turn.state, turn.state.quota.tree
    work = state.gpus.gpu_work
    reported, work.reported = sorted(work.reported), set()
    if tree.is_flat:
        work.counts.clear()
        return
    looked: dict[JobId, None] = {}
    for agent_id in reported:
        node = state.cluster.nodes.get(agent_id)
        if node is not None:
            _take_in(turn, tree, node, looked)
    for job_id in looked:
        _look(turn, tree, state.work.jobs[job_id])
    for task_id in state.work.restless.in_order(state.work.restless.tasks):
        task = state.work.tasks[task_id]
        notice, job = task.notice, running(turn, task)
        if notice is not None and notice.stands and notice.reason is NoticeReason.IDLE and job is not None:
            _look_after(turn, tree, job, notice)


def _take_in(turn: Turn, tree: Tree, node: Node, looked: dict[JobId, None]) -> None:
    """Add a node's latest report to the counts of its tasks; add jobs with a full window to `looked`."""
    state = turn.state
    for use in node.inventory.task_uses if node.inventory else ():
        task = state.work.tasks.get(use.task_id)
        if task is None or task.agent_id != node.id or task.ended or use.gpu_id not in task.gpus:
            continue
        job = state.work.jobs.get(task.job_id) if task.job_id is not None else None
        if job is None:
            continue
        counts = state.gpus.gpu_work.counts.setdefault(task.id, {})
        count = counts[use.gpu_id] = counted(counts.get(use.gpu_id), use)
        if count.elapsed_ms >= _window_ms(turn, _declared(tree, job.spec.job_class, job.spec.queue)):
            looked.setdefault(job.id)


def _look(turn: Turn, tree: Tree, job: Job) -> None:
    """Judge a job once the measured window of each of its GPUs is full, and begin the next window."""
    members = _members(turn, job)
    rules = rules_of(tree, job)
    window_ms = _window_ms(turn, rules)
    counts = [turn.state.gpus.gpu_work.counts.get(task.id, {}) for task in members]
    cards = [of_task.get(gpu) for task, of_task in zip(members, counts, strict=True) for gpu in task.gpus]
    if not cards or any(card is None or card.elapsed_ms < window_ms for card in cards):
        return  # too little is known of some GPUs: the idle time stands still
    used = [Used(card.elapsed_ms, card.seen_ms, card.busy_ms) for card in cards if card is not None]
    for of_task in counts:
        of_task.update({gpu: begun(count) for gpu, count in of_task.items()})
    begun_at = max(task.started_at or inf for task in members) + rules.start_grace_s
    length_ms = min(card.elapsed_ms for card in used)
    if turn.now - length_ms / 1000 >= begun_at:
        _judge(turn, job, rules, policy.verdict(used, rules), length_ms)


def _window_ms(turn: Turn, rules: Idle) -> float:
    """Return the length of the window over which idleness is judged, in milliseconds."""
    return policy.window_s(rules, turn.settings.programs.report_interval_s) * 1000


def _members(turn: Turn, job: Job) -> Sequence[Task]:
    """Return the tasks of a job that runs as a whole and is not being ended; otherwise none."""
    members = [task for task in turn.state.work.round_of(job) if not task.ended]
    if not members or running(turn, members[0]) is None:
        return ()
    return members if all(task.state is TaskState.RUNNING for task in members) else ()


def known_of(turn: Turn, job: Job) -> Idleness:
    """Return the idleness of a job; of an earlier launch only the time until which the job is kept."""
    idleness = turn.state.work.idlenesses.get(job.id)
    if idleness is None:
        return Idleness(job.id, job.launches, since=turn.now)
    if idleness.launch != job.launches:
        idleness = policy.forgotten(replace(idleness, launch=job.launches), turn.now)
    return idleness


def _judge(turn: Turn, job: Job, rules: Idle, verdict: policy.Verdict, ms: int) -> None:
    """Advance the idleness of a job by one window, and warn, notify or recall as its rules say.

    Args:
        job: Job that runs.
        rules: Rules on idle GPUs.
        verdict: Result of the window.
        ms: Length of the window in milliseconds.
    """
    idleness = known_of(turn, job)
    if idleness.state is IdleState.NOTICE and notices.stands(turn.state, job) is None:
        idleness = policy.warned(idleness, turn.now)  # the job that was to get the GPUs no longer needs them
    if idleness.keep_until is not None:
        if turn.now >= idleness.keep_until:
            remember(turn, _keep_ended(turn, job, idleness), rules)
        return
    new = policy.advance(idleness, rules, verdict, ms, turn.now)
    if rules.policy is IdlePolicy.REPORT and new.state in _TOLD:
        new = replace(new, state=IdleState.SUSPECT, since=turn.now)
    lead = _lead_s(turn, job, rules)
    if idleness.state in _TOLD and new.state not in _TOLD:
        _call_off(
            turn,
            job,
            "its GPUs are at work again"
            if new.state is IdleState.ACTIVE
            else "it is no longer warned for idle GPUs",
        )
    elif new.state is IdleState.WARNED and idleness.state is not IdleState.WARNED:
        if notices.stands(turn.state, job) is None:
            _warn(turn, job, rules)
        else:  # another notice ends it; the warning follows if that is recalled
            new = replace(new, state=IdleState.SUSPECT, since=idleness.since)
    elif (
        rules.policy is IdlePolicy.ALWAYS
        and verdict in (policy.Verdict.IDLE, policy.Verdict.PAUSED)
        and policy.is_due(new, rules, lead)
    ):
        new = give(turn, job, new, rules, lead)
    remember(turn, new, rules)


def is_pressing(state: State) -> bool:
    """Return whether any job was warned, so that its GPUs could go to a pending job."""
    return any(known.state is IdleState.WARNED for known in state.work.idlenesses.values())


def returnable(turn: Turn) -> dict[JobId, Job]:
    """Return the jobs that can be ended now for pending jobs: warned long enough ago, and known to be idle."""
    state, tree, jobs = turn.state, turn.state.quota.tree, dict[JobId, Job]()
    for idleness in state.work.idlenesses.values():
        job = state.work.jobs.get(idleness.job_id)
        if (
            idleness.state is IdleState.WARNED
            and job is not None
            and _is_returnable(turn, tree, job, idleness)
        ):
            jobs[job.id] = job
    return jobs


def _is_returnable(turn: Turn, tree: Tree, job: Job, known: Idleness) -> bool:
    """Return whether a job may be ended now: warned long ago, idle by a fresh report, and without a notice."""
    rules = rules_of(tree, job)
    if (
        rules.policy is not IdlePolicy.PRESSURE
        or known.launch != job.launches
        or known.keep_until is not None
    ):
        return False
    if not policy.is_due(known, rules, _lead_s(turn, job, rules)) or not _members(turn, job):
        return False
    window = policy.window_s(rules, turn.settings.programs.report_interval_s)
    return policy.is_fresh(known, turn.now, window) and notices.stands(turn.state, job) is None


def give_up(turn: Turn, job: Job, by: JobId) -> None:
    """Give a job with idle GPUs notice, so that a pending job gets them.

    Args:
        job: Running job that `returnable` has returned.
        by: Pending job that gains the GPUs.
    """
    rules = rules_of(turn.state.quota.tree, job)
    remember(turn, give(turn, job, known_of(turn, job), rules, _lead_s(turn, job, rules), by))


def _lead_s(turn: Turn, job: Job, rules: Idle) -> float:
    """Return the seconds from a notice for idle GPUs to the end of a job."""
    return policy.lead_s(rules, turn.settings.programs.report_interval_s, notices.lead_s(turn, job))


def give(
    turn: Turn, job: Job, known: Idleness, rules: Idle, lead: float, by: JobId | None = None
) -> Idleness:
    """Give a job notice that it ends for idle GPUs, unless it has a notice already.

    Args:
        job: Job with idle GPUs.
        known: Idleness of the job.
        rules: Rules on idle GPUs for the job.
        lead: Seconds from the notice to the end.
        by: Pending job that gains the GPUs; None if no job does.

    Returns:
        The new idleness, which is not saved yet.
    """
    if notices.stands(turn.state, job) is not None:
        return known
    why = idle_words(known)
    if by is not None:
        why += f", and job {by} waits for them"
    notices.give(turn, job, NoticeReason.IDLE, why, by=by, notice_s=lead, final=not rules.requeue)
    return policy.noticed(known, turn.now)


def idle_words(known: Idleness) -> str:
    """Return why a job is to end, for its message."""
    return f"its GPUs have done nothing for {known.idle_ms // 1000} s"


def kept_words(until: float, by: str, now: float) -> str:
    """Return until when a job is kept, and by which user, for its message.

    Args:
        until: End of the time, in seconds since the epoch.
        by: User that keeps the job; "" if not known.
        now: Time of the step, in seconds since the epoch.
    """
    return f"kept{f' by {by}' if by else ''} from being ended for idle GPUs until {clock(until, now)}"


def remember(turn: Turn, new: Idleness, rules: Idle | None = None) -> None:
    """Store the idleness of a job in the state.

    Without `rules` it is always written to the store. With `rules` it is written if its state has changed, or if its
    idle time has passed the next tenth of the shorter of two times: that to the warning, and that from it to the end.
    The idleness of an active job that is not kept is dropped.
    """
    old = turn.state.work.idlenesses.get(new.job_id)
    if new.state is IdleState.ACTIVE and new.keep_until is None:
        if old is not None:
            turn.drop(Idleness, new.job_id)
        return
    between = 0
    if rules is not None and old is not None:
        spans = rules.warn_after_s, max(rules.return_after_s - rules.warn_after_s, 0)
        between = round(max(min(spans) * 1000 / _PARTS, 1))
    if old is None or not between or _step(old, between) != _step(new, between):
        turn.put(new)
    else:
        turn.state.put(new)


def _step(known: Idleness, ms: int) -> tuple[object, ...]:
    """Return the parts of an idleness by which one is worth saving; times count in units of `ms`."""
    return (
        known.launch,
        known.state,
        known.since,
        known.idle_ms // ms,
        known.resumed_ms // ms,
        known.keep_until,
    )


def _warn(turn: Turn, job: Job, rules: Idle) -> None:
    """Send the tasks of a job a warning that it ends if its GPUs stay idle."""
    left_s = rules.return_after_s - rules.warn_after_s
    what = "ended" if rules.policy is IdlePolicy.ALWAYS else "ended when another job needs them"
    why = (
        f"its GPUs have done nothing for {rules.warn_after_s:g} s; after {left_s:g} s more it is {what} "
        f"(mesos-gpu keep {job.id} puts that off)"
    )
    notice = None
    for task in _members(turn, job):
        number = task.notice.number + 1 if task.notice else 1
        reported = task.notice.told if task.notice else 0
        notice = Notice(
            number, NoticeReason.IDLE, why, turn.now, turn.now + left_s, told=reported, warning=True
        )
        words.tell(turn, task, notice)
    words.happened(turn, EventKind.IDLE_WARNING, job, notice)
    turn.put_job(replace(job, message=why))


def _call_off(turn: Turn, job: Job, why: str) -> None:
    """Recall the notice or the warning of a job, and report that it goes on."""
    if not notices.recall(turn, job, why, of=OF_IDLE):
        for task in _members(turn, job):
            if task.notice is not None and task.notice.warning:
                notice = replace(
                    task.notice, number=task.notice.number + 1, warning=False, recalled_at=turn.now
                )
                words.tell(turn, task, notice)
        if (
            notices.stands(turn.state, job) is None
        ):  # otherwise the message names the other reason for its end
            job = turn.put_job(replace(turn.state.work.jobs[job.id], message=f"it goes on: {why}"))
    words.happened(turn, EventKind.IDLE_OVER, job)


def on_keep_asked(turn: Turn, event: ev.KeepAsked) -> None:
    """Protect a job from being ended for idle GPUs until a time; its idle time begins again after that.

    Raises:
        NotFound: The job does not exist.
        Conflict: The job has ended or is being ended, or there are no rules on idle GPUs.
        NotAccepted: The time has passed, or is later than the rules of its queue or class allow.
    """
    job, rules = _kept_job(turn, event.job_id)
    until = turn.now + event.for_s if event.for_s is not None else event.until
    assert until is not None, "the event sets for_s or until"
    field = "/until" if event.for_s is None else "/for_s"
    if until <= turn.now:
        raise NotAccepted(
            [(field, f"{clock(until, turn.now)} has passed")], remedy="give a time in the future"
        )
    if until > turn.now + rules.max_keep_s:
        most = f"{rules.max_keep_s:g} s from now, until {clock(turn.now + rules.max_keep_s, turn.now)}"
        raise NotAccepted(
            [
                (
                    field,
                    f"job {job.id} may be kept for {most} at most (max_keep_s): {clock(until, turn.now)} is later",
                )
            ],
            remedy="keep it for a shorter time, then again; the limit is max_keep_s in the document of queues",
        )
    idleness = known_of(turn, job)
    if idleness.state in _TOLD:
        _call_off(turn, job, "it is kept")
    turn.put(replace(policy.forgotten(idleness, turn.now), keep_until=until, kept_by=event.by))
    why = kept_words(until, event.by, turn.now)
    words.happened(turn, EventKind.KEPT, job, words=why)
    turn.show_job(
        replace(turn.state.work.jobs[job.id], message=why, version=turn.state.work.jobs[job.id].version + 1)
    )


def on_keep_withdrawn(turn: Turn, event: ev.KeepWithdrawn) -> None:
    """End the protection of a job from being ended for idle GPUs.

    Raises:
        NotFound: The job does not exist.
        Conflict: The job has ended, or is not protected.
    """
    job, rules = _kept_job(turn, event.job_id)
    idleness = known_of(turn, job)
    if idleness.keep_until is None:
        raise Conflict(f"job {job.id} is not kept", remedy=f"see the job with: mesos-gpu show {job.id}")
    remember(turn, _keep_ended(turn, job, idleness), rules)


def _kept_job(turn: Turn, job_id: JobId) -> tuple[Job, Idle]:
    """Return a job that may be kept, and the rules on idle GPUs for it."""
    job, tree = turn.state.work.jobs.get(job_id), turn.state.quota.tree
    if job is None:
        raise NotFound(f"there is no job {job_id}", remedy="list the jobs with: mesos-gpu ps")
    if tree.is_flat:
        raise Conflict(
            "nothing is done about idle GPUs, as there is no document of queues",
            remedy="do nothing: the job is not ended for idle GPUs",
        )
    idleness = turn.state.work.idlenesses.get(job_id)
    if (
        job.state.ended
        or job.kill_requested
        or (idleness is not None and idleness.state is IdleState.RETURNED)
    ):
        raise Conflict(
            f"job {job_id} is {job.state.value}", remedy="only a job that is not being ended can be kept"
        )
    return job, rules_of(tree, job)


def _keep_ended(turn: Turn, job: Job, known: Idleness) -> Idleness:
    """Report that a job is no longer kept; return its idleness, which begins at zero and is not saved yet."""
    words.happened(turn, EventKind.KEEP_ENDED, job, words="it is not kept any longer")
    turn.show_job(replace(job, version=job.version + 1))
    return policy.forgotten(replace(known, keep_until=None, kept_by=""), turn.now)


def _look_after(turn: Turn, tree: Tree, job: Job, notice: Notice) -> None:
    """End a job whose notice has run out if its GPUs are still known to be idle; else recall the notice."""
    if turn.now < notice.until:
        return
    rules, idleness = rules_of(tree, job), known_of(turn, job)
    window = policy.window_s(rules, turn.settings.programs.report_interval_s)
    ends = policy.may_end(idleness, rules, notice.at, notice.until, turn.now, window)
    if ends:
        remember(turn, policy.returned(idleness, turn.now))
        notices.end(turn, job, notice)
    elif ends is not None:
        why = "nothing is done about idle GPUs any more"
        if rules.policy is not IdlePolicy.REPORT:
            why = "its GPUs are at work" if idleness.resumed_ms else "it is not known what its GPUs do now"
        notices.recall(turn, job, why, of=OF_IDLE)
        remember(turn, policy.warned(idleness, turn.now))
