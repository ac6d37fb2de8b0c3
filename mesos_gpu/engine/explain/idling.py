"""Explanation of idle GPUs: for the job that holds them, and for jobs that may get them. It changes no state."""

from dataclasses import replace
from typing import Final

from mesos_gpu.engine.indexes.leaves import leaf_of
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.tenancy.idle import idle_of, idle_words, kept_words
from mesos_gpu.model.jobs.job import Job, JobState
from mesos_gpu.model.jobs.why import Why
from mesos_gpu.model.tasks.idle import Idleness, IdleState
from mesos_gpu.model.tenancy import Idle, IdlePolicy, Reclaim
from mesos_gpu.model.words import clock, counted
from mesos_gpu.policy.explain.why import state_words
from mesos_gpu.policy.tenancy.tree import Tree

_IF: Final = {IdlePolicy.PRESSURE: " if another job needs them", IdlePolicy.ALWAYS: ""}


def with_idle(answer: Why, state: State, settings: Settings, job: Job, now: float) -> Why:
    """Return an answer extended by idle GPUs: those of a running job, or those that a pending job may get."""
    if job.state is JobState.PENDING:
        words = _may_come(state, settings, job, now)
        return replace(answer, summary=f"{answer.summary}; {words}") if words else answer
    shown = None if job.state.ended else idle_of(state, job, now)
    if shown is None:
        return answer
    idleness, rules = shown
    words = _standing(state, job, idleness, rules, now)
    # From the warning on, and while it is kept, the job's message is an earlier version of these words.
    before = answer.summary if idleness.state is IdleState.SUSPECT else state_words(job.state)
    return replace(answer, summary=f"{before}; {words}")


def _standing(state: State, job: Job, known: Idleness, rules: Idle, now: float) -> str:
    """Return the idle state of a job with idle GPUs, in words."""
    if known.keep_until is not None:
        return kept_words(known.keep_until, known.kept_by, now)
    words = idle_words(known)
    since = clock(known.since, now)
    if known.state is IdleState.RETURNED:
        return f"{words}, and it is being ended for that since {since}"
    if known.state is IdleState.NOTICE:
        notices = [task.notice for task in state.work.round_of(job) if task.notice and task.notice.stands]
        until = f" at {clock(notices[0].until, now)}" if notices else ""
        return f"{words}; it was given notice at {since}, and ends{until} if they stay so"
    if rules.policy is IdlePolicy.REPORT:
        return f"{words}; that is only reported"
    ends = f"ends at {clock(_ends_at(known, rules, now), now)} at the earliest{_IF[rules.policy]}"
    if known.state is IdleState.WARNED:
        return f"{words}; it was warned at {since}, and {ends}"
    warned_at = now + max(rules.warn_after_s - known.idle_ms / 1000, 0)
    return f"{words}; if they stay so it is warned at {clock(warned_at, now)}, and {ends}"


def _ends_at(known: Idleness, rules: Idle, now: float) -> float:
    """Return the earliest end of a job for idle GPUs, in seconds since the epoch."""
    return now + max(rules.return_after_s - known.idle_ms / 1000, 0)


def _may_come(state: State, settings: Settings, job: Job, now: float) -> str:
    """Return how many jobs with a warning for idle GPUs may be ended for a pending job, and from when on, in words."""
    tree = state.quota.tree
    if not settings.queue.preemption or not job.spec.gpus:
        return ""
    queue = tree.queues.get(leaf_of(tree, job))
    if queue is None or queue.resolved.reclaim is Reclaim.NEVER:
        return ""
    ends = [
        _ends_at(known, rules, now)
        for other in map(state.work.jobs.get, list(state.work.idlenesses))
        if other is not None and (shown := idle_of(state, other, now)) is not None
        for known, rules in (shown,)
        if known.state is IdleState.WARNED and rules.policy is IdlePolicy.PRESSURE
        if _serves(state, tree, job, other)
    ]
    if not ends:
        return ""
    which = "was warned for its idle GPUs" if len(ends) == 1 else "were warned for their idle GPUs"
    at = f" from {clock(min(ends), now)} on" if min(ends) > now else ""
    return f"{counted(len(ends), 'job')} {which}, and may be ended for it{at}"


def _serves(state: State, tree: Tree, job: Job, other: Job) -> bool:
    """Return whether another job has GPUs of a model for a job, and no reclaim boundary (fence) is between them."""
    queue, other_queue = tree.queues[leaf_of(tree, job)], tree.queues.get(leaf_of(tree, other))
    if other_queue is None or tree.is_fenced(queue, other_queue):
        return False
    tasks = [task for task in state.work.round_of(other) if not task.ended]
    models = state.cluster.models_of(job.spec.gpu_model)
    nodes = [
        (task.gpus, state.cluster.nodes[task.agent_id])
        for task in tasks
        if task.agent_id in state.cluster.nodes
    ]
    return any(
        gpu.id in held and (not models or gpu.model in models) for held, node in nodes for gpu in node.gpus
    )
