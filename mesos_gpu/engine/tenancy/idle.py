"""Jobs whose GPUs do nothing: they are warned, told when they end, and ended, as the rules of their queue or class say.

Fed by what monitors report of tasks. What lies between two reports that do not follow from each other is not known,
and does not count: a monitor or a scheduler that was away lets the time stand. How far a job is on that way is saved
when it takes a step, and now and then between.
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
_PARTS: Final = 10  # so often, at most, is a job's time saved until its warning, and until its end
_TOLD: Final = (IdleState.WARNED, IdleState.NOTICE)


def rules_of(tree: Tree, job: Job) -> Idle:
    """The rules for a job: its class', else its queue's."""
    rules = _declared(tree, job.spec.job_class, job.spec.queue)
    return policy.rules_for(rules, job.spec.labels, is_instance=job.app_version is not None)


@lru_cache(maxsize=1024)
def _declared(tree: Tree, job_class: str | None, queue: str) -> Idle:
    """The rules of a class, else of a queue, whatever the job: asked for each card in each report."""
    known, leaf = class_of(tree, job_class), tree.queues.get(tree.leaf_of(queue))
    own = known.idle if known is not None else None
    return own or (leaf.resolved.idle if leaf is not None else Idle())


def idle_of(state: State, job: Job, now: float) -> tuple[Idleness, Idle] | None:
    """What is shown of a job: how idle it is known to be, and its rules; None: there is nothing to show."""
    known, tree = state.work.idlenesses.get(job.id), state.quota.tree
    if known is None:
        return None
    if known.keep_until is not None and (now >= known.keep_until or job.state.ended):
        known = replace(known, keep_until=None, kept_by="")
    if known.launch != job.launches or (job.state.ended and known.state is not IdleState.RETURNED):
        known = policy.forgotten(known, known.since)
    if known.state is IdleState.ACTIVE and known.keep_until is None:
        return None
    return known, rules_of(tree, job)


def on_tick(turn: Turn) -> None:
    """Take in what monitors have reported, and end whose notice has run out."""
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
    """Count what a node's latest report says of tasks that are there."""
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
    """See whether a window of a job is over, and what it says."""
    members = _members(turn, job)
    rules = rules_of(tree, job)
    window_ms = _window_ms(turn, rules)
    counts = [turn.state.gpus.gpu_work.counts.get(task.id, {}) for task in members]
    cards = [of_task.get(gpu) for task, of_task in zip(members, counts, strict=True) for gpu in task.gpus]
    if not cards or any(card is None or card.elapsed_ms < window_ms for card in cards):
        return  # of some of its cards too little is known: its time stands
    used = [Used(card.elapsed_ms, card.seen_ms, card.busy_ms) for card in cards if card is not None]
    for of_task in counts:
        of_task.update({gpu: begun(count) for gpu, count in of_task.items()})
    begun_at = max(task.started_at or inf for task in members) + rules.start_grace_s
    length_ms = min(card.elapsed_ms for card in used)
    if turn.now - length_ms / 1000 >= begun_at:
        _judge(turn, job, rules, policy.verdict(used, rules), length_ms)


def _window_ms(turn: Turn, rules: Idle) -> float:
    return policy.window_s(rules, turn.settings.programs.report_interval_s) * 1000


def _members(turn: Turn, job: Job) -> Sequence[Task]:
    """The tasks of a job that runs as a whole and is not being ended; else none."""
    members = [task for task in turn.state.work.round_of(job) if not task.ended]
    if not members or running(turn, members[0]) is None:
        return ()
    return members if all(task.state is TaskState.RUNNING for task in members) else ()


def known_of(turn: Turn, job: Job) -> Idleness:
    """What is remembered of a job: of an earlier launch only until when it is kept."""
    known = turn.state.work.idlenesses.get(job.id)
    if known is None:
        return Idleness(job.id, job.launches, since=turn.now)
    if known.launch != job.launches:
        known = policy.forgotten(replace(known, launch=job.launches), turn.now)
    return known


def _judge(turn: Turn, job: Job, rules: Idle, verdict: policy.Verdict, ms: int) -> None:
    known = known_of(turn, job)
    if known.state is IdleState.NOTICE and notices.stands(turn.state, job) is None:
        known = policy.warned(known, turn.now)  # who was to have its GPUs needs them no more
    if known.keep_until is not None:
        if turn.now >= known.keep_until:
            remember(turn, _keep_ended(turn, job, known), rules)
        return
    new = policy.advance(known, rules, verdict, ms, turn.now)
    if rules.policy is IdlePolicy.REPORT and new.state in _TOLD:
        new = replace(new, state=IdleState.SUSPECT, since=turn.now)
    lead = _lead_s(turn, job, rules)
    if known.state in _TOLD and new.state not in _TOLD:
        _call_off(
            turn,
            job,
            "its GPUs are at work again" if new.state is IdleState.ACTIVE else "nothing comes of it",
        )
    elif new.state is IdleState.WARNED and known.state is not IdleState.WARNED:
        if notices.stands(turn.state, job) is None:
            _warn(turn, job, rules)
        else:  # it ends for something else, and is warned if that is called off
            new = replace(new, state=IdleState.SUSPECT, since=known.since)
    elif (
        rules.policy is IdlePolicy.ALWAYS
        and verdict in (policy.Verdict.IDLE, policy.Verdict.PAUSED)
        and policy.is_due(new, rules, lead)
    ):
        new = give(turn, job, new, rules, lead)
    remember(turn, new, rules)


def is_pressing(state: State) -> bool:
    """Whether any job was warned, so that it might have to end for somebody who waits."""
    return any(known.state is IdleState.WARNED for known in state.work.idlenesses.values())


def returnable(turn: Turn) -> dict[JobId, Job]:
    """Jobs that end now if somebody waits whom their GPUs would serve: warned long enough, and known to do nothing."""
    state, tree, jobs = turn.state, turn.state.quota.tree, dict[JobId, Job]()
    for known in state.work.idlenesses.values():
        job = state.work.jobs.get(known.job_id)
        if known.state is IdleState.WARNED and job is not None and _is_returnable(turn, tree, job, known):
            jobs[job.id] = job
    return jobs


def _is_returnable(turn: Turn, tree: Tree, job: Job, known: Idleness) -> bool:
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
    """Give one of those jobs notice, for one that waits."""
    rules = rules_of(turn.state.quota.tree, job)
    remember(turn, give(turn, job, known_of(turn, job), rules, _lead_s(turn, job, rules), by))


def _lead_s(turn: Turn, job: Job, rules: Idle) -> float:
    return policy.lead_s(rules, turn.settings.programs.report_interval_s, notices.lead_s(turn, job))


def give(
    turn: Turn, job: Job, known: Idleness, rules: Idle, lead: float, by: JobId | None = None
) -> Idleness:
    """Give a job notice that it ends; not if it ends already for another reason.

    Args:
        turn: The step.
        job: Whose.
        known: What is remembered of it.
        rules: Its own.
        lead: Seconds from the notice to the end.
        by: The job that gains; None: no job.

    Returns:
        What is remembered then; it is not saved yet.
    """
    if notices.stands(turn.state, job) is not None:
        return known
    why = idle_words(known)
    if by is not None:
        why += f", and job {by} waits for them"
    notices.give(turn, job, NoticeReason.IDLE, why, by=by, notice_s=lead, final=not rules.requeue)
    return policy.noticed(known, turn.now)


def idle_words(known: Idleness) -> str:
    """What is wrong with a job, in words."""
    return f"its GPUs have done nothing for {known.idle_ms // 1000} s"


def kept_words(until: float, by: str, now: float) -> str:
    """Until when a job is kept, and by whom ("": it is not known), in words."""
    return f"kept{f' by {by}' if by else ''} from being ended for idle GPUs until {clock(until, now)}"


def remember(turn: Turn, new: Idleness, rules: Idle | None = None) -> None:
    """Keep it; it is saved when it has taken a step, and with `rules` if it has waited long enough for that."""
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
    return (
        known.launch,
        known.state,
        known.since,
        known.idle_ms // ms,
        known.resumed_ms // ms,
        known.keep_until,
    )


def _warn(turn: Turn, job: Job, rules: Idle) -> None:
    """Tell a job what comes if it goes on so: nothing has to end for that."""
    left_s = rules.return_after_s - rules.warn_after_s
    what = "ended" if rules.policy is IdlePolicy.ALWAYS else "ended when somebody waits for them"
    why = (
        f"its GPUs have done nothing for {rules.warn_after_s:g} s; after {left_s:g} s more it is {what} "
        f"(mesos-gpu keep {job.id} puts that off)"
    )
    notice = None
    for task in _members(turn, job):
        number = task.notice.number + 1 if task.notice else 1
        told = task.notice.told if task.notice else 0
        notice = Notice(number, NoticeReason.IDLE, why, turn.now, turn.now + left_s, told=told, warning=True)
        words.tell(turn, task, notice)
    words.happened(turn, EventKind.IDLE_WARNING, job, notice)
    turn.put_job(replace(job, message=why))


def _call_off(turn: Turn, job: Job, why: str) -> None:
    """Tell a job that it goes on: call off its notice, or the warning."""
    if not notices.recall(turn, job, why, of=OF_IDLE):
        for task in _members(turn, job):
            if task.notice is not None and task.notice.warning:
                notice = replace(
                    task.notice, number=task.notice.number + 1, warning=False, recalled_at=turn.now
                )
                words.tell(turn, task, notice)
        if notices.stands(turn.state, job) is None:  # else its message says for what it ends
            job = turn.put_job(replace(turn.state.work.jobs[job.id], message=f"it goes on: {why}"))
    words.happened(turn, EventKind.IDLE_OVER, job)


def on_keep_asked(turn: Turn, event: ev.KeepAsked) -> None:
    """Keep a job from being ended for GPUs that do nothing. Its idleness is forgotten: it counts anew after that.

    Raises:
        NotFound: There is no such job.
        Conflict: It has ended, or is being ended; or nothing is done about idle GPUs.
        NotAccepted: That is longer than its queue or class lets it be kept, or over already.
    """
    job, rules = _kept_job(turn, event.job_id)
    until = turn.now + event.for_s if event.for_s is not None else event.until
    assert until is not None, "one of the two is said"
    field = "/until" if event.for_s is None else "/for_s"
    if until <= turn.now:
        raise NotAccepted([(field, f"{clock(until, turn.now)} has passed")], remedy="say a time that comes")
    if until > turn.now + rules.max_keep_s:
        most = f"{rules.max_keep_s:g} s from now, until {clock(turn.now + rules.max_keep_s, turn.now)}"
        raise NotAccepted(
            [
                (
                    field,
                    f"job {job.id} may be kept for {most} at most (max_keep_s): {clock(until, turn.now)} is later",
                )
            ],
            remedy="ask for less, and again when that ends; the document of queues says how much is allowed",
        )
    known = known_of(turn, job)
    if known.state in _TOLD:
        _call_off(turn, job, "it is kept")
    turn.put(replace(policy.forgotten(known, turn.now), keep_until=until, kept_by=event.by))
    why = kept_words(until, event.by, turn.now)
    words.happened(turn, EventKind.KEPT, job, words=why)
    turn.show_job(
        replace(turn.state.work.jobs[job.id], message=why, version=turn.state.work.jobs[job.id].version + 1)
    )


def on_keep_withdrawn(turn: Turn, event: ev.KeepWithdrawn) -> None:
    """Keep a job no longer.

    Raises:
        NotFound: There is no such job.
        Conflict: It has ended, or is not kept.
    """
    job, rules = _kept_job(turn, event.job_id)
    known = known_of(turn, job)
    if known.keep_until is None:
        raise Conflict(f"job {job.id} is not kept", remedy=f"see it with: mesos-gpu show {job.id}")
    remember(turn, _keep_ended(turn, job, known), rules)


def _kept_job(turn: Turn, job_id: JobId) -> tuple[Job, Idle]:
    """The job, and the rules for it."""
    job, tree = turn.state.work.jobs.get(job_id), turn.state.quota.tree
    if job is None:
        raise NotFound(f"there is no job {job_id}", remedy="list the jobs with: mesos-gpu ps")
    if tree.is_flat:
        raise Conflict(
            "nothing is done about idle GPUs, as there is no document of queues",
            remedy="nothing need be done",
        )
    known = turn.state.work.idlenesses.get(job_id)
    if job.state.ended or job.kill_requested or (known is not None and known.state is IdleState.RETURNED):
        raise Conflict(f"job {job_id} is {job.state.value}", remedy="keep one that is not being ended")
    return job, rules_of(tree, job)


def _keep_ended(turn: Turn, job: Job, known: Idleness) -> Idleness:
    """What is remembered of a job that is kept no longer: its time begins anew. It is not saved yet."""
    words.happened(turn, EventKind.KEEP_ENDED, job, words="it is not kept any longer")
    turn.show_job(replace(job, version=job.version + 1))
    return policy.forgotten(replace(known, keep_until=None, kept_by=""), turn.now)


def _look_after(turn: Turn, tree: Tree, job: Job, notice: Notice) -> None:
    """End a job whose notice has run out, if it is known that it does nothing still."""
    if turn.now < notice.until:
        return
    rules, known = rules_of(tree, job), known_of(turn, job)
    window = policy.window_s(rules, turn.settings.programs.report_interval_s)
    ends = policy.may_end(known, rules, notice.at, notice.until, turn.now, window)
    if ends:
        remember(turn, policy.returned(known, turn.now))
        notices.end(turn, job, notice)
    elif ends is not None:
        why = "nothing is done about idle GPUs any more"
        if rules.policy is not IdlePolicy.REPORT:
            why = "its GPUs are at work" if known.resumed_ms else "nobody knows what its GPUs do now"
        notices.recall(turn, job, why, of=OF_IDLE)
        remember(turn, policy.warned(known, turn.now))
